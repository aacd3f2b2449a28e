"""Laws of the statistics of traffic."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.traffic.classes.found import cluster
from advisor.traffic.facts import Facts, facts_of, join_facts
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.statistics.arrivals import arrivals, fano, peaks
from advisor.traffic.statistics.concurrency import concurrency
from advisor.traffic.statistics.interval import ratio_interval
from advisor.traffic.statistics.lengths import joint_lengths
from advisor.traffic.statistics.profile import fit, fits
from advisor.traffic.summary import TrafficTally
from advisor.traffic.trace import Request, RequestKind, TokenColumns
from tests.unit.traffic.figures import columns_of
from tests.unit.traffic.rows import columns

count = st.none() | st.integers(0, 50_000)
ids = st.none() | st.lists(st.integers(0, 3), max_size=20)
prompts = st.lists(st.integers(-1, 20_000), min_size=1, max_size=30)


@st.composite
def rows(draw: st.DrawFn) -> Request:
    """A request with text or without."""
    has_text = draw(st.booleans())
    return Request(
        id="r",
        index=0,
        line=0,
        kind=RequestKind.COMPLETION if has_text else RequestKind.LENGTHS,
        prompt=draw(st.sampled_from(["one", "two", "x = 1\n"])) if has_text else None,
        arrival_s=float(draw(st.integers(0, 3))),
        label=draw(st.none() | st.sampled_from("ab")),
        prompt_tokens=draw(count),
        output_tokens=draw(count),
        temperature=draw(st.none() | st.sampled_from([0.0, 0.7])),
        duration_s=draw(st.none() | st.integers(0, 3).map(float)),
    )


@st.composite
def uploads(draw: st.DrawFn) -> tuple[list[Request], TokenColumns]:
    """Requests in order of arrival, many at once, and tokens of some."""
    requests = sorted(
        draw(st.lists(rows(), min_size=1, max_size=10)), key=lambda row: row.arrival_s or 0
    )
    tokens = [(draw(ids), draw(ids)) if request.has_text else (None, None) for request in requests]
    return requests, columns([one for one, _ in tokens], [other for _, other in tokens])


def summary(requests: list[Request], tokens: TokenColumns, sizes: list[int]) -> TrafficSummary:
    """The summary of requests that are added in parts."""
    tally = TrafficTally(block_size=2)
    start = 0
    for size in (*sizes, len(requests)):
        part = slice(start, start + size)
        if requests[part]:
            held = replace(tokens, prompts=tokens.prompts[part], outputs=tokens.outputs[part])
            tally.add(requests[part], held)
        start += size
    return tally.finish()


@settings(max_examples=25)
@given(uploads(), st.lists(st.integers(1, 4), max_size=4))
def test_adding_in_parts_is_adding_at_once(
    upload: tuple[list[Request], TokenColumns], sizes: list[int]
) -> None:
    """However an upload is cut."""
    assert summary(*upload, sizes) == summary(*upload, [])


@settings(max_examples=25)
@given(uploads(), st.randoms(use_true_random=False))
def test_permuting_simultaneous_rows_changes_no_statistic(
    upload: tuple[list[Request], TokenColumns], random: object
) -> None:
    """Lengths, classes, mixes, languages, reuse: the order within one time is no information."""
    requests, tokens = upload
    places = list(range(len(requests)))
    random.shuffle(places)  # type: ignore[attr-defined]
    places.sort(key=lambda place: requests[place].arrival_s or 0)
    moved = replace(
        tokens, prompts=tokens.prompts.take(places), outputs=tokens.outputs.take(places)
    )

    assert summary([requests[place] for place in places], moved, []) == summary(*upload, [])


@given(
    st.lists(st.integers(0, 10**6), min_size=3, max_size=60),
    st.sampled_from([0.25, 0.5, 2.0, 8.0]),
)
def test_scaling_the_rate_leaves_burstiness_alone(millis: list[int], k: float) -> None:
    """Rates scale by k; variation, and Fano factors at scaled windows, stay."""
    times = np.sort(np.array(millis)) / 1024.0
    times -= times[0]
    if times[-1] == 0:
        return
    one, other = arrivals(times), arrivals(times / k)

    assert one is not None
    assert other is not None
    assert other.rate_per_s == one.rate_per_s * k
    assert np.isclose(other.interarrival_cv or 0, one.interarrival_cv or 0)
    assert fano(times / k, 16 / k) == fano(times, 16)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=80))
def test_the_busiest_window_is_the_busiest(quarters: list[int]) -> None:
    """As found by trying every start."""
    times = np.sort(np.array(quarters)) / 4.0
    times -= times[0]
    for found in peaks(times) if times[-1] > 0 else ():
        tried = [int(((times >= at) & (times < at + found.window_s)).sum()) for at in times]

        assert found.requests == max(tried)


@given(prompts, st.data())
def test_joint_counts_sum_to_the_requests_with_both_lengths(
    held: list[int], data: st.DataObject
) -> None:
    """And every one lies within the edges."""
    said = data.draw(
        st.lists(st.integers(-1, 5_000), min_size=len(held), max_size=len(held)), label="outputs"
    )
    found = joint_lengths(columns_of(held, said))
    both = [(one, other) for one, other in zip(held, said, strict=True) if min(one, other) >= 0]
    if found is None:
        assert both == []
        return

    assert sum(map(sum, found.counts)) == len(both)
    assert found.prompt_edges[0] <= min(one for one, _ in both)
    assert found.prompt_edges[-1] > max(one for one, _ in both)
    assert found.correlation is None or -1.001 <= found.correlation <= 1.001


@given(prompts, st.integers(1, 30_000), st.integers(0, 10_000))
def test_a_longer_limit_never_serves_less(held: list[int], limit: int, more: int) -> None:
    """And the needed limit serves all."""
    facts = columns_of(held, [3] * len(held))
    small, large = fit(facts, limit), fit(facts, limit + more)

    assert small.fitting <= large.fitting
    assert small.prompt_tokens_fitting <= large.prompt_tokens_fitting
    assert small.prompt_too_long >= large.prompt_too_long
    assert fit(facts, max(1, small.needed_max_model_len)).fitting == small.requests
    assert [item.fitting for item in fits(facts, (limit,))] == sorted(
        item.fitting for item in fits(facts, (limit,))
    )


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=25))
def test_requests_in_flight_take_as_long_as_all_their_durations(
    rows: list[tuple[int, int]],
) -> None:
    """The mean times the span; the timeline says the same."""
    rows.sort()
    starts, durations = np.array(rows, dtype=np.float64).T
    facts = replace(
        columns_of(np.ones(len(rows)), np.ones(len(rows)), duration_s=durations), arrival_s=starts
    )
    found = concurrency(facts)
    span = (starts + durations).max() - starts.min()
    if found is None:
        assert span == 0
        return

    assert np.isclose(found.mean * span, durations.sum())
    assert found.p95 <= found.peak <= len(rows)
    assert max(found.timeline.values) <= found.peak + 1e-9


@settings(max_examples=25)
@given(prompts, st.integers(0, 5))
def test_classes_are_a_partition_with_names_of_their_own(held: list[int], seed: int) -> None:
    """Every request has one class; the largest comes first."""
    facts = columns_of(held, held)
    found = cluster(facts, seed=seed)
    sizes = [item.requests for item in found.classes]

    assert np.bincount(found.codes).tolist() == sizes == sorted(sizes, reverse=True)
    assert len({item.name for item in found.classes}) == len(sizes)
    assert abs(sum(item.share for item in found.classes) - 1) < 1e-9


@given(prompts, st.integers(0, 30))
def test_joined_parts_are_the_whole(held: list[int], cut: int) -> None:
    """Column by column."""
    facts = columns_of(held, held)
    places = np.arange(len(held))
    joined = join_facts([facts.take(places[:cut]), facts.take(places[cut:]), facts_of((), None)])

    assert joined.prompt_tokens.tolist() == facts.prompt_tokens.tolist()
    assert _dtypes(joined) == _dtypes(facts)


def _dtypes(facts: Facts) -> list[str]:
    return [getattr(facts, name).dtype.str for name in ("label", "kind", "content", "max_tokens")]


def test_the_interval_of_many_requests_is_that_of_the_bootstrap() -> None:
    """Where it is computed it agrees with resampling within a few percent."""
    rng = np.random.default_rng(0)
    bottom = rng.lognormal(5, 1, 20_000)
    top = bottom * rng.uniform(0, 1, 20_000)
    _, low, high = ratio_interval(top, bottom)
    more = (np.append(top, top[:1]), np.append(bottom, bottom[:1]))
    value, computed_low, computed_high = ratio_interval(*more)

    assert computed_low < value < computed_high
    assert abs((computed_high - computed_low) / (high - low) - 1) < 0.15
