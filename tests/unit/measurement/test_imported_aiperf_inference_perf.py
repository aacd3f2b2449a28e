"""Results of AIPerf and inference-perf, in our units and under our definitions."""

from collections.abc import Mapping

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.imports import read_result
from advisor.measurement.records import LoopKind
from tests.fakes.tool_results import (
    aiperf,
    aiperf_record,
    inference_perf,
    mean,
    only,
    without,
    written,
)

CLOSED_PHASE = {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 2}
WARM_UP = {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 9}


def test_aiperfs_inter_token_latency_is_time_per_token() -> None:
    """Its gaps between chunks have a name of their own; warm-up phases set no load."""
    report = read_result(written(aiperf([WARM_UP, CLOSED_PHASE])))
    point = report.points[0]

    assert (report.tool_version, report.model) == ("0.13.0", "small")
    assert (point.kind, point.concurrency) == (LoopKind.CLOSED, 2)
    assert mean(point.tpot_s) == pytest.approx(0.2)
    assert mean(point.chunk_gap_s) == pytest.approx(0.4)
    assert mean(point.ttft_s) == pytest.approx(0.2)
    assert point.duration_s == pytest.approx(6.0)
    assert point.usable


@pytest.mark.parametrize(
    "phases, kind, rate",
    [
        ([{"type": "poisson", "rate": 3.0}], LoopKind.OPEN, 3.0),
        ([{"type": "gamma", "rate": 3.0, "concurrency": 5}], LoopKind.OPEN, 3.0),
        ([{"type": "fixed_schedule"}], LoopKind.OPEN, None),
        ([{"type": "user_centric", "rate": 3.0}], None, None),
        ([CLOSED_PHASE, CLOSED_PHASE], None, None),
        ([], None, None),
    ],
)
def test_an_aiperf_phase_is_a_loop(
    phases: list[Mapping[str, object]], kind: LoopKind | None, rate: float | None
) -> None:
    """Of several phases together no one load can be named."""
    point = only(written(aiperf(phases)))

    assert (point.kind, point.concurrency, point.rate_per_s) == (kind, None, rate)


def test_an_aiperf_unit_is_believed_and_an_unknown_one_refused() -> None:
    """A second is a second whatever the field is called."""
    seconds = only(written(aiperf([CLOSED_PHASE], benchmark_duration={"unit": "ms", "avg": 6000})))

    assert seconds.duration_s == pytest.approx(6.0)
    with pytest.raises(InvalidInput, match=r"time_to_first_token\.unit"):
        read_result(written(aiperf([CLOSED_PHASE], time_to_first_token={"unit": "h", "avg": 1})))


def test_an_aiperf_run_that_was_cut_short_is_not_usable() -> None:
    """It says so itself."""
    assert not only(written(aiperf([CLOSED_PHASE], is_complete=False))).usable
    assert not only(written(aiperf([CLOSED_PHASE], was_cancelled=True))).usable


def test_single_aiperf_requests_are_summed_up_without_their_warm_up() -> None:
    """Three profiled seconds, one of them a failure; how they were submitted is not said."""
    records = [
        aiperf_record(0, phase="warmup"),
        aiperf_record(1),
        aiperf_record(2, failed=True),
        aiperf_record(3),
    ]
    report = read_result(written(*records))
    point = report.points[0]

    assert report.started_epoch_s == pytest.approx(1_790_000_001.0)
    assert (point.kind, point.requests, point.failed, point.usable) == (None, 3, 1, False)
    assert point.duration_s == pytest.approx(3.0)
    assert mean(point.tpot_s) == pytest.approx(0.2)
    assert point.chunk_gap_s is not None
    assert point.chunk_gap_s.count == 4
    assert mean(point.chunk_gap_s) == pytest.approx(0.4)
    assert point.output_tokens_per_s == pytest.approx(10 / 3)


def test_inference_perf_is_in_seconds_and_names_its_percentiles() -> None:
    """`median` and `p0.1` are percentiles; a schedule delay below 0 is not a time of a request."""
    point = only(written(inference_perf({"requested_rate": 2.5})))

    assert (point.kind, point.rate_per_s) == (LoopKind.OPEN, 2.5)
    assert mean(point.tpot_s) == pytest.approx(0.08)
    assert mean(point.chunk_gap_s) == pytest.approx(0.16)
    assert mean(point.normalised_latency_s) == pytest.approx(0.1)
    assert point.ttft_s is not None
    assert point.ttft_s.percentiles == pytest.approx({0.1: 0.18, 10: 0.21, 50: 0.27, 99: 0.54})
    assert any("3 answers counted by the client" in remark for remark in point.remarks)


def test_an_inference_perf_stage_with_a_concurrency_is_a_closed_loop() -> None:
    """Its rate bounds how fast it may send and is no schedule; a summary says neither."""
    closed = only(written(inference_perf({"concurrency": 4, "requested_rate": 900.0})))
    summary = only(written(inference_perf({})))

    assert (closed.kind, closed.concurrency, closed.rate_per_s) == (LoopKind.CLOSED, 4, None)
    assert (summary.kind, summary.concurrency, summary.rate_per_s) == (None, None, None)


def test_an_older_inference_perf_stage_is_read_by_its_rate() -> None:
    """Without a duration and a count of failures these follow from the successes."""
    point = only(written(without(inference_perf({"count": 22}), "failures")))

    assert (point.requests, point.failed) == (22, 2)
    assert point.duration_s == pytest.approx(20 / 2.0)
    assert any("duration computed" in remark for remark in point.remarks)


def test_answers_without_tokens_do_not_pull_the_normalised_latency() -> None:
    """The tool counts them as 0 s, so its figures are of no use."""
    point = only(written(inference_perf({}, normalised_minimum=0.0)))

    assert point.normalised_latency_s is None
    assert any("normalised latency left out" in remark for remark in point.remarks)
