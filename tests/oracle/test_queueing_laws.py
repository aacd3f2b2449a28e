"""The simulator against queueing theory, and the closed forms against the handbook's examples."""

import math

import numpy as np
import pytest

from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import Load, Outcome, SchedulerSettings, simulate
from advisor.simulator.queueing import (
    ProcessorSharing,
    batch_formation_s,
    exponential_static_waste,
    gg1_wait_s,
    md1_wait_s,
    mg1_wait_s,
    pipelined_ttft_s,
    prefill_ttft_s,
    sharded_ttft_s,
)

SEED = 20260801
LIMITS = TableLimits(max_tokens=4096, max_requests=1024, max_context=8192)
# The engine of T5.4: vLLM on an H100 with an 8B model at 1,024 tokens of context.
FIXED_S, REQUEST_S, OUTPUT = 7.093e-3, 61.21e-6, 200


def engine(max_num_seqs: int) -> SchedulerSettings:
    return SchedulerSettings(
        num_blocks=2_000_000,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=8192,
        max_model_len=100_000,
        enable_prefix_caching=False,
    )


def poisson(rate_per_s: float, outputs: np.ndarray, prompt: int = 1) -> Load:
    gaps = np.random.default_rng(SEED).exponential(1 / rate_per_s, len(outputs))
    return Load(
        arrival_s=np.cumsum(gaps),
        prompt_tokens=np.full(len(outputs), prompt),
        output_tokens=outputs.astype(np.int64),
    )


def settled(outcome: Outcome) -> np.ndarray:
    """Times in the system without the first fifth, which finds an emptier engine."""
    return outcome.e2e_s[len(outcome.e2e_s) // 5 :]


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_one_token_answers_one_by_one_wait_as_in_m_d_1(load: float) -> None:
    """A step per request: TTFT is the service and Pollaczek-Khinchine's wait."""
    service_s = 0.05
    requests = poisson(load / service_s, np.ones(100_000))

    outcome = simulate(requests, engine(1), AffineStep(fixed_s=service_s).tables(LIMITS))

    assert settled(outcome).mean() == pytest.approx(
        prefill_ttft_s(load / service_s, service_s), rel=0.03
    )


@pytest.mark.parametrize("share,allowed", [(0.25, 0.01), (0.612, 0.04)])
@pytest.mark.parametrize("lengths", ["equal", "geometric"])
def test_continuous_batching_shares_the_engine(share: float, allowed: float, lengths: str) -> None:
    """Mean time in the engine, whatever the distribution of lengths (handbook 5.2)."""
    rate = share / (OUTPUT * REQUEST_S)
    draw = np.random.default_rng(SEED + 1)
    count = 6_000
    outputs = np.full(count, OUTPUT) if lengths == "equal" else draw.geometric(1 / OUTPUT, count)
    step = AffineStep(fixed_s=FIXED_S, request_s=REQUEST_S)
    theory = ProcessorSharing(
        arrival_rate_per_s=rate,
        output_tokens=float(outputs.mean()),
        fixed_s=FIXED_S,
        request_s=REQUEST_S,
    )

    outcome = simulate(poisson(rate, outputs), engine(10_000), step.tables(LIMITS))

    # An arrival waits for the end of the running step too.
    residual_s = theory.tpot_s / 2
    assert settled(outcome).mean() - residual_s == pytest.approx(theory.decode_s, rel=allowed)
    assert theory.exact_enough(10_000)


def test_prompts_slow_the_answers_of_others() -> None:
    """Computing prompts is part of the load that all share."""
    rate, prompt, token_s = 34.0, 400, 21e-6
    step = AffineStep(fixed_s=FIXED_S, request_s=REQUEST_S, token_s=token_s)
    theory = ProcessorSharing(
        arrival_rate_per_s=rate,
        output_tokens=OUTPUT,
        fixed_s=FIXED_S,
        request_s=REQUEST_S + token_s,
        prompt_s=prompt * token_s,
    )

    requests = poisson(rate, np.full(6_000, OUTPUT), prompt)
    outcome = simulate(requests, engine(10_000), step.tables(LIMITS))

    assert 0.8 < theory.load < 0.9
    assert settled(outcome).mean() == pytest.approx(theory.decode_s, rel=0.12)


def test_a_cap_makes_the_closed_form_wrong_and_it_says_so() -> None:
    """With few slots requests queue, which processor sharing does not know."""
    rate = 50.0
    theory = ProcessorSharing(
        arrival_rate_per_s=rate, output_tokens=OUTPUT, fixed_s=FIXED_S, request_s=REQUEST_S
    )
    step = AffineStep(fixed_s=FIXED_S, request_s=REQUEST_S)
    requests = poisson(rate, np.full(3_000, OUTPUT))
    free, capped = (simulate(requests, engine(slots), step.tables(LIMITS)) for slots in (1000, 150))

    assert theory.exact_enough(1000)
    assert not theory.exact_enough(150)
    assert free.ttft_s.mean() < 0.05
    assert capped.ttft_s.mean() > 1.0


def test_the_share_above_a_cap_is_the_tail_of_the_distribution() -> None:
    """Against the product form itself: p(n) grows by (load + c / n)."""
    theory = ProcessorSharing(
        arrival_rate_per_s=5.0, output_tokens=200, fixed_s=7e-3, request_s=2e-4
    )
    weights, weight = [1.0], 1.0
    for n in range(1, 400):
        weight *= theory.load + 5.0 * 200 * 7e-3 / n
        weights.append(weight)
    chances = np.array(weights) / sum(weights)

    assert theory.share_above(12) == pytest.approx(chances[13:].sum(), rel=1e-9)
    assert chances @ np.arange(400) == pytest.approx(theory.running, rel=1e-9)


def test_requests_that_add_no_time_are_poisson() -> None:
    """Without a cost per request the engine is a queue with infinitely many servers."""
    theory = ProcessorSharing(
        arrival_rate_per_s=2.0, output_tokens=100, fixed_s=0.01, request_s=0.0
    )

    assert theory.highest_rate_per_s == math.inf
    assert theory.running == pytest.approx(2.0)
    assert theory.share_above(0) == pytest.approx(1 - math.exp(-2.0))


def test_processor_sharing_of_the_handbook() -> None:
    """T5.4."""
    theory = ProcessorSharing(
        arrival_rate_per_s=50.0, output_tokens=200, fixed_s=7.093e-3, request_s=61.21e-6
    )

    assert theory.load == pytest.approx(0.612, abs=5e-4)
    assert theory.tpot_s == pytest.approx(18.44e-3, abs=5e-6)
    assert theory.running == pytest.approx(184.4, abs=0.05)
    assert theory.stable


def test_waste_of_static_batches_of_exponential_lengths() -> None:
    """T5.2."""
    assert exponential_static_waste(4) == pytest.approx(0.520, abs=5e-4)
    assert exponential_static_waste(32) == pytest.approx(0.754, abs=5e-4)


def test_waiting_of_the_handbook() -> None:
    """T5.5 and T5.6; Kingman is exact for Poisson arrivals."""
    assert mg1_wait_s(50.0, 0.010, 1.5) == pytest.approx(0.01625)
    assert prefill_ttft_s(10.0, 0.050) == pytest.approx(0.075)
    assert gg1_wait_s(50.0, 0.010, arrival_cv=1.0, service_cv=1.5) == pytest.approx(0.01625)


def test_two_ways_to_use_two_devices_for_prompts() -> None:
    """DistServe, section 3: both are the single engine at the limit, and waiting has an end."""
    assert pipelined_ttft_s(10.0, 0.050, 0.050) == prefill_ttft_s(10.0, 0.050)
    assert sharded_ttft_s(10.0, 0.050, 2.0) == pytest.approx(
        0.05 / 2 + 10 * 0.05**2 / (2 * 2 * (2 - 0.5))
    )
    assert md1_wait_s(20.0, 0.050) == math.inf
    assert gg1_wait_s(20.0, 0.050, arrival_cv=2.0, service_cv=0.0) == math.inf


def test_a_static_batch_fills_before_it_starts() -> None:
    """Four requests at two a second: the first waits for three gaps, the last for none."""
    assert batch_formation_s(2.0, 4) == pytest.approx(0.75)
