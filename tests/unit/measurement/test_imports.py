"""Results of other load clients: what every import has in common."""

from dataclasses import fields
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.measurement.imports import TOOLS, read_result
from advisor.measurement.report import MeasuredPoint
from tests.fakes.tool_results import (
    SECRET,
    aiperf,
    aiperf_record,
    by_status,
    guidellm,
    guidellm_benchmark,
    inference_perf,
    mean,
    only,
    vllm_bench,
    vllm_bench_detailed,
    without,
    written,
)

CLOSED_PHASE = {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 2}
WARM_UP = {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 9}
WHOLE = {
    "vllm bench serve": written(vllm_bench_detailed()),
    "guidellm": written(guidellm(guidellm_benchmark({"type_": "synchronous"}))),
    "aiperf": written(aiperf([WARM_UP, CLOSED_PHASE])),
    "inference-perf": written(inference_perf({"requested_rate": 2.5})),
}


@pytest.mark.parametrize("tool", WHOLE)
def test_a_result_is_of_the_lowest_rank_and_of_its_tool(tool: str) -> None:
    """The tool is told by what a file holds; its name is not known here."""
    report = read_result(WHOLE[tool])

    assert report.tool == tool
    assert report.rank.source is Source.IMPORTED
    assert report.loads == ()


@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
def test_no_text_of_a_request_is_kept(body: bytes) -> None:
    """Detailed files hold prompts, answers, errors and command lines."""
    assert SECRET not in str(read_result(body))


def test_what_a_tool_does_not_state_stays_unknown() -> None:
    """A missing metric is None, not 0; end-to-end times that are stated are taken as they are."""
    stated = only(written(vllm_bench(mean_e2el_ms=1900.0, p95_e2el_ms=2200.0)))
    bare = only(written(aiperf([CLOSED_PHASE], input_sequence_length=None)))
    records = [aiperf_record(number) for number in range(2)]
    for record in records:
        metrics = record["metrics"]
        assert isinstance(metrics, dict)
        del metrics["inter_chunk_latency"]
    benchmark = guidellm_benchmark({"type_": "synchronous"})
    metrics = benchmark["metrics"]
    assert isinstance(metrics, dict)
    metrics["time_to_first_token_ms"] = by_status(0.0, 0)
    metrics.pop("prompt_token_count")
    guide = only(written(guidellm(benchmark)))

    assert stated.e2e_s is not None
    assert mean(stated.e2e_s) == pytest.approx(1.9)
    assert stated.e2e_s.percentiles == pytest.approx({95.0: 2.2})
    assert read_result(written(vllm_bench(model_id=None))).model is None
    assert bare.prompt_tokens is None
    assert only(written(*records)).chunk_gap_s is None
    assert (guide.ttft_s, guide.prompt_tokens, guide.input_tokens_per_s) == (None, None, None)


@pytest.mark.parametrize("failed, seconds", [(4, 1.0), (-1, 1.0), (0, -1.0)])
def test_a_point_cannot_be_what_no_load_is(failed: int, seconds: float) -> None:
    """More failures than requests, or an end before the begin."""
    with pytest.raises(InvalidInput, match=r"point\."):
        MeasuredPoint(kind=None, requests=3, failed=failed, duration_s=seconds)


@pytest.mark.parametrize(
    "body, named",
    [
        (b"", "is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"a": 1}', "no tool that is known"),
        (b"{" + b'"a": {' * 60_000, "nested too deep|not a JSON object"),
        (b"[" * 60_000, "nested too deep"),
        (written(vllm_bench()).replace(b"4.0", b"NaN"), "holds NaN"),
        (written(vllm_bench()).replace(b"4.0", b"1e999"), "beyond all bounds"),
        (written(vllm_bench(duration="4")), "duration: is not a number"),
        (written(vllm_bench(duration=-1.0)), "duration: is below 0"),
        (written(vllm_bench(completed=1.5)), "completed: is not a whole number"),
        (written(vllm_bench(mean_ttft_ms=True)), "mean_ttft_ms: is not a number"),
        (written(vllm_bench(mean_ttft_ms=10**400)), "mean_ttft_ms: is not a finite number"),
        (written(vllm_bench(median_ttft_ms=151.0)), "higher percentile"),
        (written(vllm_bench(model_id="x" * 300)), "model_id: is not a name"),
        (written(vllm_bench(total_output_tokens=None)), "generate text"),
        (written(guidellm(version=1)), r"metadata\.version: .*\(2\)"),
        (written(guidellm()), "benchmarks: holds no finished benchmark"),
        (written(aiperf([], schema_version="2.0")), r"schema_version: .*\(1\.x\)"),
        (written(guidellm(), guidellm()), "holds 2 results"),
        (written(vllm_bench(), {"a": 1}), "no tool that is known"),
        (written(vllm_bench(duration=None)), "duration: is missing"),
        (written(vllm_bench(completed=None)), "completed: is missing"),
        (written(vllm_bench(latencies=5)), "latencies: is not a list"),
        (written(vllm_bench(latencies=[1.0, None])), r"latencies\.1: is missing"),
        (written({**guidellm(), "benchmarks": [{"duration": 1.0}]}), "metrics: is missing"),
        (written({**inference_perf({}), "failures": 3}), "failures: is not an object"),
        (written({**inference_perf({}), "failures": {}}), r"failures\.count: is missing"),
        (written(without(inference_perf({}), "rates")), "and so is a rate"),
        (written(aiperf([], benchmark_duration=None)), "benchmark_duration: is missing"),
        (written(aiperf_record(0, phase="warmup")), "no request is of the profiling phase"),
    ],
)
def test_a_bad_file_is_refused_by_field_with_a_remedy(body: bytes, named: str) -> None:
    """What is wrong is named; nothing of the file is quoted."""
    with pytest.raises(InvalidInput, match=named) as refused:
        read_result(body)

    assert SECRET not in str(refused.value)


def test_a_tool_that_is_not_known_is_answered_with_those_that_are() -> None:
    """The person sees what to send instead."""
    with pytest.raises(InvalidInput) as refused:
        read_result(b'{"results": []}')

    for name in ("vllm bench serve", "GuideLLM", "AIPerf", "inference-perf"):
        assert name in str(refused.value)


def test_the_page_on_imports_names_every_tool_and_time() -> None:
    """Whoever looks for a definition finds it."""
    page = (Path(__file__).parents[3] / "docs" / "imports.md").read_text("utf-8")
    times = [item.name for item in fields(MeasuredPoint) if item.name.endswith("_s")]
    ours = {"duration_s", "rate_per_s", "requests_per_s"}
    ours |= {"output_tokens_per_s", "input_tokens_per_s"}

    assert [tool.name for tool in TOOLS if tool.name.casefold() not in page.casefold()] == []
    assert [name for name in times if name not in ours and f"`{name}`" not in page] == []


def test_a_file_beyond_the_limit_is_refused_before_it_is_parsed() -> None:
    """The remedy is to leave the single requests out."""
    with pytest.raises(InvalidInput, match="--save-detailed"):
        read_result(b" " * (33 << 20))


def test_results_that_others_published_are_read(shared: Path) -> None:
    """Files of vLLM, GuideLLM and inference-perf as their tools wrote them."""
    folder = shared / "data" / "traffic" / "formats"
    bench = only((folder / "vllm_bench_serve_result_405b_h100_trimmed.json").read_bytes())
    guide = read_result((folder / "guidellm_report_v2_mock_model.json").read_bytes())
    stage = only((folder / "inference_perf_stage_lifecycle_metrics.json").read_bytes())

    assert mean(bench.ttft_s) == pytest.approx(1.48639, abs=1e-4)
    assert (bench.requests, bench.rate_per_s) == (1000, 16.0)
    assert [point.rate_per_s for point in guide.points] == [2.0, 4.0]
    assert mean(guide.points[0].tpot_s) == pytest.approx(1.15085e-3, rel=1e-4)
    assert mean(guide.points[0].normalised_latency_s) == pytest.approx(2.44214e-3, rel=1e-4)
    # (end to end - TTFT) / (tokens - 1): the stated figures are of one definition.
    told = mean(guide.points[0].e2e_s) - mean(guide.points[0].ttft_s)
    assert mean(guide.points[0].tpot_s) == pytest.approx(told / 7, rel=0.05)
    assert mean(stage.tpot_s) == pytest.approx(7.516e-3, rel=1e-3)
    assert stage.duration_s == pytest.approx(5531 / 91.3573, rel=1e-4)
    with pytest.raises(InvalidInput, match="no tool that is known"):
        read_result((folder / "inference_perf_stage_prometheus_metrics.json").read_bytes())
