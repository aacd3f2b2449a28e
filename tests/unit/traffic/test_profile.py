"""The shape of traffic."""

from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.facts import KINDS, Facts, facts_of
from advisor.traffic.figures import CountSource, Fit
from advisor.traffic.reading import read_trace
from advisor.traffic.statistics.arrivals import (
    arrivals,
    burstiness,
    diurnal,
    fano,
    nice_window,
    peaks,
    tick,
)
from advisor.traffic.statistics.concurrency import concurrency
from advisor.traffic.statistics.language import UNDETERMINED, LanguageSample, language_of
from advisor.traffic.statistics.lengths import joint_lengths
from advisor.traffic.statistics.profile import duplicates, fit, fits, mix, sessions
from advisor.traffic.summary import TrafficTally, summarise
from tests.unit.traffic.figures import columns_of
from tests.unit.traffic.rows import columns, lengths, texts

HOUR_S = 3600.0


def too_long() -> Facts:
    """Case T-18: prompts 512, 3,900, 4,000, 9,000 and their outputs, of which two fit at 4,096."""
    return columns_of([512, 3_900, 4_000, 9_000], [128, 196, 200, 50])


def test_what_does_not_fit_is_said_in_requests_and_in_tokens() -> None:
    """Case T-18: half of the requests, three quarters of the prompt tokens."""
    found = fit(too_long(), 4_096)

    assert (found.requests, found.fitting, found.prompt_too_long) == (4, 2, 1)
    assert (found.prompt_tokens, found.prompt_tokens - found.prompt_tokens_fitting) == (
        17_412,
        13_000,
    )
    assert 1 - found.prompt_tokens_fitting / found.prompt_tokens == pytest.approx(0.747, abs=5e-4)
    assert found.needed_max_model_len == 9_050


def test_the_file_of_the_case_says_the_same(shared: Path) -> None:
    """Case T-18, from the upload to the summary."""
    with (shared / "cases/t18_too_long.csv").open("rb") as stream:
        trace = read_trace(stream, filename="t18_too_long.csv")
    found = summarise(trace.requests, None, block_size=16, report=trace.report, limits=(4_096,))
    (at,) = (item for item in found.fits if item.max_model_len == 4_096)

    assert (at.fitting, at.requests, at.needed_max_model_len) == (2, 4, 9_050)
    assert at.prompt_tokens - at.prompt_tokens_fitting == 13_000


def test_counts_of_streamed_rows_without_usage_are_estimated(shared: Path) -> None:
    """Case T-16: zero and absent usage is missing, and counted from the text where it can be."""
    with (shared / "cases/t16_stream_usage_zero.jsonl").open("rb") as stream:
        requests = read_trace(stream, filename="t16.jsonl").requests
    bare = summarise(requests, None, block_size=16)
    counted = summarise(
        requests,
        columns([range(100)] * len(requests), [range(20)] * len(requests)),
        block_size=16,
    )

    assert bare.profile is not None
    assert bare.profile.output_counts.missing >= 2
    assert bare.overall.output_tokens is None or bare.overall.output_tokens.mean > 0
    assert counted.profile is not None
    assert counted.profile.output_counts.estimated == len(requests)
    assert counted.count_source is CountSource.TOKENISED
    assert "reported prompt counts differ" in counted.warnings[0]


def test_an_unknown_output_counts_with_its_limit_and_else_as_one() -> None:
    """So does an output of 0: engines refuse to say nothing."""
    facts = columns_of([10, 10, 10, -1], [-1, -1, 0, 5], max_tokens=np.array([30, -1, -1, -1]))

    assert fit(facts, 40).fitting == 3
    assert fit(facts, 39).fitting == 2
    assert fit(facts, 11).fitting == 2
    assert fit(facts, 10) == Fit(
        max_model_len=10,
        requests=3,
        fitting=0,
        prompt_too_long=3,
        prompt_tokens=30,
        prompt_tokens_fitting=0,
        needed_max_model_len=40,
    )


def test_limits_that_say_something_are_shown() -> None:
    """From the first power of two that serves one to the first that serves all, and those asked."""
    shown = fits(too_long(), (9_050,))

    assert [item.max_model_len for item in shown] == [1_024, 2_048, 4_096, 8_192, 9_050, 16_384]
    assert fits(columns_of([-1], [5]), (64,)) == ()


def test_a_limit_is_positive() -> None:
    """Nothing fits into nothing."""
    with pytest.raises(InvalidInput, match="max_model_len"):
        fit(too_long(), 0)


def test_joint_lengths_are_counted_in_bins_of_a_factor_of_two() -> None:
    """Zero has a bin of its own; who lacks a length is in none."""
    found = joint_lengths(columns_of([0, 1, 3, 4, -1], [8, 9, 15, 16, 7]))

    assert found is not None
    assert list(found.prompt_edges) == [0, 1, 2, 4, 8]
    assert list(found.output_edges) == [8, 16, 32]
    assert [list(row) for row in found.counts] == [[1, 0], [1, 0], [1, 0], [0, 1]]
    assert found.correlation == pytest.approx(1)
    assert joint_lengths(columns_of([1, -1], [-1, 1])) is None


def test_lengths_that_do_not_vary_have_no_correlation() -> None:
    """None, not NaN."""
    found = joint_lengths(columns_of([5, 5], [1, 2]))

    assert found is not None
    assert found.correlation is None


def test_poisson_arrivals_have_a_fano_factor_of_one_and_bursts_more() -> None:
    """At windows of one and of ten seconds."""
    rng = np.random.default_rng(1)
    even = np.cumsum(rng.exponential(0.1, 20_000))
    bursts = np.repeat(np.cumsum(rng.exponential(4, 500)), 40)

    for window_s in (1.0, 10.0):
        assert fano(even - even[0], window_s) == pytest.approx(1, abs=0.25)
        assert (fano(bursts - bursts[0], window_s) or 0) > 10
    assert fano(even, HOUR_S) is None


def test_a_clock_that_ticks_is_noticed() -> None:
    """Arrivals cut to three seconds share a tick; the same arrivals in full do not."""
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.exponential(0.3, 3_000))
    times -= times[0]

    assert tick(np.floor(times / 3) * 3) == pytest.approx(3)
    assert tick(times) is None
    # Batches at times of their own are no clock.
    assert tick(np.sort(np.repeat(times[::10], 10))) is None


def test_a_ticking_clock_is_warned_of() -> None:
    """Its gaps say little."""
    times = np.floor(np.cumsum(np.full(400, 0.3)) / 3) * 3
    rows = [lengths(place, 5, 5, arrival_s=float(at)) for place, at in enumerate(times)]
    found = summarise(rows, None, block_size=16)

    assert "ticks every 3 s" in found.warnings[0]
    assert burstiness(times) is not None


def test_the_busiest_stretch_of_each_length_is_found() -> None:
    """Twenty at once after a minute."""
    times = np.sort(np.concatenate([np.arange(0.0, 121, 1), np.full(20, 60.5)]))
    second, ten, minute = peaks(times)

    assert (second.window_s, second.start_s, second.requests) == (1, 60.0, 21)
    assert (ten.requests, minute.requests) == (30, 80)
    assert minute.rate_per_s == pytest.approx(80 / 60)


def test_hours_of_the_day_need_a_start_and_most_of_a_day() -> None:
    """One an hour from one o'clock on."""
    times = np.arange(0, 22 * HOUR_S, HOUR_S)
    found = diurnal(times, HOUR_S)

    assert found is not None
    assert (found[0], found[1], found[22], sum(found)) == (0, 1, 1, 22)
    assert diurnal(times, None) is None
    assert diurnal(times[:5], 0.0) is None


@pytest.mark.parametrize("span_s", [0.5, 61.0, HOUR_S, 40 * 86_400.0, 4e8])
def test_pictures_over_time_have_few_points(span_s: float) -> None:
    """At most 120, in windows that people know."""
    assert span_s / nice_window(span_s) <= 120


def test_requests_in_flight_are_swept_not_sampled() -> None:
    """Two overlap for one of three seconds; ends at a start do not overlap."""
    facts = columns_of([1, 1, 1], [1, 1, 1], duration_s=np.array([2.0, 1.0, 1.0]))
    found = concurrency(facts)

    assert found is not None
    assert found.peak == 2
    assert found.mean == pytest.approx(4 / 3)
    assert found.known == 3
    assert found.timeline.values == pytest.approx((1, 2, 1))
    assert concurrency(columns_of([1], [1])) is None


def test_concurrency_obeys_littles_law() -> None:
    """Mean in flight is the rate of arrival times the mean duration."""
    rng = np.random.default_rng(3)
    durations = rng.exponential(5, 2_000)
    found = concurrency(columns_of(np.ones(2_000), np.ones(2_000), duration_s=durations))

    assert found is not None
    assert found.mean == pytest.approx(durations.mean(), rel=0.02)
    assert found.p95 >= found.mean
    assert sum(found.timeline.values) / len(found.timeline.values) == pytest.approx(5, rel=0.1)


def test_sessions_have_turns_and_pauses() -> None:
    """Whatever else arrives in between."""
    facts = columns_of([1] * 5, [1] * 5, session=np.array([0, 1, 0, -1, 0], dtype=np.int32))
    found = sessions(facts)

    assert found is not None
    assert (found.sessions, found.requests) == (2, 4)
    assert (found.turns.max, found.turns.mean) == (3, 2)
    assert found.think_s is not None
    assert (found.think_s.count, found.think_s.mean) == (2, 2)
    assert sessions(columns_of([1], [1])) is None


def test_equal_prompts_are_counted() -> None:
    """Only requests with text."""
    facts = columns_of(
        [1] * 5,
        [1] * 5,
        content=np.array([7, 7, 7, 8, 9], dtype=np.uint64),
        kind=np.array([0, 0, 0, 0, 2], dtype=np.int8),
    )
    found = duplicates(facts)

    assert found is not None
    assert (found.requests, found.distinct, found.repeated, found.most_often) == (4, 2, 3, 3)
    assert duplicates(columns_of([1], [1])) is None


def test_sampling_is_mixed_by_temperature() -> None:
    """Not said is not 0."""
    found = mix(
        columns_of([1] * 3, [1] * 3, temperature=np.array([0, 0.7, np.nan])), LanguageSample()
    )

    assert (found.greedy, found.sampled, found.unknown_temperature) == (1, 1, 1)
    assert found.temperature is not None
    assert found.temperature.mean == pytest.approx(0.35)
    assert found.read == 0


def test_languages_are_told_apart_and_short_texts_are_not() -> None:
    """Three words are a guess."""
    assert language_of("Please summarise the following report in three short sentences.") == "en"
    assert language_of("Bitte fasse den folgenden Bericht in drei kurzen Sätzen zusammen.") == "de"
    assert language_of("ok then") == UNDETERMINED


def test_a_sample_of_languages_is_bounded_and_does_not_depend_on_parts() -> None:
    """The same requests are read, in one part or in ten."""
    rows = [row for place in range(60) for row in texts(1, arrival_s=float(place))]

    def told(size: int) -> dict[str, int]:
        sample = LanguageSample(lambda text: text[:2], size=20)
        for start in range(0, 60, size):
            part = rows[start : start + size]
            sample.add(part, facts_of(part, None))
        return sample.languages

    assert told(60) == told(6) == {"te": 20}


def test_every_missing_figure_has_its_reason() -> None:
    """And none that is there has one."""
    bare = summarise(texts(2), None, block_size=16)
    full = columns_of(
        [5, 6],
        [7, 8],
        duration_s=np.array([1.0, 1.0]),
        session=np.zeros(2, dtype=np.int32),
        kind=np.full(2, KINDS.index(texts(1)[0].kind), dtype=np.int8),
    )
    tally = TrafficTally(block_size=16)
    tally.add_facts(full)
    said = tally.finish()

    assert bare.profile is not None
    for name in ("joint_lengths", "rate", "burstiness", "diurnal", "concurrency", "sessions"):
        assert getattr(bare.profile, name) is None
        assert bare.unmeasurable[name]
    assert bare.profile.duplicates is not None
    assert set(said.unmeasurable) == {"prefix_sharing", "lookup", "burstiness", "diurnal"}


def test_a_large_upload_has_intervals_like_a_small_one() -> None:
    """Above a size they are computed, not resampled."""
    rng = np.random.default_rng(4)
    few = rng.integers(1, 1_500, 15_000)
    many = np.concatenate([few, [3_000 + place for place in range(1_000)]])

    def bound(outputs: np.ndarray) -> tuple[float, float, float]:
        tally = TrafficTally(block_size=16)
        tally.add_facts(columns_of(np.ones(len(outputs)), outputs))
        found = tally.finish().static_speedup
        assert found is not None
        return found.low, found.value, found.high

    low, value, high = bound(many)
    other = bound(many // 2)

    assert low < value < high
    assert (high - low) == pytest.approx(other[2] - other[0], rel=0.2)


def test_requests_and_columns_do_not_mix() -> None:
    """An upload is one or the other."""
    tally = TrafficTally(block_size=16)
    tally.add(texts(1), None)

    with pytest.raises(InvalidInput, match="facts"):
        tally.add_facts(columns_of([1], [1]))


def test_arrivals_of_columns_are_those_of_lists() -> None:
    """Either is taken."""
    assert arrivals(np.array([0.0, 1.0, 1.0])) == arrivals([0, 1, 1])
