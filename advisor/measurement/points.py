"""One load point from its request records and the engine's counters."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.acceptance import figures
from advisor.measurement.latency import quantiles
from advisor.measurement.records import (
    AcceptanceFigures,
    ClassFigures,
    EngineCounters,
    HostLoad,
    LoadPoint,
    LoadRole,
    Outcome,
    RequestRecord,
)

# A closed loop is steady when less than this share of its slots stood empty (case S-24); slots
# stand empty for the time that the client needs between an answer and the next request.
LOAD_SHARE = 0.85
BLOCKS = 10
UNLABELLED = "unlabelled"


def summarise_point(
    *,
    concurrency: int,
    repeat: int,
    subset_digest: str,
    records: Sequence[RequestRecord],
    counters: EngineCounters,
    host: HostLoad,
    num_speculative_tokens: int | None,
    role: LoadRole = LoadRole.PROBE,
) -> LoadPoint:
    """The figures of one load point: a closed loop, or gangs for `LoadRole.STATIC`.

    Failures enter no latency and no throughput, but make the point unusable (case S-07), as do
    a load that was not reached (S-24), neighbours, and successes without a token count. Gangs wait
    for their longest answer, so that they are meant to keep fewer in flight. A point without
    records raises `InvalidInput`.
    """
    if not records:
        raise InvalidInput("records", "a load point has at least one request")
    good = [record for record in records if record.outcome is Outcome.OK]
    span_s = _span_s(good or records)
    output_tokens = sum(record.output_tokens or 0 for record in good)
    loaded = None if role is LoadRole.STATIC else _loaded(records, concurrency)
    flaws = _flaws(records, good, concurrency=concurrency, loaded=loaded, host=host)
    remarks = _remarks(counters)
    return LoadPoint(
        concurrency=concurrency,
        repeat=repeat,
        subset_digest=subset_digest,
        requests=len(records),
        succeeded=len(good),
        failed=len(records) - len(good),
        failures=_failures(records),
        duration_s=span_s,
        throughput_tokens_per_s=_throughput(good, span_s),
        requests_per_s=len(good) / span_s,
        output_tokens=output_tokens,
        prompt_tokens=sum(record.prompt_tokens or 0 for record in good),
        ttft_s=quantiles([record.ttft_s for record in good]),
        tpot_s=quantiles([record.tpot_s for record in good]),
        e2e_s=quantiles([record.e2e_s for record in good]),
        classes=_classes(good),
        acceptance=_acceptance(counters, num_speculative_tokens),
        tokens_per_engine_step=_tokens_per_engine_step(counters),
        prefix_hit_share=prefix_hit_share(counters),
        in_flight_mean=_in_flight(records),
        counters=counters,
        host=host,
        usable=not flaws,
        flaws=(*flaws, *remarks),
        role=role,
        longest_output_tokens=_longest(good),
        loaded_tokens_per_s=None if role is LoadRole.STATIC else _loaded_rate(good, concurrency),
    )


def _acceptance(
    counters: EngineCounters, num_speculative_tokens: int | None
) -> AcceptanceFigures | None:
    if num_speculative_tokens is None:
        return None
    return figures(counters, num_speculative_tokens=num_speculative_tokens)


def _longest(good: Sequence[RequestRecord]) -> int | None:
    """Tokens of the longest answer; None where no success has a count."""
    known = [record.output_tokens for record in good if record.output_tokens is not None]
    return max(known, default=None)


def prefix_hit_share(counters: EngineCounters) -> float | None:
    """Cached share of the prompt tokens looked up, from counter differences (case S-10).

    None without a look-up, and after preemptions: a request that is computed again hits its own
    blocks, which is no gain (case S-11).
    """
    if counters.prefix_queries == 0 or counters.preemptions > 0:
        return None
    return counters.prefix_hits / counters.prefix_queries


def load_reached(in_flight: float, concurrency: int) -> bool:
    """Whether enough of the planned requests were in flight (case S-24)."""
    return in_flight >= LOAD_SHARE * concurrency


def _tokens_per_engine_step(counters: EngineCounters) -> float | None:
    if not counters.engine_steps:
        return None
    return counters.generation_tokens / counters.engine_steps


def _span_s(records: Sequence[RequestRecord]) -> float:
    span = max(record.end_s for record in records) - min(record.sent_s for record in records)
    if span <= 0:
        raise InvalidInput("records", "all requests began and ended at one instant")
    return span


def _in_flight(records: Sequence[RequestRecord]) -> float:
    """Time-weighted mean number in flight over the span."""
    return sum(record.end_s - record.sent_s for record in records) / _span_s(records)


def _loaded(records: Sequence[RequestRecord], concurrency: int) -> float:
    """Mean number in flight from the send that filled the load to the last send.

    Before that the load is being built up, after it nothing can be sent while the rest drains.
    Where both are one moment, the number in flight then.
    """
    sent = sorted(record.sent_s for record in records)
    since_s, until_s = sent[min(concurrency, len(sent)) - 1], sent[-1]
    if until_s <= since_s:
        return float(sum(record.end_s >= until_s for record in records))
    spans = (min(record.end_s, until_s) - max(record.sent_s, since_s) for record in records)
    return sum(max(0.0, span) for span in spans) / (until_s - since_s)


def _flaws(
    records: Sequence[RequestRecord],
    good: Sequence[RequestRecord],
    *,
    concurrency: int,
    loaded: float | None,
    host: HostLoad,
) -> tuple[str, ...]:
    """`loaded` is the mean number in flight where a closed loop was to keep `concurrency`."""
    failed = len(records) - len(good)
    flaws = [f"{failed} of {len(records)} requests failed"] if failed else []
    uncounted = sum(record.output_tokens is None for record in good)
    if uncounted:
        flaws.append(f"{uncounted} of {len(good)} successes without a token count")
    if loaded is not None and not load_reached(loaded, concurrency):
        flaws.append(f"load not reached: {loaded:.1f} of {concurrency} requests in flight")
    if host.disturbed:
        flaws.append("disturbed by neighbours")
    return tuple(flaws)


def _remarks(counters: EngineCounters) -> tuple[str, ...]:
    """What a reader must know of a point that is usable all the same."""
    if counters.preemptions == 0:
        return ()
    return (f"{counters.preemptions} preemptions: no prefix hits credited, they may be recompute",)


def _failures(records: Sequence[RequestRecord]) -> dict[str, int]:
    return dict(
        Counter(
            record.error or record.outcome.value
            for record in records
            if record.outcome is not Outcome.OK
        )
    )


def _classes(good: Sequence[RequestRecord]) -> tuple[ClassFigures, ...]:
    labels = sorted({record.label or UNLABELLED for record in good})
    return tuple(
        _class_figures(label, [r for r in good if (r.label or UNLABELLED) == label])
        for label in labels
    )


def _class_figures(label: str, members: Sequence[RequestRecord]) -> ClassFigures:
    return ClassFigures(
        label=label,
        requests=len(members),
        ttft_s=quantiles([record.ttft_s for record in members]),
        tpot_s=quantiles([record.tpot_s for record in members]),
        e2e_s=quantiles([record.e2e_s for record in members]),
        output_tokens=sum(record.output_tokens or 0 for record in members),
    )


def _throughput(good: Sequence[RequestRecord], span_s: float) -> Estimate:
    """Output tokens of successes over the span, with a t interval over equal time blocks."""
    tokens = sum(record.output_tokens or 0 for record in good)
    value = tokens / span_s
    if not tokens:
        return Estimate(
            value=0.0, low=0.0, high=0.0, source=Source.MEASURED, basis="no output token was seen"
        )
    rates = _tokens_per_block(good, span_s) / (span_s / BLOCKS)
    deviation = float(rates.std(ddof=1)) / math.sqrt(BLOCKS)
    half = float(stdtrit(BLOCKS - 1, 0.975)) * deviation
    return Estimate(
        value=value,
        low=max(0.0, value - half),
        high=value + half,
        source=Source.MEASURED,
        basis=f"within this point: t interval over {BLOCKS} equal time blocks",
    )


def _loaded_rate(good: Sequence[RequestRecord], concurrency: int) -> float | None:
    """Tokens per second while every slot was taken: until the last request was sent."""
    sent = sorted(record.sent_s for record in good)
    if len(sent) < 2 * concurrency:
        return None
    since_s, until_s = sent[concurrency - 1], sent[-1]
    if until_s <= since_s:
        return None
    tokens = 0.0
    for record in good:
        times = _token_times(record)
        inside = int(((times > since_s) & (times <= until_s)).sum())
        tokens += (record.output_tokens or 0) * inside / len(times)
    return tokens / (until_s - since_s)


def _token_times(record: RequestRecord) -> NDArray[np.float64]:
    """When frames with tokens arrived; the end of the answer where none was recorded."""
    return np.asarray(record.frame_times_s or (record.last_token_s or record.end_s,))


def _tokens_per_block(good: Sequence[RequestRecord], span_s: float) -> NDArray[np.float64]:
    """Output tokens in each block; a request's tokens are spread evenly over its frames."""
    start_s = min(record.sent_s for record in good)
    counts = np.zeros(BLOCKS)
    for record in good:
        times = _token_times(record)
        share = (record.output_tokens or 0) / len(times)
        blocks = ((times - start_s) / span_s * BLOCKS).astype(int)
        np.add.at(counts, np.clip(blocks, 0, BLOCKS - 1), share)
    return counts
