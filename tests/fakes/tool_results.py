"""Small result files of other load clients, with their field names and figures of our own."""

import json
from collections.abc import Mapping, Sequence

from advisor.measurement.imports import read_result
from advisor.measurement.report import Distribution, MeasuredPoint

SECRET = "SECRETWORD"


def written(*documents: Mapping[str, object]) -> bytes:
    """One JSON object a line."""
    return "\n".join(json.dumps(document) for document in documents).encode()


def vllm_bench(**changes: object) -> dict[str, object]:
    """`vllm bench serve` 0.32: four requests, two at a time."""
    return {
        "date": "20261130-120000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "small",
        "tokenizer_id": "small",
        "num_prompts": 4,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 2,
        "duration": 4.0,
        "completed": 4,
        "failed": 0,
        "total_input_tokens": 40,
        "total_output_tokens": 80,
        "request_throughput": 1.0,
        "request_goodput": None,
        "output_throughput": 20.0,
        "total_token_throughput": 30.0,
        "latencies": [1.8, 1.9, 2.1, 2.2],
        "queue_times": [0.0, 0.0, 0.0, 0.0],
        "max_output_tokens_per_s": 25.0,
        "max_concurrent_requests": 2,
        "rtfx": 0.0,
        "mean_ttft_ms": 100.0,
        "median_ttft_ms": 90.0,
        "std_ttft_ms": 20.0,
        "p99_ttft_ms": 150.0,
        "mean_tpot_ms": 100.0,
        "median_tpot_ms": 99.0,
        "std_tpot_ms": 5.0,
        "p99_tpot_ms": 110.0,
        "mean_itl_ms": 200.0,
        "median_itl_ms": 198.0,
        "std_itl_ms": 9.0,
        "p99_itl_ms": 300.0,
        "p99.9_itl_ms": 310.0,
        **changes,
    }


def vllm_bench_detailed(**changes: object) -> dict[str, object]:
    """As --save-detailed leaves it: with lengths, texts and errors of the single requests."""
    return vllm_bench(
        **{
            "input_lens": [8, 9, 11, 12],
            "output_lens": [20, 20, 20, 20],
            "ttfts": [0.08, 0.09, 0.09, 0.14],
            "itls": [[0.2] * 10] * 4,
            "start_times": [1.0, 1.0, 3.0, 3.0],
            "generated_texts": [SECRET] * 4,
            "errors": [""] * 4,
            **changes,
        }
    )


def _summary(mean: float, count: int, *, total: float | None = None) -> dict[str, object]:
    """Figures of a GuideLLM distribution whose values are near the mean."""
    names = ("p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999")
    return {
        "mean": mean,
        "median": mean,
        "mode": mean,
        "variance": 0.0,
        "std_dev": 0.1 * mean,
        "min": 0.8 * mean,
        "max": 1.2 * mean,
        "count": count,
        "total_sum": mean * count if total is None else total,
        "percentiles": {name: (0.9 + 0.02 * place) * mean for place, name in enumerate(names)},
        "pdf": None,
    }


def by_status(mean: float, count: int) -> dict[str, object]:
    """A GuideLLM metric of which only the successes have values."""
    return {
        "successful": _summary(mean, count),
        "errored": _summary(0.0, 0),
        "incomplete": _summary(0.0, 0),
        "total": _summary(mean, count),
    }


def guidellm_benchmark(strategy: Mapping[str, object], **totals: int) -> dict[str, object]:
    """One benchmark: 10 requests of 8 tokens in 20 s."""
    counts = {"successful": 10, "errored": 0, "incomplete": 0, "total": 10, **totals}
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": dict(strategy), "backend": {"model": "small"}},
        "duration": 20.0,
        "start_time": 1_790_000_000.0,
        "end_time": 1_790_000_020.0,
        "metrics": {
            "request_totals": counts,
            "request_latency": by_status(2.0, 10),
            "prompt_token_count": by_status(50.0, 10),
            "output_token_count": by_status(8.0, 10),
            "time_to_first_token_ms": by_status(600.0, 10),
            "time_per_output_token_ms": by_status(250.0, 80),
            "inter_token_latency_ms": by_status(200.0, 70),
        },
        "requests": {
            "successful": [{"request_args": SECRET, "output": SECRET}],
            "errored": [],
            "incomplete": [],
            "total": None,
        },
    }


def guidellm(*benchmarks: Mapping[str, object], version: object = 2) -> dict[str, object]:
    """A GuideLLM 0.8 report."""
    return {
        "metadata": {"version": version, "guidellm_version": "0.8.0", "platform": "here"},
        "config": {"spec": {}},
        "benchmarks": list(benchmarks),
    }


def _metric(mean: float, unit: str, count: int | None = None) -> dict[str, object]:
    spread = {f"p{p}": (0.8 + 0.004 * p) * mean for p in (1, 5, 10, 25, 50, 75, 90, 95, 99)}
    held = {"unit": unit, "avg": mean}
    if count is None:
        return held
    return {**held, **spread, "min": 0.5 * mean, "max": 2 * mean, "std": 1.0, "count": count}


def aiperf(phases: Sequence[Mapping[str, object]], **changes: object) -> dict[str, object]:
    """`profile_export_aiperf.json` of AIPerf 0.13: 12 requests of 5 tokens in 6 s."""
    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_throughput": _metric(2.0, "requests/sec"),
        "request_latency": _metric(1000.0, "ms", 12),
        "request_count": _metric(12.0, "requests"),
        "time_to_first_token": _metric(200.0, "ms", 12),
        "inter_token_latency": _metric(200.0, "ms", 12),
        "inter_chunk_latency": _metric(400.0, "ms", 24),
        "output_token_throughput": _metric(10.0, "tokens/sec"),
        "input_token_throughput": _metric(60.0, "tokens/sec"),
        "output_sequence_length": _metric(5.0, "tokens", 12),
        "input_sequence_length": _metric(30.0, "tokens", 12),
        "benchmark_duration": _metric(6.0, "sec"),
        "input_config": {"models": {"items": [{"name": "small"}]}, "phases": list(phases)},
        "run_info": {"cli_command": f"aiperf --extra {SECRET}"},
        "was_cancelled": False,
        "is_complete": True,
        "start_time": "2026-11-30T12:00:00",
        **changes,
    }


def aiperf_record(
    number: int, *, phase: str = "profiling", failed: bool = False
) -> dict[str, object]:
    """A line of `profile_export.jsonl`: a second each, one after another."""
    begun = 1_790_000_000_000_000_000 + number * 1_000_000_000
    metrics = {
        "time_to_first_token": {"value": 200.0, "unit": "ms"},
        "request_latency": {"value": 1000.0, "unit": "ms"},
        "inter_token_latency": {"value": 200.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [300.0, 500.0], "unit": "ms"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
        "input_sequence_length": {"value": 30, "unit": "tokens"},
    }
    return {
        "metadata": {
            "request_start_ns": begun,
            "request_end_ns": begun + 1_000_000_000,
            "benchmark_phase": phase,
        },
        "metrics": {} if failed else metrics,
        "error": {"message": SECRET} if failed else None,
    }


def _stage_figures(mean: float, minimum: float | None = None) -> dict[str, float]:
    return {
        "mean": mean,
        "min": 0.5 * mean if minimum is None else minimum,
        "max": 2 * mean,
        "p0.1": 0.6 * mean,
        "p10": 0.7 * mean,
        "median": 0.9 * mean,
        "p99": 1.8 * mean,
    }


def inference_perf(
    load: Mapping[str, object], *, failed: int = 0, normalised_minimum: float = 0.01
) -> dict[str, object]:
    """`stage_0_lifecycle_metrics.json` of inference-perf 0.7: 20 successes in 10 s."""
    return {
        "benchmark_time_seconds": 10.0,
        "load_summary": {
            "count": 20 + failed,
            "schedule_delay": {**_stage_figures(0.001), "min": -0.01},
            **load,
        },
        "successes": {
            "count": 20,
            "latency": {
                "request_latency": _stage_figures(2.0),
                "normalized_time_per_output_token": _stage_figures(0.1, normalised_minimum),
                "time_per_output_token": _stage_figures(0.08),
                "time_to_first_token": _stage_figures(0.3),
                "inter_token_latency": _stage_figures(0.16),
            },
            "throughput": {
                "input_tokens_per_sec": 400.0,
                "output_tokens_per_sec": 40.0,
                "total_tokens_per_sec": 440.0,
                "requests_per_sec": 2.0,
            },
            "prompt_tokens": {"total": 4000.0, **_stage_figures(200.0)},
            "output_tokens": {"total": 400.0, **_stage_figures(20.0)},
            "client_fallback_requests": {"prompt": 0, "output": 3},
        },
        "failures": {"count": failed, "request_latency": None, "by_label": {SECRET: failed}},
    }


def without(stage: dict[str, object], what: str) -> dict[str, object]:
    """A stage as releases before 0.7 wrote it: without its duration, and without what is named."""
    successes = stage["successes"]
    assert isinstance(successes, dict)
    cut: dict[str, object] = {"throughput": {}} if what == "rates" else {}
    dropped = {"benchmark_time_seconds", "failures"}
    kept = {name: part for name, part in stage.items() if name not in dropped}
    return {**kept, "successes": {**successes, **cut}}


def only(body: bytes) -> MeasuredPoint:
    """The one load of a result."""
    (point,) = read_result(body).points
    return point


def mean(of: Distribution | None) -> float:
    """The mean of figures that must be there."""
    assert of is not None
    assert of.mean is not None
    return of.mean
