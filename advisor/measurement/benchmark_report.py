"""Measurements in the llm-d Benchmark Report schema, version 0.2.1: one report per load.

Only what was measured is written. A statistic needs a mean there, so one without a mean is left
out; so are gaps between frames, which are not time per token (case S-03), where the schema wants
seconds per token.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from advisor.canonical import Json, as_json
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport, Rank

SCHEMA_VERSION = "0.2.1"
COUNT, SECONDS, S_PER_TOKEN = "count", "s", "s/token"
TOKENS_PER_S, QUERIES_PER_S = "tokens/s", "queries/s"
UNKNOWN = "unknown"
PERCENTILES: Mapping[float, str] = {
    0.1: "p0p1",
    1.0: "p1",
    5.0: "p5",
    10.0: "p10",
    25.0: "p25",
    50.0: "p50",
    75.0: "p75",
    90.0: "p90",
    95.0: "p95",
    99.0: "p99",
    99.9: "p99p9",
}
# The names that the schema's own readers use for these tools.
TOOL_NAMES: Mapping[str, str] = {"vllm bench serve": "vllm-benchmark"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEngine:
    """The engine behind a load, where it is known; `accelerators` is 0 on a CPU."""

    label: str
    config_hash: str
    tool: str
    tool_version: str | None
    model: str
    device: str
    accelerators: int
    settings: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What surrounds one load: `experiment` is common to those of one measurement or study.

    `stage` counts loads from 0. `remarks` hold beside those of the load.
    """

    uid: str
    experiment: str
    rank: Rank
    tool: str
    tool_version: str | None
    stage: int = 0
    began_epoch_s: float | None = None
    ended_epoch_s: float | None = None
    remarks: tuple[str, ...] = ()
    engine: MeasuredEngine | None = None
    keywords: tuple[str, ...] = field(default=())


def reports_of(report: MeasurementReport, experiment: str) -> tuple[dict[str, Json], ...]:
    """A benchmark report for each usable load of a measurement, in order; `stage` is its place."""
    only = len(report.points) == 1
    return tuple(
        benchmark_report(
            point,
            MeasuredRun(
                uid=f"{experiment}-{stage}",
                experiment=experiment,
                rank=report.rank,
                tool=report.tool,
                tool_version=report.tool_version,
                stage=stage,
                began_epoch_s=report.started_epoch_s if only else None,
                remarks=report.remarks,
            ),
        )
        for stage, point in enumerate(report.points)
        if point.usable
    )


def benchmark_report(point: MeasuredPoint, run: MeasuredRun) -> dict[str, Json]:
    """One load as the JSON value of a benchmark report."""
    load = _load(point, run)
    stack = None if run.engine is None else [_component(run.engine)]
    return {
        "version": SCHEMA_VERSION,
        "run": _run(point, run),
        **_known(scenario=_known(stack=stack, load=load) or None),
        "results": {
            "request_performance": {
                "aggregate": _known(
                    requests=_requests(point),
                    latency=_latency(point) or None,
                    throughput=_throughput(point) or None,
                )
            }
        },
    }


def _known(**values: Json) -> dict[str, Json]:
    """The values that are not None: the schema has no place for an unknown."""
    return {name: value for name, value in values.items() if value is not None}


def _run(point: MeasuredPoint, run: MeasuredRun) -> dict[str, Json]:
    remarks = (*run.remarks, *point.remarks)
    return {
        "uid": run.uid,
        "eid": run.experiment,
        "time": _known(
            start=_moment(run.began_epoch_s),
            end=_moment(run.ended_epoch_s),
            duration=f"PT{point.duration_s:.6f}S",
        ),
        **_known(description="; ".join(remarks) or None),
        "keywords": [f"evidence: {run.rank.source.value}", *run.keywords],
    }


def _moment(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC).isoformat()


def _component(engine: MeasuredEngine) -> Json:
    """An accelerator's engine by the schema's class for it; on a CPU that class has no place."""
    common: dict[str, Json] = {
        "tool": engine.tool,
        "tool_version": engine.tool_version or UNKNOWN,
        "model": {"name": engine.model},
    }
    standardized: dict[str, Json] = {"kind": "generic", **common, "device": engine.device}
    if engine.accelerators:
        standardized = {
            "kind": "inference_engine",
            **common,
            "role": "replica",
            "replicas": 1,
            "accelerator": {
                "model": engine.device,
                "count": engine.accelerators,
                "parallelism": {"tp": engine.accelerators},
            },
        }
    return {
        "metadata": {"label": engine.label, "cfg_id": engine.config_hash},
        "standardized": standardized,
        "native": {"args": as_json(engine.settings, "settings")},
    }


def _load(point: MeasuredPoint, run: MeasuredRun) -> Json:
    """What was asked of the engine; the schema wants an input length, so None without one."""
    lengths = _length(point.prompt_tokens)
    if lengths is None:
        return None
    return {
        "metadata": {},
        "standardized": {
            "tool": TOOL_NAMES.get(run.tool, run.tool),
            "tool_version": run.tool_version or UNKNOWN,
            "source": UNKNOWN if run.rank is Rank.IMPORTED else "sampled",
            "stage": run.stage,
            "input_seq_len": lengths,
            **_known(rate_qps=_rate(point), concurrency=_concurrency(point)),
        },
        "native": {},
    }


def _rate(point: MeasuredPoint) -> float | None:
    return point.rate_per_s if point.kind is LoopKind.OPEN and point.rate_per_s else None


def _concurrency(point: MeasuredPoint) -> int | None:
    held = point.concurrency
    known = point.kind is LoopKind.CLOSED and held is not None and held >= 1
    return int(held) if known and held is not None else None


def _length(of: Distribution | None) -> Json:
    if of is None or of.mean is None:
        return None
    longest = None if of.maximum is None else max(1, round(of.maximum))
    return {
        "distribution": "other",
        "value": of.mean,
        **_known(std_dev=of.sd, min=None if of.minimum is None else round(of.minimum), max=longest),
    }


def _requests(point: MeasuredPoint) -> Json:
    return {
        "total": point.requests,
        "failures": point.failed,
        **_known(
            input_length=_statistics(point.prompt_tokens, COUNT),
            output_length=_statistics(point.output_tokens, COUNT),
        ),
    }


def _latency(point: MeasuredPoint) -> dict[str, Json]:
    return _known(
        time_to_first_token=_statistics(point.ttft_s, SECONDS),
        normalized_time_per_output_token=_statistics(point.normalised_latency_s, S_PER_TOKEN),
        time_per_output_token=_statistics(point.tpot_s, S_PER_TOKEN),
        request_latency=_statistics(point.e2e_s, SECONDS),
    )


def _throughput(point: MeasuredPoint) -> dict[str, Json]:
    taken, made = point.input_tokens_per_s, point.output_tokens_per_s
    both = None if taken is None or made is None else taken + made
    return _known(
        input_token_rate=_mean(taken, TOKENS_PER_S),
        output_token_rate=_mean(made, TOKENS_PER_S),
        total_token_rate=_mean(both, TOKENS_PER_S),
        request_rate=_mean(point.requests_per_s, QUERIES_PER_S),
    )


def _mean(value: float | None, units: str) -> Json:
    return None if value is None else {"units": units, "mean": value}


def _statistics(of: Distribution | None, units: str) -> Json:
    if of is None or of.mean is None:
        return None
    named = {PERCENTILES[p]: value for p, value in of.percentiles.items() if p in PERCENTILES}
    return {
        "units": units,
        "mean": of.mean,
        **_known(stddev=of.sd, min=of.minimum, max=of.maximum),
        **named,
    }
