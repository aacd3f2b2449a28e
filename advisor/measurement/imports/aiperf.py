"""AIPerf 0.13: `profile_export_aiperf.json` (export schema 1) and its `profile_export.jsonl`.

Its inter-token latency is (latency - TTFT) / (tokens - 1) of a request: our TPOT. The gaps between
chunks are its `inter_chunk_latency`. Every figure names its unit.
"""

from collections.abc import Mapping, Sequence

from advisor.measurement.imports.fields import Fields
from advisor.measurement.imports.figures import Stated, distribution, judged, of_values
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport, Rank

TOOL = "aiperf"
SCHEMA = "1"
SECONDS: Mapping[str, float] = {"sec": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
COUNTS: Mapping[str, float] = {"tokens": 1.0, "requests": 1.0}
RATES: Mapping[str, float] = {"tokens/sec": 1.0, "requests/sec": 1.0}
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
PROFILING = "profiling"
S_PER_NS = 1e-9
NO_LOAD = "how the load was submitted is not said: single requests"
COMPUTED = "figures computed from the single requests"


def recognises(document: Fields) -> bool:
    """Whether an object is an export of this tool."""
    return {"aiperf_version", "request_latency"} <= document.held.keys()


def recognises_record(document: Fields) -> bool:
    """Whether an object is a line of `profile_export.jsonl`."""
    metadata = document.held.get("metadata")
    told = isinstance(metadata, dict) and "request_start_ns" in metadata
    return told and isinstance(document.held.get("metrics"), dict)


def read(documents: Sequence[Fields]) -> MeasurementReport:
    """The profiled phase of one run; its command line and data set are not looked at."""
    (document,) = documents
    schema = document.name("schema_version") or ""
    if schema.partition(".")[0] != SCHEMA:
        document.refuse("schema_version", f"is not the export schema that is read ({SCHEMA}.x)")
    return MeasurementReport(
        rank=Rank.IMPORTED,
        tool=TOOL,
        tool_version=document.name("aiperf_version"),
        model=_model(document),
        engine=None,
        started_epoch_s=None,
        points=(_point(document),),
    )


def read_records(documents: Sequence[Fields]) -> MeasurementReport:
    """Single requests of one run; those of the warm-up are left out."""
    profiled = [
        document
        for document in documents
        if document.needed_part("metadata").held.get("benchmark_phase", PROFILING) == PROFILING
    ]
    if not profiled:
        documents[0].refuse("metadata.benchmark_phase", f"no request is of the {PROFILING} phase")
    spans = [document.needed_part("metadata") for document in profiled]
    begun = min(span.needed("request_start_ns") for span in spans) * S_PER_NS
    ended = max(span.needed("request_end_ns") for span in spans) * S_PER_NS
    return MeasurementReport(
        rank=Rank.IMPORTED,
        tool=TOOL,
        tool_version=None,
        model=None,
        engine=None,
        started_epoch_s=begun,
        points=(_point_of_records(profiled, ended - begun),),
        remarks=(COMPUTED,),
    )


def _model(document: Fields) -> str | None:
    config = document.part("input_config")
    models = None if config is None else config.part("models")
    items = () if models is None else models.parts("items")
    return items[0].name("name") if len(items) == 1 else None


def _point(document: Fields) -> MeasuredPoint:
    good = int(_total(document, "request_count") or 0)
    failed = int(_total(document, "error_request_count") or 0)
    seconds = _scalar(document, "benchmark_duration", SECONDS)
    if seconds is None:
        document.refuse("benchmark_duration", "is missing")
    kind, concurrency, rate, remarks = _load(document)
    whole = document.held.get("is_complete") is not False
    cut = () if whole and not document.held.get("was_cancelled") else ("the run was cut short",)
    return judged(
        MeasuredPoint(
            kind=kind,
            requests=good + failed,
            failed=failed,
            duration_s=seconds,
            concurrency=concurrency,
            rate_per_s=rate,
            requests_per_s=_scalar(document, "request_throughput", RATES),
            output_tokens_per_s=_scalar(document, "output_token_throughput", RATES),
            input_tokens_per_s=_scalar(document, "input_token_throughput", RATES),
            prompt_tokens=_figures(document, "input_sequence_length", COUNTS),
            output_tokens=_figures(document, "output_sequence_length", COUNTS),
            ttft_s=_figures(document, "time_to_first_token", SECONDS),
            tpot_s=_figures(document, "inter_token_latency", SECONDS),
            chunk_gap_s=_figures(document, "inter_chunk_latency", SECONDS),
            e2e_s=_figures(document, "request_latency", SECONDS),
            usable=not cut,
            remarks=(*cut, *remarks),
        )
    )


def _load(document: Fields) -> tuple[LoopKind | None, float | None, float | None, tuple[str, ...]]:
    """Loop, requests in flight, rate and remarks of the one profiled phase."""
    config = document.part("input_config")
    phases = () if config is None else config.parts("phases")
    profiled = [phase for phase in phases if phase.held.get("kind", PROFILING) == PROFILING]
    if len(profiled) != 1:
        return None, None, None, (f"figures of {len(profiled)} phases of load together",)
    (phase,) = profiled
    limit, rate = phase.number("concurrency"), phase.number("rate")
    match phase.name("type"):
        case "concurrency":
            return LoopKind.CLOSED, 1.0 if limit is None else limit, None, ()
        case "poisson" | "gamma" | "constant" as arrivals:
            held = () if limit is None else (f"sends were held back at {limit:.0f} in flight",)
            return LoopKind.OPEN, None, rate, (f"arrivals: {arrivals}", *held)
        case "fixed_schedule":
            return LoopKind.OPEN, None, None, ("arrivals: recorded",)
        case _:
            return None, None, None, ("how the load was submitted is not known",)


def _scale(metric: Fields, units: Mapping[str, float]) -> float:
    unit = metric.name("unit") or ""
    if unit not in units:
        metric.refuse("unit", f"is none of {', '.join(units)}")
    return units[unit]


def _scalar(document: Fields, name: str, units: Mapping[str, float]) -> float | None:
    """A figure without a distribution, under `avg`, in our unit."""
    metric = document.part(name)
    value = None if metric is None else metric.number("avg")
    return None if metric is None or value is None else value * _scale(metric, units)


def _total(document: Fields, name: str) -> int | None:
    metric = document.part(name)
    return None if metric is None else metric.count("avg")


def _figures(document: Fields, name: str, units: Mapping[str, float]) -> Distribution | None:
    metric = document.part(name)
    if metric is None:
        return None
    stated = Stated(
        field=metric.path,
        count=metric.count("count"),
        mean=metric.number("avg"),
        sd=metric.number("std"),
        minimum=metric.number("min"),
        maximum=metric.number("max"),
        percentiles={float(p): metric.number(f"p{p}") for p in PERCENTILES},
    )
    return distribution(stated, _scale(metric, units))


def _point_of_records(records: Sequence[Fields], seconds: float) -> MeasuredPoint:
    good = [record for record in records if not record.states("error")]
    metrics = [record.needed_part("metrics") for record in good]
    output = _values(metrics, "output_sequence_length", COUNTS)
    prompt = _values(metrics, "input_sequence_length", COUNTS)
    return judged(
        MeasuredPoint(
            kind=None,
            requests=len(records),
            failed=len(records) - len(good),
            duration_s=seconds,
            requests_per_s=len(good) / seconds if seconds else None,
            output_tokens_per_s=_rate(output, len(good), seconds),
            input_tokens_per_s=_rate(prompt, len(good), seconds),
            prompt_tokens=of_values(prompt),
            output_tokens=of_values(output),
            ttft_s=of_values(_values(metrics, "time_to_first_token", SECONDS)),
            tpot_s=of_values(_values(metrics, "inter_token_latency", SECONDS)),
            chunk_gap_s=of_values(_values(metrics, "inter_chunk_latency", SECONDS)),
            e2e_s=of_values(_values(metrics, "request_latency", SECONDS)),
            remarks=(NO_LOAD,),
        )
    )


def _rate(tokens: Sequence[float], successes: int, seconds: float) -> float | None:
    """Tokens per second; None unless every success has a count."""
    return sum(tokens) / seconds if seconds and len(tokens) == successes else None


def _values(metrics: Sequence[Fields], name: str, units: Mapping[str, float]) -> list[float]:
    """A metric's value of each request that has it; a list of gaps counts one by one."""
    found: list[float] = []
    for held in metrics:
        metric = held.part(name)
        if metric is None:
            continue
        scale = _scale(metric, units)
        listed = metric.held.get("value")
        if isinstance(listed, list):
            gaps = Fields(held={str(n): gap for n, gap in enumerate(listed)}, path=metric.path)
            found += [gaps.needed(n) * scale for n in gaps.held]
        else:
            found.append(metric.needed("value") * scale)
    return found
