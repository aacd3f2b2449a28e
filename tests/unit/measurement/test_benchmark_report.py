"""The export is a valid llm-d benchmark report and says what was measured, in its units."""

import json
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from llmd_benchmark_report import BenchmarkReportV02
from llmd_benchmark_report.schema_v0_2 import VERSION

from advisor.canonical import Json, as_json
from advisor.measurement.benchmark_report import (
    SCHEMA_VERSION,
    MeasuredEngine,
    MeasuredRun,
    benchmark_report,
    reports_of,
)
from advisor.measurement.imports import read_result
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, Rank, measured_point
from tests.fakes.tool_results import (
    aiperf,
    aiperf_record,
    guidellm,
    guidellm_benchmark,
    inference_perf,
    vllm_bench,
    vllm_bench_detailed,
    written,
)
from tests.fakes.values import DRAFTING, load_point
from tests.fakes.views import evidence

SCHEMA = json.loads(files("llmd_benchmark_report").joinpath("br_v0_2_json_schema.json").read_text())
BY_SCHEMA = jsonschema.Draft202012Validator(SCHEMA)
PHASE = {"type": "concurrency", "concurrency": 2}
RESULTS = {
    "vllm bench serve": written(vllm_bench()),
    "vllm bench serve in detail": written(vllm_bench_detailed()),
    "vllm bench serve, two runs": written(vllm_bench(), vllm_bench(max_concurrency=1)),
    "guidellm": written(guidellm(guidellm_benchmark({"type_": "constant", "rate": 0.5}))),
    "aiperf": written(aiperf([PHASE])),
    "aiperf requests": written(aiperf_record(0), aiperf_record(1)),
    "inference-perf": written(inference_perf({"concurrency": 4})),
}
GPU = MeasuredEngine(
    label="engine",
    config_hash=DRAFTING.hash,
    tool="vllm",
    tool_version="0.32.0",
    model="demo",
    device="a GPU",
    accelerators=1,
    settings=DRAFTING.overrides(),
)
RUN = MeasuredRun(
    uid="point-1",
    experiment="study-1",
    rank=Rank.OWN_ENGINE,
    tool="rooftune",
    tool_version="0.1.0",
    ended_epoch_s=1_790_000_000.5,
)
BARE = MeasuredPoint(kind=None, requests=3, failed=1, duration_s=2.0)


def valid(report: dict[str, Json]) -> BenchmarkReportV02:
    """The report as its own model reads it, after its JSON schema found nothing wrong."""
    BY_SCHEMA.validate(report)
    return BenchmarkReportV02.model_validate(report)


def test_the_schema_is_the_one_that_is_written() -> None:
    """A newer one would be another export."""
    assert SCHEMA_VERSION == VERSION == SCHEMA["properties"]["version"]["default"]


@pytest.mark.parametrize("body", RESULTS.values(), ids=RESULTS)
def test_every_imported_load_is_a_valid_report(body: bytes) -> None:
    """By the JSON schema and by the package's own model, which checks units."""
    report = read_result(body)
    found = [valid(item) for item in reports_of(report, "m1")]

    assert len(found) == len(report.points)
    assert [item.run.uid for item in found] == [f"m1-{n}" for n in range(len(found))]
    assert {item.run.eid for item in found} == {"m1"}


def test_every_load_of_a_planted_study_is_a_valid_report() -> None:
    """The engine behind each is named with its settings, hash and device."""
    trials = evidence().trials
    found = [
        valid(
            benchmark_report(
                measured_point(point),
                replace(RUN, engine=replace(GPU, settings=trial.plan.config.overrides())),
            )
        )
        for trial in trials
        for point in trial.points[:1]
    ]

    assert len(found) == sum(bool(trial.points) for trial in trials) > 1
    for item in found:
        assert item.scenario is not None
        assert item.scenario.stack is not None
        assert item.scenario.stack[0].standardized.kind == "inference_engine"


def test_what_is_read_back_is_what_was_measured() -> None:
    """Seconds, seconds per token, tokens per second; nothing is converted on the way."""
    point = measured_point(load_point(8))
    read = valid(benchmark_report(point, replace(RUN, engine=GPU)))
    performance = read.results.request_performance
    assert performance is not None
    assert performance.aggregate is not None
    told, latency, rates = (
        performance.aggregate.requests,
        performance.aggregate.latency,
        performance.aggregate.throughput,
    )
    assert told is not None
    assert latency is not None
    assert rates is not None
    assert point.ttft_s is not None

    assert (told.total, told.failures) == (32, 1)
    assert latency.time_to_first_token is not None
    assert latency.time_to_first_token.units == "s"
    assert latency.time_to_first_token.p95 == point.ttft_s.percentiles[95]
    assert latency.time_per_output_token is not None
    assert latency.time_per_output_token.units == "s/token"
    assert latency.request_latency is None, "it was not measured"
    assert rates.output_token_rate is not None
    assert (rates.output_token_rate.units, rates.output_token_rate.mean) == ("tokens/s", 222.5)
    assert rates.request_rate is not None
    assert rates.request_rate.mean == 0.75
    assert read.scenario is not None
    assert read.scenario.load is not None
    assert read.scenario.load.standardized.concurrency == 8
    assert read.run.time is not None
    assert read.run.time.end is not None
    assert read.run.time.end.timestamp() == 1_790_000_000.5


def test_what_was_not_measured_is_not_written() -> None:
    """No load section without an input length, no statistic without a mean, no empty section."""
    lengths = Distribution(percentiles={50.0: 4.0})
    report = benchmark_report(replace(BARE, prompt_tokens=lengths, ttft_s=lengths), RUN)

    valid(report)
    assert "scenario" not in report
    assert as_json(report["results"]) == {
        "request_performance": {"aggregate": {"requests": {"total": 3, "failures": 1}}}
    }


def test_gaps_between_frames_are_not_written_as_time_per_token() -> None:
    """Case S-03: the schema's inter-token latency is per token."""
    gaps = Distribution(count=3, mean=0.2)
    report = valid(benchmark_report(replace(BARE, chunk_gap_s=gaps), RUN))

    assert report.results.request_performance is not None
    assert report.results.request_performance.aggregate is not None
    assert report.results.request_performance.aggregate.latency is None


def test_a_load_that_is_not_usable_is_not_exported() -> None:
    """Its place is kept: the next load is still stage 1."""
    report = read_result(written(vllm_bench(max_concurrency=64), vllm_bench()))
    (exported,) = reports_of(report, "m1")
    read = valid(exported)

    assert read.scenario is not None
    assert read.scenario.load is not None
    assert read.scenario.load.standardized.stage == 1


def test_a_processor_is_no_accelerator() -> None:
    """The schema's class for engines wants one, so a CPU's is of the generic class."""
    on_cpu = replace(GPU, accelerators=0, device="8 threads")
    read = valid(benchmark_report(BARE, replace(RUN, engine=on_cpu)))

    assert read.scenario is not None
    assert read.scenario.stack is not None
    assert read.scenario.stack[0].standardized.kind == "generic"


def test_an_open_loop_has_a_rate_and_no_concurrency() -> None:
    """And a loop that is not known has neither."""
    lengths = Distribution(count=3, mean=5.0)
    held = replace(BARE, prompt_tokens=lengths, concurrency=4.0, rate_per_s=2.5)
    opened = valid(benchmark_report(replace(held, kind=LoopKind.OPEN), RUN))
    unknown = valid(benchmark_report(held, RUN))

    for read, rate in ((opened, 2.5), (unknown, None)):
        assert read.scenario is not None
        assert read.scenario.load is not None
        assert read.scenario.load.standardized.rate_qps == rate
        assert read.scenario.load.standardized.concurrency is None
