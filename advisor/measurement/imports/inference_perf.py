"""inference-perf 0.7: `stage_N_lifecycle_metrics.json` and `summary_lifecycle_metrics.json`.

All times in seconds. `time_per_output_token` is (last - first) / (tokens - 1) of a request,
`normalized_time_per_output_token` end-to-end time over tokens, `inter_token_latency` the gaps
between stream events of all requests. Rates are over first send to last end.
"""

from collections.abc import Mapping, Sequence

from advisor.measurement.imports.fields import Fields
from advisor.measurement.imports.figures import Stated, distribution, judged
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport, Rank

TOOL = "inference-perf"
NOT_SAID = "the file names neither the model nor the version that wrote it"
WITHOUT_OUTPUT = "normalised latency left out: answers without tokens count in it as 0 s"
NO_LOAD = "how the load was submitted is not said: a summary of all stages"
DURATION = "duration computed: successes over their rate"


def recognises(document: Fields) -> bool:
    """Whether an object is a life-cycle report; those from Prometheus have no such load summary."""
    successes, load = document.held.get("successes"), document.held.get("load_summary")
    return isinstance(successes, dict) and isinstance(load, dict) and "latency" in successes


def read(documents: Sequence[Fields]) -> MeasurementReport:
    """One stage, or all of them; error texts are not looked at."""
    (document,) = documents
    return MeasurementReport(
        rank=Rank.IMPORTED,
        tool=TOOL,
        tool_version=None,
        model=None,
        engine=None,
        started_epoch_s=None,
        points=(_point(document),),
        remarks=(NOT_SAID,),
    )


def _point(document: Fields) -> MeasuredPoint:
    load, successes = document.needed_part("load_summary"), document.needed_part("successes")
    requests = load.needed_count("count")
    failed = _failed(document, successes, requests)
    throughput = successes.needed_part("throughput")
    latency = successes.needed_part("latency")
    rate = throughput.number("requests_per_sec")
    seconds, told = _duration(document, requests - failed, rate)
    kind, concurrency, asked, remarks = _load(load)
    normalised, dropped = _normalised(latency)
    return judged(
        MeasuredPoint(
            kind=kind,
            requests=requests,
            failed=failed,
            duration_s=seconds,
            concurrency=concurrency,
            rate_per_s=asked,
            requests_per_s=rate,
            output_tokens_per_s=throughput.number("output_tokens_per_sec"),
            input_tokens_per_s=throughput.number("input_tokens_per_sec"),
            prompt_tokens=_figures(successes, "prompt_tokens") or _figures(successes, "prompt_len"),
            output_tokens=_figures(successes, "output_tokens") or _figures(successes, "output_len"),
            ttft_s=_figures(latency, "time_to_first_token"),
            tpot_s=_figures(latency, "time_per_output_token"),
            chunk_gap_s=_figures(latency, "inter_token_latency"),
            e2e_s=_figures(latency, "request_latency"),
            normalised_latency_s=normalised,
            remarks=(*remarks, *told, *dropped, *_counted(successes)),
        )
    )


def _failed(document: Fields, successes: Fields, requests: int) -> int:
    failures = document.part("failures")
    if failures is not None:
        return failures.needed_count("count")
    good = successes.count("count")
    return 0 if good is None else requests - good


def _duration(
    document: Fields, successes: int, rate: float | None
) -> tuple[float, tuple[str, ...]]:
    """First send to last end; releases before 0.7 state it by the rate alone."""
    stated = document.number("benchmark_time_seconds")
    if stated is not None:
        return stated, ()
    if not rate:
        document.refuse("benchmark_time_seconds", "is missing, and so is a rate of requests")
    return successes / rate, (DURATION,)


def _load(load: Fields) -> tuple[LoopKind | None, float | None, float | None, tuple[str, ...]]:
    """A stage with a concurrency is a closed loop, whose rate is a bound and not a schedule."""
    concurrency, rate = load.number("concurrency"), load.number("requested_rate")
    if concurrency is not None:
        return LoopKind.CLOSED, concurrency, None, ()
    if rate is not None:
        return LoopKind.OPEN, None, rate, ()
    return None, None, None, (NO_LOAD,)


def _counted(successes: Fields) -> tuple[str, ...]:
    """Answers whose tokens the engine did not count (case S-21)."""
    fallback = successes.part("client_fallback_requests")
    answers = None if fallback is None else fallback.count("output")
    return (f"{answers} answers counted by the client's own tokenizer",) if answers else ()


def _normalised(latency: Fields) -> tuple[Distribution | None, tuple[str, ...]]:
    found = _figures(latency, "normalized_time_per_output_token")
    if found is not None and found.minimum == 0:
        return None, (WITHOUT_OUTPUT,)
    return found, ()


def _figures(part: Fields, name: str) -> Distribution | None:
    found = part.part(name)
    if found is None:
        return None
    stated = Stated(
        field=found.path,
        mean=found.number("mean"),
        minimum=found.number("min"),
        maximum=found.number("max"),
        percentiles=_percentiles(found),
    )
    return distribution(stated)


def _percentiles(found: Fields) -> Mapping[float, float | None]:
    """Those under "median" and "p99.9"; other names are not percentiles."""
    told: dict[float, float | None] = {50.0: found.number("median")}
    for key in found.held:
        digits = key.removeprefix("p")
        if key.startswith("p") and digits.replace(".", "", 1).isdigit():
            told[float(digits)] = found.number(key)
    return told
