"""One load point from its request records and the engine's counters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput
from advisor.measurement.flaws import Seen, flaws, remarks
from advisor.measurement.latency import quantiles
from advisor.measurement.protocol.client import judge_client
from advisor.measurement.protocol.figures import (
    chunk_gaps_s,
    intervals_of,
    steady_throughput,
)
from advisor.measurement.protocol.steady import inside, peak_in_flight, steady_window, under_load
from advisor.measurement.records import (
    AcceptanceFigures,
    ClassFigures,
    ClientHealth,
    EngineCounters,
    HostLoad,
    LoadPoint,
    LoadRole,
    OpenLoop,
    Outcome,
    RequestRecord,
    Window,
)
from advisor.measurement.request_acceptance import point_figures
from advisor.measurement.throughput import loaded_rate, throughput

UNLABELLED = "unlabelled"


def summarise_point(  # noqa: PLR0913  (one argument per thing that was seen of the load)
    *,
    concurrency: int | None,
    repeat: int,
    subset_digest: str,
    records: Sequence[RequestRecord],
    counters: EngineCounters,
    host: HostLoad,
    num_speculative_tokens: int | None,
    role: LoadRole = LoadRole.PROBE,
    client: ClientHealth | None = None,
    open_loop: OpenLoop | None = None,
    not_fitting: int = 0,
    energy_j: float | None = None,
    shared_machine: bool = False,
) -> LoadPoint:
    """The figures of one load: a closed loop of `concurrency`, an open one, or gangs (STATIC).

    Latencies are of the requests sent in the steady window, all else of the whole load. Failures
    enter no latency and throughput (case S-07). On a `shared_machine` neighbours, and what they do
    to the client, are no flaw. `InvalidInput` without records, or without a loop's `concurrency`.
    """
    opened = open_loop is not None
    load = _Load.of(records, role=role, concurrency=concurrency, opened=opened)
    good, span_s = load.good, _span_s(load.good or records)
    client = None if client is None else judge_client(client, ttft_s=load.median_ttft_s)
    seen = load.seen(host=host, client=client, opened=opened, shared_machine=shared_machine)
    found = flaws(seen)
    acceptance, doubts = _acceptance(good, counters, num_speculative_tokens)
    point = LoadPoint(
        concurrency=peak_in_flight(records) if load.concurrency is None else load.concurrency,
        repeat=repeat,
        subset_digest=subset_digest,
        requests=len(records),
        succeeded=len(good),
        failed=len(records) - len(good),
        failures=_failures(records),
        duration_s=span_s,
        throughput_tokens_per_s=throughput(good, span_s),
        requests_per_s=len(good) / span_s,
        output_tokens=sum(record.output_tokens or 0 for record in good),
        prompt_tokens=sum(record.prompt_tokens or 0 for record in good),
        ttft_s=quantiles([record.ttft_s for record in load.steady]),
        tpot_s=quantiles([record.tpot_s for record in load.loaded]),
        e2e_s=quantiles([record.e2e_s for record in load.loaded]),
        classes=_classes(good),
        acceptance=acceptance,
        tokens_per_engine_step=_tokens_per_engine_step(counters),
        prefix_hit_share=prefix_hit_share(counters),
        in_flight_mean=_in_flight(records),
        counters=counters,
        host=host,
        usable=not found,
        flaws=(*found, *remarks(seen, counters, not_fitting, load.retries), *doubts),
        open_loop=open_loop,
        client=client,
        not_fitting=not_fitting,
        energy_j=energy_j,
    )
    return load.completed(point)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The records of one load, cut once.

    `good` are all successes, `steady` those sent in the steady window, `loaded` those of them that
    were answered before the load drained.
    """

    records: Sequence[RequestRecord]
    good: list[RequestRecord]
    steady: list[RequestRecord]
    loaded: list[RequestRecord]
    window: Window
    role: LoadRole
    concurrency: int | None

    @classmethod
    def of(
        cls,
        records: Sequence[RequestRecord],
        *,
        role: LoadRole,
        concurrency: int | None,
        opened: bool,
    ) -> "_Load":
        if not records:
            raise InvalidInput("records", "a load point has at least one request")
        if concurrency is None and not opened:
            raise InvalidInput("concurrency", "a closed loop has one")
        concurrency = None if opened else concurrency
        window = _window(records, role, concurrency)
        sent = inside(records, window)
        last_s = max(record.sent_s for record in records)
        loaded = under_load(sent, last_s) if window.steady else sent
        return cls(
            records=records,
            good=[item for item in records if item.outcome is Outcome.OK],
            steady=[item for item in sent if item.outcome is Outcome.OK],
            loaded=[item for item in loaded if item.outcome is Outcome.OK],
            window=window,
            role=role,
            concurrency=concurrency,
        )

    @property
    def median_ttft_s(self) -> float | None:
        found = quantiles([record.ttft_s for record in self.steady])
        return None if found is None else found.p50

    @property
    def loaded_tokens_per_s(self) -> float | None:
        if self.role is LoadRole.STATIC or self.concurrency is None:
            return None
        return loaded_rate(self.good, self.concurrency)

    @property
    def retries(self) -> int:
        return sum(record.attempts - 1 for record in self.records)

    def completed(self, point: LoadPoint) -> LoadPoint:
        """The point with what is made of the window, and of the load as it was full."""
        return replace(
            point,
            role=self.role,
            retries=self.retries,
            longest_output_tokens=_longest(self.good),
            loaded_tokens_per_s=self.loaded_tokens_per_s,
            window=self.window,
            chunk_gap_s=quantiles(chunk_gaps_s(self.steady)),
            steady_tokens_per_s=steady_throughput(self.records, self.window),
            intervals=intervals_of(self.steady, self.loaded, self.good),
        )

    def seen(
        self, *, host: HostLoad, client: ClientHealth | None, opened: bool, shared_machine: bool
    ) -> Seen:
        """What flaws are looked for in."""
        gangs = self.role is LoadRole.STATIC
        slots = None if gangs else self.concurrency
        return Seen(
            records=self.records,
            window=self.window,
            host=host,
            client=client,
            concurrency=slots,
            loaded=None if slots is None else _loaded(self.records, slots),
            opened=opened,
            judged=not gangs,
            shared_machine=shared_machine,
        )


def _window(records: Sequence[RequestRecord], role: LoadRole, concurrency: int | None) -> Window:
    if role is LoadRole.STATIC:
        whole_s = max(record.end_s for record in records) - min(item.sent_s for item in records)
        rule = "gangs are measured as a whole"
        return Window(since_s=0.0, until_s=whole_s, left_out=0, steady=False, rule=rule)
    return steady_window(records, concurrency=concurrency)


def _acceptance(
    good: Sequence[RequestRecord], counters: EngineCounters, num_speculative_tokens: int | None
) -> tuple[AcceptanceFigures | None, tuple[str, ...]]:
    """Of the drafts, and where requests and counters disagree on it; None without drafting."""
    if num_speculative_tokens is None:
        return None, ()
    found, doubt = point_figures(good, counters, num_speculative_tokens=num_speculative_tokens)
    return found, () if doubt is None else (doubt,)


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


def _failures(records: Sequence[RequestRecord]) -> dict[str, int]:
    return dict(
        Counter(
            record.error or record.outcome.value
            for record in records
            if record.outcome is not Outcome.OK
        )
    )


def _classes(good: Sequence[RequestRecord]) -> tuple[ClassFigures, ...]:
    """Of all successes: the window of a short load holds too few of each class."""
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
