"""One trial: start its engine, warm it up, measure the load points that are still missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Event

from advisor.canonical import digest
from advisor.errors import EngineFailed, InvalidInput
from advisor.measurement.points import summarise_point
from advisor.measurement.records import EngineCounters, HostLoad, LoadPoint, RequestRecord
from advisor.recommender.evidence import PointPlan, TrialPlan
from advisor.serving import EngineFacts
from advisor.states import FailureKind
from advisor.traffic.trace import Request
from probes.host import HostWatch
from probes.load.plan import ReplayRule, load_plan
from probes.load.records import records_to_parquet
from probes.load.runner import run_load
from probes.vllm.engine import RunningEngine
from probes.vllm.metrics import GaugeSampler, UnusableCounters, difference
from probes.vllm.server import Spawned, StartPlan, StartProgress, start_engine

WARM_TOKENS = 16
WARM_REQUESTS_EAGER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The requests that every trial of a study replays, in the order in which they are sent.

    `output_tokens[i]` is the tokenised length of the recorded answer of request i, None without.
    """

    workload_digest: str
    requests: tuple[Request, ...]
    output_tokens: tuple[int | None, ...]
    rule: ReplayRule

    def first(self, count: int) -> "Sample":
        """The first `count` requests."""
        return replace(
            self, requests=self.requests[:count], output_tokens=self.output_tokens[:count]
        )

    def warming(self, count: int) -> "Sample":
        """The `count` requests with the least text, each to generate one token more or so.

        Sent at once they pass through every batch size from `count` to 1.
        """
        order = sorted(range(len(self.requests)), key=lambda i: _text_length(self.requests[i]))
        chosen = order[:count]
        limits = [2 + place * WARM_TOKENS // count for place in range(len(chosen))]
        return replace(
            self,
            requests=tuple(
                replace(self.requests[i], output_tokens=limit)
                for i, limit in zip(chosen, limits, strict=True)
            ),
            output_tokens=tuple(limits),
        )

    @property
    def digest(self) -> str:
        """Names the load: the workload, the requests, and how many tokens each generates."""
        limits = [
            self.rule.limit(request, tokens)
            for request, tokens in zip(self.requests, self.output_tokens, strict=True)
        ]
        indexes = [request.index for request in self.requests]
        return digest({"workload": self.workload_digest, "indexes": indexes, "limits": limits})


def _text_length(request: Request) -> int:
    return len(request.messages or "") + len(request.prompt or "") + (request.prompt_tokens or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialWork:
    """A trial as the engine side needs it. `recorded` are its finished load points.

    `ours` are the root processes whose work does not count as a neighbour's.
    """

    plan: TrialPlan
    start: StartPlan
    sample: Sample
    recorded: tuple[LoadPoint, ...]
    check_neighbours: bool
    ours: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialListener:
    """Who is told what happens; each callback writes in a transaction of its own."""

    spawned: Callable[[Spawned], None]
    starting: Callable[[StartProgress], None]
    ready: Callable[[EngineFacts], None]
    point: Callable[[LoadPoint, bytes], None]
    load: Callable[[PointPlan, int, int], None]


def next_point(plan: TrialPlan, recorded: Sequence[LoadPoint]) -> PointPlan | None:
    """The load point to measure now: a planned one, else one more try for a useless one.

    A finished point is never planned again. Each planned point that was disturbed or did not
    reach its load gets one extra repeat with a number of its own; None when nothing is left.
    """
    have = {(point.concurrency, point.repeat) for point in recorded}
    for point in plan.points:
        if (point.concurrency, point.repeat) not in have:
            return point
    planned = {(point.concurrency, point.repeat): point for point in plan.points}
    for concurrency in dict.fromkeys(point.concurrency for point in plan.points):
        mine = [point for point in recorded if point.concurrency == concurrency]
        useless = [p for p in mine if (concurrency, p.repeat) in planned and not p.usable]
        extras = [p for p in mine if (concurrency, p.repeat) not in planned]
        if len(extras) < len(useless):
            repeat = 1 + max(point.repeat for point in mine)
            first = planned[concurrency, useless[0].repeat]
            return PointPlan(concurrency=concurrency, repeat=repeat, requests=first.requests)
    return None


def run_trial(work: TrialWork, listener: TrialListener, cancelled: Event) -> str:
    """Measure what is missing and return the engine's log; the engine is gone afterwards.

    Raises `EngineFailed` (`CANCELLED` when the event was set); the log file stays for the caller.
    """
    with start_engine(
        work.start,
        on_progress=listener.starting,
        cancelled=cancelled,
        on_spawned=listener.spawned,
    ) as engine:
        listener.ready(engine.facts)
        warm_up(engine, work, cancelled)
        recorded = list(work.recorded)
        while (planned := next_point(work.plan, recorded)) is not None:
            point, records = measure(engine, work, planned, listener=listener, cancelled=cancelled)
            listener.point(point, records)
            recorded.append(point)
        return engine.read_log()


def warm_up(engine: RunningEngine, work: TrialWork, cancelled: Event) -> None:
    """Run the batch sizes of the plan once on short requests; nothing of it is recorded.

    An eager engine captures and compiles nothing per batch size: a few requests are enough there.
    """
    config = work.plan.config
    largest = max(point.concurrency for point in work.plan.points)
    if config.functional.enforce_eager:
        largest = min(largest, WARM_REQUESTS_EAGER)
    sample = work.sample.warming(min(largest, config.levers.max_num_seqs or largest))
    _load(engine, sample, len(sample.requests), cancelled=cancelled, on_progress=None)


def measure(
    engine: RunningEngine,
    work: TrialWork,
    planned: PointPlan,
    *,
    listener: TrialListener,
    cancelled: Event,
) -> tuple[LoadPoint, bytes]:
    """One load point from an empty prefix cache, and its per-request records as Parquet."""
    sample = work.sample.first(planned.requests)
    watch = HostWatch(ours=lambda: work.ours, tokens=(engine.token,))
    try:
        engine.reset_prefix_cache()
        before = engine.snapshot()
        watch.start()
        with GaugeSampler(engine.snapshot) as gauges:
            records = _load(
                engine,
                sample,
                planned.concurrency,
                cancelled=cancelled,
                on_progress=lambda done, total: listener.load(planned, done, total),
            )
        host = watch.stop()
        engine.check_alive()
        counters = difference(before, engine.snapshot(), gauges.peaks)
    except UnusableCounters as error:
        engine.check_alive()
        raise EngineFailed(FailureKind.LOAD_FAILED, str(error)) from error
    point = _summary(work, planned, sample, records=records, counters=counters, host=host)
    return point, records_to_parquet(records)


def _load(
    engine: RunningEngine,
    sample: Sample,
    concurrency: int,
    *,
    cancelled: Event,
    on_progress: Callable[[int, int], None] | None,
) -> list[RequestRecord]:
    plan = load_plan(
        sample.requests,
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        concurrency=concurrency,
        rule=sample.rule,
        output_tokens=sample.output_tokens,
    )
    return run_load(plan, on_progress=on_progress, cancelled=cancelled)


def _summary(
    work: TrialWork,
    planned: PointPlan,
    sample: Sample,
    *,
    records: Sequence[RequestRecord],
    counters: EngineCounters,
    host: HostLoad,
) -> LoadPoint:
    speculation = work.plan.config.levers.speculative_config
    try:
        return summarise_point(
            concurrency=planned.concurrency,
            repeat=planned.repeat,
            subset_digest=sample.digest,
            records=records,
            counters=counters,
            host=host if work.check_neighbours else replace(host, disturbed=False),
            num_speculative_tokens=(
                None if speculation is None else speculation.num_speculative_tokens
            ),
        )
    except InvalidInput as error:
        raise EngineFailed(FailureKind.LOAD_FAILED, str(error)) from error
