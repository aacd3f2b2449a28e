"""Several engines behind a router."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import Load, SchedulerSettings, simulate
from advisor.simulator.replicas import ROUTINGS, Routing, simulate_replicas

LIMITS = TableLimits(max_tokens=512, max_requests=64, max_context=2048)
STEP = AffineStep(fixed_s=0.01, token_s=1e-4).tables(LIMITS)
ENGINE = SchedulerSettings(
    num_blocks=400, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=1024
)


def load(count: int = 60, rate: float = 40.0) -> Load:
    """Requests of unequal length from four families, each with a prefix of its own."""
    rng = np.random.default_rng(3)
    prompts = rng.integers(100, 200, count)
    whole = np.full(count, 4)
    families = rng.integers(0, 4, count)
    return Load(
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)),
        prompt_tokens=prompts,
        output_tokens=rng.integers(1, 60, count),
        block_ids=np.array([10 * f + b for f in families for b in range(4)], np.int64),
        block_starts=np.concatenate([[0], np.cumsum(whole)]),
    )


def test_one_engine_is_the_engine() -> None:
    """Whatever the routing."""
    alone = simulate(load(), ENGINE, STEP)
    for routing in ROUTINGS:
        found = simulate_replicas(load(), ENGINE, STEP, replicas=1, routing=routing)
        assert np.array_equal(found.merged.last_token_s, alone.last_token_s)
        assert found.merged.steps == alone.steps


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_request_is_served_by_its_engine(routing: Routing) -> None:
    found = simulate_replicas(load(), ENGINE, STEP, replicas=3, routing=routing)
    assert not np.isnan(found.merged.last_token_s).any()
    assert [len(part.sent_s) for part in found.per_replica] == [
        int((found.assigned == engine).sum()) for engine in range(3)
    ]
    for engine, part in enumerate(found.per_replica):
        mine = found.merged.last_token_s[found.assigned == engine]
        assert np.array_equal(mine, part.last_token_s)


def test_a_router_that_looks_sends_to_whoever_has_the_fewest() -> None:
    """Recomputed from the outcome: nobody had fewer requests at the arrival."""
    served = load(rate=100.0)
    found = simulate_replicas(served, ENGINE, STEP, replicas=3, routing="least_outstanding")
    for request, arrival in enumerate(served.arrival_s):
        before = found.assigned[:request]
        open_ = found.merged.last_token_s[:request] > arrival
        counts = [int((open_ & (before == engine)).sum()) for engine in range(3)]
        assert counts[found.assigned[request]] == min(counts)


def test_equal_first_blocks_go_to_one_engine_and_hit_more() -> None:
    served = load(rate=10.0)
    by_prefix = simulate_replicas(served, ENGINE, STEP, replicas=3, routing="prefix")
    in_turn = simulate_replicas(served, ENGINE, STEP, replicas=3)
    assert served.block_ids is not None
    assert served.block_starts is not None
    first = served.block_ids[served.block_starts[:-1]]
    for family in np.unique(first):
        assert len(np.unique(by_prefix.assigned[first == family])) == 1
    assert by_prefix.merged.cached_tokens.sum() > in_turn.merged.cached_tokens.sum()


def test_a_closed_loop_is_split() -> None:
    """Seven in flight: three and two and two."""
    served = replace(load(), concurrency=7)
    found = simulate_replicas(served, ENGINE, STEP, replicas=3)
    assert [int(part.running.max()) for part in found.per_replica] == [3, 2, 2]


def test_what_cannot_be_routed_is_refused() -> None:
    with pytest.raises(UnknownName):
        simulate_replicas(load(), ENGINE, STEP, replicas=2, routing="nearest")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        simulate_replicas(replace(load(), concurrency=1), ENGINE, STEP, replicas=2)
