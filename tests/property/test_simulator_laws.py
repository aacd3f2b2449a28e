"""Laws of the simulator on random small loads and engines."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import (
    CacheGroup,
    Load,
    Outcome,
    SchedulerSettings,
    Speculation,
    simulate,
    step_trace,
)

LIMITS = TableLimits(max_tokens=512, max_requests=32, max_context=512)
STEP = AffineStep(fixed_s=0.01, token_s=1e-4, context_s=1e-6, request_s=1e-5).tables(LIMITS)
FEW = settings(max_examples=60, deadline=None)
MODEL_LEN = 256
GROUPS = (
    (CacheGroup(),),
    (CacheGroup(), CacheGroup(kind="sliding_window", window=40)),
    (CacheGroup(kind="sliding_window", window=24),),
)
DRAFTS = (
    None,
    Speculation(num_speculative_tokens=3, survival=(0.7, 0.4, 0.2), coverage=0.6),
    Speculation(num_speculative_tokens=2, survival=(0.9, 0.8), schedule=((1, 3, 2), (4, 99, 0))),
)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Up to 12 requests; some share blocks, some arrive together, some never fit."""
    count = draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    prompts, outputs = rng.integers(1, 150, count), rng.integers(1, 80, count)
    gaps = rng.exponential(draw(st.sampled_from([0.0, 0.05, 0.5])), count)
    whole = prompts // 16
    families = rng.integers(0, 3, count)
    ids = [int(1000 * f + b) for f, n in zip(families, whole, strict=True) for b in range(n)]
    return Load(
        arrival_s=np.cumsum(gaps),
        prompt_tokens=prompts,
        output_tokens=outputs,
        priority=rng.integers(0, 3, count),
        concurrency=draw(st.sampled_from([None, None, 1, 3])),
        block_ids=np.array(ids, np.int64),
        block_starts=np.concatenate([[0], np.cumsum(whole)]),
    )


@st.composite
def engines(draw: st.DrawFn, /, **fixed: Any) -> SchedulerSettings:
    """Small pools, so that requests wait and are preempted."""
    block_size = draw(st.sampled_from([1, 4, 16]))
    chosen: dict[str, Any] = {
        "block_size": block_size,
        "num_blocks": draw(st.integers(8, 60)) * 16 // block_size,
        "max_num_seqs": draw(st.integers(1, 8)),
        "max_num_batched_tokens": draw(st.sampled_from([24, 64, 256])),
        "max_model_len": MODEL_LEN,
        "enable_prefix_caching": draw(st.booleans()),
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 20])),
        "watermark": draw(st.sampled_from([0.0, 0.05])),
        "async_scheduling": draw(st.booleans()),
        "speculation": draw(st.sampled_from(DRAFTS)),
        "groups": draw(st.sampled_from(GROUPS)),
        "static_batch": draw(st.sampled_from([None, None, None, 4])),
    }
    return SchedulerSettings(**{**chosen, **fixed})


def served(outcome: Outcome) -> NDArray[np.bool_]:
    return ~outcome.refused


@FEW
@given(load=loads(), engine=engines())
def test_every_request_is_served_to_its_end_or_refused(
    load: Load, engine: SchedulerSettings
) -> None:
    """Nobody is lost: a request has all its times, or is refused and has none but its sending."""
    outcome = simulate(load, engine, STEP)
    assert np.array_equal(np.isnan(outcome.last_token_s), outcome.refused)
    assert np.array_equal(np.isnan(outcome.first_token_s), outcome.refused)
    assert not np.isnan(outcome.sent_s).any()


@FEW
@given(load=loads(), engine=engines(speculation=None, async_scheduling=False))
def test_every_token_is_computed_once_unless_it_was_preempted(
    load: Load, engine: SchedulerSettings
) -> None:
    """Scheduled tokens are prompt less hits plus output less the last; a preemption adds some."""
    outcome = simulate(load, engine, STEP)
    done: dict[int, int] = {}
    for step in step_trace(load, engine, STEP):
        for request, new in step.scheduled.items():
            done[request] = done.get(request, 0) + new
    output = np.minimum(load.output_tokens, MODEL_LEN - load.prompt_tokens)
    owed = load.prompt_tokens - outcome.cached_tokens + output - 1
    for request in np.flatnonzero(served(outcome)).tolist():
        computed = done[request]
        if outcome.preemptions[request] == 0:
            assert computed == owed[request]
        else:
            assert computed >= output[request]


@FEW
@given(load=loads(), engine=engines())
def test_time_goes_forward_in_the_life_of_a_request(load: Load, engine: SchedulerSettings) -> None:
    """Sent, scheduled, first token, last token."""
    outcome = simulate(load, engine, STEP)
    kept = served(outcome)
    assert (outcome.sent_s[kept] <= outcome.scheduled_s[kept]).all()
    assert (outcome.scheduled_s[kept] < outcome.first_token_s[kept]).all()
    assert (outcome.first_token_s[kept] <= outcome.last_token_s[kept]).all()
    single = kept & (load.output_tokens == 1)
    assert np.array_equal(outcome.first_token_s[single], outcome.last_token_s[single])


@FEW
@given(load=loads(), engine=engines())
def test_the_same_inputs_give_the_same_bytes(load: Load, engine: SchedulerSettings) -> None:
    first, second = simulate(load, engine, STEP, seed=7), simulate(load, engine, STEP, seed=7)
    assert first.last_token_s.tobytes() == second.last_token_s.tobytes()
    assert first.step_end_s.tobytes() == second.step_end_s.tobytes()
    assert (first.steps, first.drafted_tokens) == (second.steps, second.drafted_tokens)


@FEW
@given(load=loads(), engine=engines(), fewer=st.integers(2, 30))
def test_how_often_the_queue_is_sampled_changes_nothing_else(
    load: Load, engine: SchedulerSettings, fewer: int
) -> None:
    """Fewer samples are a part of all samples."""
    whole = simulate(load, engine, STEP)
    some = simulate(load, engine, STEP, record_steps=fewer)
    assert np.array_equal(whole.last_token_s, some.last_token_s, equal_nan=True)
    assert len(some.step_end_s) <= fewer + 1
    assert set(some.step_end_s) <= set(whole.step_end_s)


@FEW
@given(load=loads(), engine=engines())
def test_never_more_blocks_seats_or_tokens_than_there_are(
    load: Load, engine: SchedulerSettings
) -> None:
    outcome = simulate(load, engine, STEP)
    assert (outcome.used_blocks <= outcome.usable_blocks).all()
    assert (outcome.used_blocks >= 0).all()
    assert (outcome.running <= engine.max_num_seqs).all()
    assert (outcome.step_tokens <= engine.max_num_batched_tokens).all()


@FEW
@given(load=loads(), engine=engines(static_batch=None, async_scheduling=False))
def test_an_engine_never_rests_while_somebody_is_there(
    load: Load, engine: SchedulerSettings
) -> None:
    """Busy time fills every moment at which a request is sent and not yet done."""
    outcome = simulate(load, engine, STEP)
    kept = served(outcome)
    spans = sorted(zip(outcome.sent_s[kept], outcome.last_token_s[kept], strict=True))
    present = 0.0
    end = -np.inf
    for sent, last in spans:
        present += max(0.0, last - max(sent, end))
        end = max(end, last)
    assert np.isclose(outcome.busy_s, present, rtol=1e-9, atol=1e-9)


@FEW
@given(load=loads(), engine=engines(enable_prefix_caching=True))
def test_nothing_shared_and_nobody_preempted_is_no_caching(
    load: Load, engine: SchedulerSettings
) -> None:
    """Blocks by identity and blocks by number schedule alike when no block can be found again."""
    alone = replace(load, block_ids=None, block_starts=None)
    counted = replace(engine, enable_prefix_caching=False)
    cached, plain = simulate(alone, engine, STEP), simulate(alone, counted, STEP)
    if cached.preemptions.sum() == 0:
        assert cached.last_token_s.tobytes() == plain.last_token_s.tobytes()
        assert np.array_equal(cached.used_blocks, plain.used_blocks)
    assert plain.cached_tokens.sum() == 0


@FEW
@given(load=loads(), engine=engines(enable_prefix_caching=True))
def test_naming_blocks_that_nobody_shares_changes_nothing(
    load: Load, engine: SchedulerSettings
) -> None:
    """Every whole block of prompt and output named, or the first, shared ones only."""
    assert load.block_ids is not None
    assert load.block_starts is not None
    whole = (load.prompt_tokens + load.output_tokens) // engine.block_size
    ids: list[int] = []
    for request, (start, end) in enumerate(itertools.pairwise(load.block_starts.tolist())):
        listed = load.block_ids[start:end].tolist()
        ids += listed + [10**6 * (request + 1) + n for n in range(whole[request] - len(listed))]
    named = replace(
        load, block_ids=np.array(ids), block_starts=np.concatenate([[0], np.cumsum(whole)])
    )
    first, second = simulate(load, engine, STEP), simulate(named, engine, STEP)
    assert first.last_token_s.tobytes() == second.last_token_s.tobytes()
    assert np.array_equal(first.cached_tokens, second.cached_tokens)
    assert np.array_equal(first.used_blocks, second.used_blocks)


@FEW
@given(load=loads(), engine=engines(static_batch=None))
def test_one_request_in_flight_is_served_one_after_the_other(
    load: Load, engine: SchedulerSettings
) -> None:
    outcome = simulate(replace(load, concurrency=1), engine, STEP)
    kept = served(outcome)
    sent, last = outcome.sent_s[kept], outcome.last_token_s[kept]
    assert np.array_equal(sent[1:], last[:-1])
    assert (outcome.running[:-1] <= 1).all()
    assert outcome.preemptions.sum() == 0


@FEW
@given(load=loads(), engine=engines(groups=GROUPS[0], static_batch=None))
def test_a_draft_that_is_always_accepted_saves_steps_and_none_costs_none(
    load: Load, engine: SchedulerSettings
) -> None:
    """k sure tokens: a request alone takes ceil((n - 1) / (1 + k)) decode steps; none: n - 1."""
    alone = replace(load, concurrency=1, block_ids=None, block_starts=None)
    roomy = replace(engine, num_blocks=500, max_num_batched_tokens=256)
    for chance, each in ((1.0, 4), (0.0, 1)):
        drafts = Speculation(num_speculative_tokens=3, survival=(chance,) * 3)
        settings_ = replace(roomy, speculation=drafts, long_prefill_token_threshold=0)
        outcome = simulate(alone, settings_, STEP)
        output = np.minimum(load.output_tokens, MODEL_LEN - load.prompt_tokens)
        steps = int((1 + -(-(output - 1) // each)).sum())
        extra = len(load) * 2 if settings_.async_scheduling else 0
        assert steps <= outcome.steps <= steps + extra
