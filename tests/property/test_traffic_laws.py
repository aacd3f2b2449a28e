"""Laws of traffic."""

import io
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import RooftuneError
from advisor.traffic.columns import (
    requests_from_parquet,
    requests_to_parquet,
    tokens_from_parquet,
    tokens_to_parquet,
)
from advisor.traffic.drafting.lookup import replay
from advisor.traffic.ragged import Ragged
from advisor.traffic.reading import read_trace
from advisor.traffic.sampling.sample import probe_subset
from advisor.traffic.statistics.arrivals import arrivals
from advisor.traffic.statistics.lengths import quantiles
from advisor.traffic.summary import summarise
from advisor.traffic.trace import Request, RequestKind, TokenColumns
from tests.fakes.exact_prefix import cached_tokens

ids = st.lists(st.integers(0, 3), max_size=24).map(tuple)
maybe_text = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
maybe_count = st.none() | st.integers(0, 10**6)


@st.composite
def samples(draw: st.DrawFn) -> tuple[tuple[Request, ...], TokenColumns]:
    """Completion requests with arrivals that often coincide, and their tokens."""
    rows = draw(st.lists(st.tuples(st.integers(0, 3), ids, ids, st.sampled_from("ab")), max_size=8))
    rows.sort(key=lambda row: row[0])
    requests = tuple(
        Request(
            id=f"r{place}",
            index=place,
            line=place,
            kind=RequestKind.COMPLETION,
            label=label,
            arrival_s=float(time),
            prompt="text",
        )
        for place, (time, _, _, label) in enumerate(rows)
    )
    columns = TokenColumns.of(
        tokenizer_digest="t",
        template_digest="c",
        prompts=tuple(row[1] for row in rows),
        outputs=tuple(row[2] for row in rows),
    )
    return requests, columns


@settings(max_examples=40)
@given(samples(), st.randoms(use_true_random=False))
def test_permuting_simultaneous_rows_changes_nothing(
    sample: tuple[tuple[Request, ...], TokenColumns], random: object
) -> None:
    """The order in which a log wrote rows of one time is no information."""
    requests, columns = sample
    places = list(range(len(requests)))
    random.shuffle(places)  # type: ignore[attr-defined]
    places.sort(key=lambda place: requests[place].arrival_s or 0)
    moved = TokenColumns.of(
        tokenizer_digest="t",
        template_digest="c",
        prompts=tuple(columns.prompts[place] for place in places),
        outputs=tuple(columns.outputs[place] for place in places),
    )
    before = summarise(requests, columns, block_size=2)

    assert summarise([requests[place] for place in places], moved, block_size=2) == before


@given(
    st.lists(st.integers(0, 10**9), min_size=3, max_size=40), st.sampled_from([0.25, 0.5, 2, 16])
)
def test_scaling_time_scales_the_rate_by_the_inverse(micros: list[int], k: float) -> None:
    """Burstiness has no unit and stays. Clocks tick in microseconds."""
    times = [micro / 1e6 for micro in micros]
    one = arrivals(times)
    other = arrivals([time * k for time in times])
    if one is None or other is None:
        assert one is other
        return

    assert abs(other.rate_per_s * k / one.rate_per_s - 1) < 1e-9
    assert abs(other.peak_rate_per_s * k / one.peak_rate_per_s - 1) < 1e-9
    assert other.burstiness_ratio == one.burstiness_ratio
    assert abs((other.interarrival_cv or 0) - (one.interarrival_cv or 0)) < 1e-6


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_percentiles_are_monotone_and_inside_the_data(values: list[int]) -> None:
    """From the smallest value to the largest."""
    found = quantiles(values)

    assert found is not None
    line = [min(values), found.p5, found.p25, found.p50, found.p75, found.p95, found.max]
    assert line == sorted(line)
    assert found.max == max(values)


@st.composite
def any_requests(draw: st.DrawFn) -> Request:
    """A request of any kind with any fields."""
    kind = draw(st.sampled_from(RequestKind))
    return Request(
        id=draw(st.text("rx019", min_size=1)),
        index=draw(st.integers(0, 2**40)),
        line=draw(st.integers(1, 2**40)),
        kind=kind,
        source_id=draw(maybe_text),
        label=draw(maybe_text),
        session=draw(maybe_text),
        arrival_s=draw(st.none() | st.floats(0, 1e9)),
        messages="[]" if kind is RequestKind.CHAT else draw(maybe_text),
        prompt="p" if kind is RequestKind.COMPLETION else draw(maybe_text),
        response=draw(maybe_text),
        max_tokens=draw(maybe_count),
        temperature=draw(st.none() | st.floats(0, 2)),
        output_tokens=draw(maybe_count),
    )


@settings(max_examples=40)
@given(st.lists(any_requests(), max_size=4))
def test_requests_survive_parquet(requests: list[Request]) -> None:
    """The stored form is the value."""
    assert requests_from_parquet(requests_to_parquet(requests)) == tuple(requests)


@settings(max_examples=40)
@given(samples())
def test_tokens_survive_parquet(sample: tuple[tuple[Request, ...], TokenColumns]) -> None:
    """As for requests; an unknown prompt is not an empty one."""
    columns = replace(
        sample[1],
        prompts=Ragged.of((None, *sample[1].prompts)),
        outputs=Ragged.of((None, *sample[1].outputs)),
    )

    assert tokens_from_parquet(tokens_to_parquet(columns)) == columns


def propose(context: list[int], low: int, high: int, k: int) -> list[int]:
    """The engine's rule in its slowest form: longest suffix, earliest occurrence, all compared."""
    for n in range(min(high, len(context) - 1), low - 1, -1):
        for start in range(len(context) - n):
            if context[start : start + n] == context[-n:]:
                return context[start + n : start + n + k]
    return []


@given(prompt=ids, output=ids, k=st.integers(1, 5), low=st.integers(1, 3), more=st.integers(0, 3))
def test_replay_equals_the_rule_applied_by_comparing_everything(
    prompt: tuple[int, ...], output: tuple[int, ...], *, k: int, low: int, more: int
) -> None:
    """Steps, drafts, drafted, accepted and survival by position."""
    context, place, counts, survived = [*prompt, *output[:1]], 1, [0, 0, 0, 0], [0] * k
    while place < len(output):
        draft = propose(context, low, low + more, k)
        good = 0
        while good < len(draft) and output[place + good : place + good + 1] == (draft[good],):
            survived[good] += 1
            good += 1
        step = (1, bool(draft), len(draft), good)
        counts = [one + other for one, other in zip(counts, step, strict=True)]
        context += output[place : place + good + 1]
        place += good + 1
    found = replay(prompt, output, k=k, lookup_min=low, lookup_max=low + more)

    assert [found.decode_steps, found.drafts, found.draft_tokens, found.accepted] == counts
    assert found.per_position == tuple(survived)


@settings(max_examples=50)
@given(st.lists(ids, max_size=8), st.integers(1, 4))
def test_a_cache_of_finer_blocks_never_serves_less(
    prompts: list[tuple[int, ...]], size: int
) -> None:
    """Blocks of half the size find every hit of the larger ones, and never the last token."""
    coarse = cached_tokens(prompts, 2 * size)
    fine = cached_tokens(prompts, size)

    assert all(small <= large for small, large in zip(coarse, fine, strict=True))
    assert all(hit < max(1, len(prompt)) for hit, prompt in zip(fine, prompts, strict=True))


@settings(max_examples=40)
@given(samples(), st.integers(1, 6), st.integers(0, 5), st.floats(0, 30))
def test_a_subset_holds_its_limits_and_the_larger_one_its_classes(
    sample: tuple[tuple[Request, ...], TokenColumns], size: int, seed: int, mean: float
) -> None:
    """Different, deterministic, no longer than allowed; a mean limit never makes it longer."""
    requests, columns = sample
    fitting = [place for place, ids in enumerate(columns.prompts) if ids and len(ids) < 20]
    if not fitting:
        return
    free, again, kept = (
        probe_subset(
            requests, columns, size=size, seed=seed, max_prompt_tokens=40, mean_prompt_limit=limit
        ).places
        if any(columns.prompts)
        else ()
        for limit in (None, None, mean)
    )

    def total(chosen: tuple[int, ...]) -> int:
        return sum(len(columns.prompts[place] or ()) for place in chosen)

    assert free == again
    assert len(set(kept)) == len(kept) == len(free) <= size
    assert total(kept) <= total(free)


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_read_or_refused_in_words(lines: list[bytes]) -> None:
    """A good row in front: whatever follows is rejected by line or refused, never a crash."""
    body = json.dumps({"prompt": "good"}).encode() + b"\n" + b"\n".join(lines)
    try:
        trace = read_trace(io.BytesIO(body), filename="any", max_bad_share=1)
    except RooftuneError:
        return

    assert trace.report.accepted + trace.report.rejected == trace.report.rows
    assert len({request.id for request in trace.requests}) == trace.report.accepted
