"""`vllm bench serve` (0.31 and 0.32): one JSON object per run, several lines with --append-result.

TTFT is first chunk - send, TPOT (latency - TTFT) / (tokens - 1) per request, ITL the gaps between
chunks of all requests; times in ms, those of single requests in seconds.
"""

import re
from collections.abc import Sequence

from advisor.errors import InvalidInput
from advisor.measurement.imports.fields import Fields
from advisor.measurement.imports.figures import (
    S_PER_MS,
    Stated,
    distribution,
    judged,
    of_values,
)
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport, Rank

TOOL = "vllm bench serve"
MARKS = frozenset({"model_id", "tokenizer_id", "duration", "completed", "request_throughput"})
NO_VERSION = "the file does not say which version wrote it"
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?|100)_(\w+)_ms")


def recognises(document: Fields) -> bool:
    """Whether an object is a run of this tool."""
    return document.held.keys() >= MARKS


def read(documents: Sequence[Fields]) -> MeasurementReport:
    """The runs of one file, which are of one model; what its answers say is not looked at."""
    models = {document.name("model_id") for document in documents}
    if len(models) != 1:
        raise InvalidInput("model_id", f"the file holds runs of {len(models)} models; send each")
    return MeasurementReport(
        rank=Rank.IMPORTED,
        tool=TOOL,
        tool_version=None,
        model=models.pop(),
        engine=None,
        started_epoch_s=None,
        points=tuple(_point(document) for document in documents),
        remarks=(NO_VERSION,),
    )


def _point(run: Fields) -> MeasuredPoint:
    if not run.states("total_output_tokens"):
        run.refuse("total_output_tokens", "is missing: only runs that generate text are read")
    completed = run.needed_count("completed")
    requests, failed = _requests(run, completed)
    kind, concurrency, rate, remarks = _load(run)
    seconds = run.needed("duration")
    latency, told = _latency(run, requests, failed)
    lengths = {} if failed else _lengths(run, requests)
    return judged(
        MeasuredPoint(
            kind=kind,
            requests=requests,
            failed=failed,
            duration_s=seconds,
            concurrency=concurrency,
            rate_per_s=rate,
            requests_per_s=run.number("request_throughput"),
            output_tokens_per_s=run.number("output_throughput"),
            input_tokens_per_s=run.needed("total_input_tokens") / seconds if seconds else None,
            prompt_tokens=lengths.get("input_lens") or _mean(run, "total_input_tokens", completed),
            output_tokens=lengths.get("output_lens")
            or _mean(run, "total_output_tokens", completed),
            ttft_s=_times(run, "ttft") if completed else None,
            tpot_s=_times(run, "tpot") if completed else None,
            chunk_gap_s=_times(run, "itl") if completed else None,
            e2e_s=latency,
            remarks=(*remarks, *told, *_when(run)),
        )
    )


def _requests(run: Fields, completed: int) -> tuple[int, int]:
    """How many were sent and how many of them failed."""
    failed = run.count("failed")
    if failed is None:  # releases before 0.11 say how many were to be sent
        failed = max(0, (run.count("num_prompts") or completed) - completed)
    return completed + failed, failed


def _load(run: Fields) -> tuple[LoopKind, float | None, float | None, tuple[str, ...]]:
    """Loop, requests in flight, rate, remarks. A rate of "inf" is no rate."""
    limit = run.number("max_concurrency")
    rate = None if run.held.get("request_rate") == "inf" else run.number("request_rate")
    if run.states("ramp_up_strategy"):
        return LoopKind.OPEN, None, None, ("the rate rose during the run",)
    if rate is not None and limit is not None:
        held_back = f"sends were held back at {limit:.0f} in flight; times begin at the actual send"
        return LoopKind.OPEN, None, rate, (held_back,)
    if rate is not None:
        return LoopKind.OPEN, None, rate, ()
    if limit is not None:
        return LoopKind.CLOSED, limit, None, ()
    return LoopKind.OPEN, None, None, ("all requests were sent at once",)


def _times(run: Fields, name: str) -> Distribution | None:
    """The figures of one metric, in seconds."""
    found = {50.0: run.number(f"median_{name}_ms")}
    for key in run.held:
        match = _PERCENTILE.fullmatch(key)
        if match and match[2] == name:
            found[float(match[1])] = run.number(key)
    stated = Stated(
        field=run.field(f"p.._{name}_ms"),
        mean=run.number(f"mean_{name}_ms"),
        sd=run.number(f"std_{name}_ms"),
        percentiles=found,
    )
    return distribution(stated, S_PER_MS)


def _latency(
    run: Fields, requests: int, failed: int
) -> tuple[Distribution | None, tuple[str, ...]]:
    """End to end: as stated, else of the single requests, of which a failed one has none."""
    stated = _times(run, "e2el")
    if stated is not None:
        return stated, ()
    values = _values(run, "latencies")
    if failed or len(values) != requests:
        return None, ()
    return of_values(values), ("end-to-end times computed from those of the single requests",)


def _lengths(run: Fields, requests: int) -> dict[str, Distribution | None]:
    """Lengths of single requests, where the file has those of all of them (--save-detailed)."""
    found = {name: _values(run, name) for name in ("input_lens", "output_lens")}
    return {name: of_values(values) for name, values in found.items() if len(values) == requests}


def _mean(run: Fields, total: str, completed: int) -> Distribution | None:
    tokens = run.needed(total)
    return Distribution(count=completed, mean=tokens / completed) if completed and tokens else None


def _values(run: Fields, name: str) -> list[float]:
    listed = Fields(
        held={str(place): value for place, value in enumerate(run.items(name))},
        path=run.field(name),
    )
    return [listed.needed(place) for place in listed.held]


def _when(run: Fields) -> tuple[str, ...]:
    date = run.name("date")
    return () if date is None else (f"ended {date} on the client's clock, whose zone is not said",)
