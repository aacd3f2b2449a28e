"""Laws of what is measured: searches, queues, acceptance, memory, effects."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.canonical import canonical_bytes
from advisor.estimate import Estimate, Source
from advisor.measurement.capacity import Search, Tried
from advisor.measurement.clusters import effective_count
from advisor.measurement.crossover import crossovers, gain_at
from advisor.measurement.memory import preemption_onset, requests_held
from advisor.measurement.request_acceptance import histogram_of_frames, request_figures
from advisor.measurement.step_plan import step_plan
from advisor.measurement.steps import prompt_steps
from tests.fakes.planted_capacity import PlantedCapacity, measured, searched
from tests.fakes.records import NOTHING, point, record

ONE = point(record(0, 1))

truths = st.builds(
    PlantedCapacity,
    knee=st.floats(0.05, 500),
    slope=st.floats(0.05, 20),
    top=st.floats(0.0, 1.0),
)


@st.composite
def searches(draw: st.DrawFn) -> Search:
    """Ranges of rates, or of numbers of requests in flight."""
    low, span = draw(st.floats(0.1, 10)), draw(st.floats(1, 1000))
    whole = draw(st.booleans())
    ends = (math.ceil(low), math.ceil(low * span)) if whole else (low, low * span)
    return Search(lowest=ends[0], highest=ends[1], whole=whole, most_tries=60)


@given(truths, searches(), st.integers(20, 300), st.integers(0, 2**32 - 1))
def test_the_capacity_is_a_load_that_passed_within_what_was_asked(
    truth: PlantedCapacity, search: Search, requests: int, seed: int
) -> None:
    """On any noisy truth that falls with the load: measured, in range, in bounded tries."""
    rng = np.random.default_rng(seed)
    found, tried = searched(
        search, lambda load: Tried(load=load, attained=measured(truth.share(load), requests, rng))
    )

    assert len(tried) == found.tries <= 60
    assert all(search.lowest <= item.load <= search.highest for item in tried)
    assert not search.whole or all(item.load % 1 == 0 for item in tried)
    if found.load is not None:
        samples = [item.attained[0] for item in tried if item.load == found.load]
        pooled = samples[0]
        for sample in samples[1:]:
            pooled = pooled.joined(sample)
        assert pooled.passed
        assert not pooled.failed
        assert pooled.estimate.value >= 0.9
    if found.load is not None and found.fails_at is not None:
        assert found.load < found.fails_at
    assert all(load != found.load for load in found.undecided)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
)
def test_groups_are_worth_no_more_than_their_members(
    groups: list[tuple[int, float]], seed: int
) -> None:
    """And more than nothing."""
    rng = np.random.default_rng(seed)
    sizes = np.array([float(size) for size, _ in groups])
    hits = np.array([float(rng.binomial(size, share)) for size, share in groups])
    worth = effective_count(hits, sizes)

    assert 0 < worth <= sizes.sum()


histograms = st.lists(st.integers(0, 30), min_size=4, max_size=4).map(tuple)


@given(st.lists(histograms, min_size=1, max_size=30))
def test_acceptance_falls_with_the_position_and_is_strict_json(
    drawn: list[tuple[int, ...]],
) -> None:
    """Case S-18: no NaN or infinity anywhere, with drafts or without."""
    records = [
        record(0, 1, output_tokens=1 + sum((j + 1) * n for j, n in enumerate(counts)))
        for counts in drawn
    ]
    records = [
        replace(item, accepted_histogram=counts)
        for item, counts in zip(records, drawn, strict=True)
    ]
    found = request_figures(records, num_speculative_tokens=3)

    assert found is not None
    assert json.loads(canonical_bytes(found), parse_constant=pytest.fail)
    assert found.tokens_per_step is not None
    assert 1 <= found.tokens_per_step <= 4
    if found.per_position is None:
        assert found.reason is not None
        return
    values = [share.value for share in found.per_position]
    assert values == sorted(values, reverse=True)
    assert all(0 <= share.low <= share.value <= share.high <= 1 for share in found.per_position)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=50))
def test_frames_keep_every_token(frames: list[int]) -> None:
    """Steps and what they accepted add up to the tokens behind the first frame."""
    counts = histogram_of_frames(frames)

    assert sum((j + 1) * n for j, n in enumerate(counts)) == sum(frames[1:])


@given(
    st.dictionaries(st.integers(1, 64), st.integers(0, 3), min_size=1, max_size=5),
    st.integers(1, 10**6),
    st.integers(1, 256),
    st.floats(1, 10**5),
)
def test_the_safe_load_is_below_every_preemption_and_what_the_cache_holds(
    preemptions: dict[int, int], blocks: int, block_size: int, request_tokens: float
) -> None:
    """Never above either."""
    points = [
        replace(ONE, concurrency=load, counters=replace(NOTHING, preemptions=count))
        for load, count in preemptions.items()
    ]
    found = preemption_onset(points)
    held = requests_held(num_blocks=blocks, block_size=block_size, request_tokens=request_tokens)

    assert found is not None
    assert held * request_tokens <= blocks * block_size
    preempted = [load for load, count in preemptions.items() if count]
    assert found.measured == min(preempted, default=None)
    for safe in [replace(found, predicted=held).safe]:
        assert safe is None or (safe <= held and all(safe < load for load in preempted))


@given(st.integers(1, 1024), st.integers(128, 200_000), st.none() | st.integers(1, 10**6))
def test_a_step_plan_keeps_the_engines_limits(
    max_num_seqs: int, max_model_len: int, cache: int | None
) -> None:
    """No request is too long, no batch too large, nothing exceeds the cache; pairs stay pairs."""
    runs = step_plan(max_num_seqs, max_model_len, kv_cache_tokens=cache)

    assert all(run.batch <= max_num_seqs for run in runs)
    assert all(run.prompt_tokens + run.output_tokens <= max_model_len for run in runs)
    assert all(cache is None or run.tokens <= cache for run in runs)
    assert [run.draft_tokens for run in runs] == sorted(run.draft_tokens for run in runs)


@given(st.integers(1, 20), st.integers(1, 2000), st.integers(16, 4096))
def test_prompt_steps_compute_every_token_once_within_the_budget(
    count: int, prompt_tokens: int, budget: int
) -> None:
    """However the prompts are cut."""
    steps = prompt_steps(count, prompt_tokens, budget)

    assert sum(step.tokens for step in steps) == count * prompt_tokens
    assert max(step.tokens for step in steps) <= budget


gains = st.dictionaries(
    st.integers(1, 512),
    st.tuples(st.floats(0.2, 3), st.floats(0, 0.3)).map(
        lambda pair: Estimate(
            value=pair[0],
            low=pair[0] - pair[1],
            high=pair[0] + pair[1],
            source=Source.MEASURED,
            basis="drawn",
        )
    ),
    min_size=1,
)


@given(gains, st.integers(1, 1024))
def test_nothing_is_said_of_loads_beside_the_measured_ones(
    measured_gains: dict[int, Estimate], load: int
) -> None:
    """Case E-01: no gain is extrapolated, and a crossover lies between two measured loads."""
    for found in crossovers(measured_gains):
        assert found.below in measured_gains
        assert found.above in measured_gains
        assert found.probe_next is None or found.below < found.probe_next < found.above
    if load > max(measured_gains):
        assert gain_at(measured_gains, load) is not True
    if load < min(measured_gains):
        assert gain_at(measured_gains, load) is None
