"""GuideLLM 0.8 (`benchmarks.json`, report version 2): one point per benchmark.

Its `time_per_output_token_ms` is (last token - start) / tokens and holds the time to first token
(case S-19): that is our normalised latency. Its `inter_token_latency_ms` is (last - first) /
(tokens - 1) of a request: that is our TPOT. Both weigh a request by its tokens. Figures are of
the successes within the measured part, without warm-up and cool-down.
"""

from collections.abc import Mapping, Sequence

from advisor.measurement.imports.fields import Fields
from advisor.measurement.imports.figures import S_PER_MS, Stated, distribution, judged
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport, Rank

TOOL = "guidellm"
VERSION = 2
WEIGHTED = "time per token weighs each request by its tokens, as GuideLLM does"
PERCENTILES: Mapping[str, float] = {
    "p001": 0.1,
    "p01": 1.0,
    "p05": 5.0,
    "p10": 10.0,
    "p25": 25.0,
    "p50": 50.0,
    "p75": 75.0,
    "p90": 90.0,
    "p95": 95.0,
    "p99": 99.0,
    "p999": 99.9,
}


def recognises(document: Fields) -> bool:
    """Whether an object is a report of this tool."""
    held = document.held
    metadata = held.get("metadata")
    return "benchmarks" in held and isinstance(metadata, dict) and "guidellm_version" in metadata


def read(documents: Sequence[Fields]) -> MeasurementReport:
    """The benchmarks of one report; its lists of requests are not looked at."""
    (document,) = documents
    metadata = document.needed_part("metadata")
    if metadata.count("version") != VERSION:
        metadata.refuse("version", f"is not the report version that is read ({VERSION})")
    benchmarks = document.parts("benchmarks")
    if not benchmarks:
        document.refuse("benchmarks", "holds no finished benchmark")
    return MeasurementReport(
        rank=Rank.IMPORTED,
        tool=TOOL,
        tool_version=metadata.name("guidellm_version"),
        model=_model(benchmarks[0]),
        engine=None,
        started_epoch_s=benchmarks[0].number("start_time"),
        points=tuple(_point(benchmark) for benchmark in benchmarks),
        remarks=(WEIGHTED,),
    )


def _model(benchmark: Fields) -> str | None:
    config = benchmark.part("config")
    backend = None if config is None else config.part("backend")
    return None if backend is None else backend.name("model")


def _point(benchmark: Fields) -> MeasuredPoint:
    metrics = benchmark.needed_part("metrics")
    totals = metrics.needed_part("request_totals")
    good, failed = totals.needed_count("successful"), totals.needed_count("errored")
    cut = totals.count("incomplete") or 0
    seconds = benchmark.needed("duration")
    kind, concurrency, rate, remarks = _load(benchmark.needed_part("config"))
    if cut:
        remarks = (*remarks, f"{cut} requests were cut off by the end and count in nothing")
    return judged(
        MeasuredPoint(
            kind=kind,
            requests=good + failed,
            failed=failed,
            duration_s=seconds,
            concurrency=concurrency,
            rate_per_s=rate,
            requests_per_s=good / seconds if seconds else None,
            output_tokens_per_s=_rate(metrics, "output_token_count", seconds),
            input_tokens_per_s=_rate(metrics, "prompt_token_count", seconds),
            prompt_tokens=_figures(metrics, "prompt_token_count"),
            output_tokens=_figures(metrics, "output_token_count"),
            ttft_s=_figures(metrics, "time_to_first_token_ms", S_PER_MS),
            tpot_s=_figures(metrics, "inter_token_latency_ms", S_PER_MS, weighted=True),
            e2e_s=_figures(metrics, "request_latency"),
            normalised_latency_s=_figures(
                metrics, "time_per_output_token_ms", S_PER_MS, weighted=True
            ),
            remarks=remarks,
        )
    )


def _load(config: Fields) -> tuple[LoopKind | None, float | None, float | None, tuple[str, ...]]:
    """Loop, requests in flight, rate and remarks of a strategy."""
    strategy = config.needed_part("strategy")
    limit = strategy.number("max_concurrency")
    match strategy.name("type_"):
        case "synchronous":
            return LoopKind.CLOSED, 1.0, None, ()
        case "concurrent":
            return LoopKind.CLOSED, strategy.needed("streams"), None, ()
        case "throughput":
            told = () if limit else ("all requests were sent at once",)
            return LoopKind.CLOSED if limit else LoopKind.OPEN, limit, None, told
        case "constant" | "poisson" as arrivals:
            return LoopKind.OPEN, None, strategy.needed("rate"), (f"arrivals: {arrivals}",)
        case "trace":
            return LoopKind.OPEN, None, None, ("arrivals: recorded",)
        case _:
            return None, None, None, ("how the load was submitted is not known",)


def _figures(
    metrics: Fields, name: str, scale: float = 1.0, *, weighted: bool = False
) -> Distribution | None:
    """The figures of the successes; `weighted` ones count tokens, which is no number of values."""
    found = metrics.part(name)
    good = None if found is None else found.part("successful")
    if good is None or not good.count("count"):
        return None
    told = good.needed_part("percentiles")
    stated = Stated(
        field=good.path,
        count=None if weighted else good.count("count"),
        mean=good.number("mean"),
        sd=good.number("std_dev"),
        minimum=good.number("min"),
        maximum=good.number("max"),
        percentiles={p: told.number(key) for key, p in PERCENTILES.items()},
    )
    return distribution(stated, scale)


def _rate(metrics: Fields, name: str, seconds: float) -> float | None:
    """Tokens of successes per second of the measured part."""
    found = metrics.part(name)
    good = None if found is None else found.part("successful")
    total = None if good is None else good.number("total_sum")
    return None if total is None or not seconds else total / seconds
