"""One load on a server: what is sent, what came back, what the server counted meanwhile."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from advisor.errors import EngineFailed, InvalidInput
from advisor.measurement.asked import MeasurePlan, Salt
from advisor.measurement.points import summarise_point
from advisor.measurement.records import (
    EngineCounters,
    HostLoad,
    LoadPoint,
    OpenLoop,
    Outcome,
    RequestRecord,
)
from advisor.measurement.report import Rank
from advisor.measurement.request_acceptance import acceptance_by
from advisor.states import FailureKind
from probes.host import HostWatch
from probes.load.runner import Loaded, run_load
from probes.measure.sending import Shot, load_plan_of, open_loop_of
from probes.measure.server import Server
from probes.power import power_remarks
from probes.vllm.metrics import (
    EngineSnapshot,
    GaugePeaks,
    GaugeSampler,
    UnusableCounters,
    difference,
)

# Of the tokens that a server generated meanwhile, what need not be ours: counts at the borders.
_FOREIGN_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A measured load with its records."""

    point: LoadPoint
    records: tuple[RequestRecord, ...]


def take(
    server: Server,
    plan: MeasurePlan,
    shot: Shot,
    *,
    cancelled: threading.Event,
    on_progress: Callable[[int, int], None] | None = None,
) -> Taken:
    """Make one load and summarise it.

    Raises `EngineFailed`: `CANCELLED` when the event was set, else what became of the engine or of
    the load client; `Unavailable` when an attached server is gone.
    """
    loop = open_loop_of(plan, shot)
    load = load_plan_of(server, plan, shot, loop)
    watch = HostWatch(tokens=server.tokens)
    server.fresh()
    before = server.snapshot()
    watch.start()
    busy = loop is None
    meter = server.meter()
    with _sampler(server) as gauges, meter, server.watched(cancelled, busy=busy) as ended:
        loaded = run_load(load, on_progress=on_progress, cancelled=ended)
    host = watch.stop()
    after = _after(server)
    counters, flaw = _counted(before, after, gauges.peaks if gauges else None, loaded.records)
    if flaw is not None and server.rank is Rank.OWN_ENGINE:
        server.check()
        raise EngineFailed(FailureKind.LOAD_FAILED, flaw)
    point = _point(shot, loop, loaded=loaded, counters=counters, host=_host(server, host))
    point = replace(point, energy_j=meter.figures.energy_j)
    flaws = [flaw, _foreign(server, before, counters, loaded.records)]
    return Taken(
        point=_marked(
            point,
            [said for said in flaws if said],
            [*power_remarks(meter.figures), *_remarks(server, plan, shot)],
        ),
        records=loaded.records,
    )


def _sampler(server: Server) -> AbstractContextManager[GaugeSampler | None]:
    def fetch() -> EngineSnapshot:
        snapshot = server.snapshot()
        if snapshot is None:
            raise UnusableCounters("metrics", "are closed")
        return snapshot

    return nullcontext() if server.snapshot() is None else GaugeSampler(fetch)


def _after(server: Server) -> EngineSnapshot | None:
    server.check()
    return server.snapshot()


def _counted(
    before: EngineSnapshot | None,
    after: EngineSnapshot | None,
    gauges: GaugePeaks | None,
    records: Sequence[RequestRecord],
) -> tuple[EngineCounters, str | None]:
    """What the engine counted, or what the client did, and what is wrong with the counters."""
    if before is None or after is None:
        return _by_client(records), None
    try:
        return difference(before, after, gauges), None
    except UnusableCounters as error:
        return _by_client(records), f"the server's counters cannot be used: {error}"


def _by_client(records: Sequence[RequestRecord]) -> EngineCounters:
    return EngineCounters(
        prompt_tokens=sum(record.prompt_tokens or 0 for record in records),
        generation_tokens=sum(record.output_tokens or 0 for record in records),
        engine_steps=None,
        prefix_queries=0,
        prefix_hits=0,
        preemptions=0,
        drafts=0,
        draft_tokens=0,
        accepted=0,
        accepted_per_position=(),
        peak_kv_usage=None,
        peak_running=None,
        peak_waiting=None,
        known=False,
    )


def _host(server: Server, host: HostLoad) -> HostLoad:
    """Neighbours disturb an engine on this machine; one elsewhere has others, which we cannot see.

    Whether this machine held the load client back is told by the client's own health.
    """
    return host if server.rank is Rank.OWN_ENGINE else replace(host, disturbed=False)


def _point(
    shot: Shot,
    loop: OpenLoop | None,
    *,
    loaded: Loaded,
    counters: EngineCounters,
    host: HostLoad,
) -> LoadPoint:
    positions = len(counters.accepted_per_position)
    try:
        point = summarise_point(
            concurrency=int(shot.planned.level) if loop is None else None,
            repeat=shot.planned.repeat,
            subset_digest=shot.digest,
            records=loaded.records,
            counters=counters,
            host=host,
            num_speculative_tokens=positions or None,
            client=loaded.health,
            open_loop=loop,
            not_fitting=shot.not_fitting,
        )
    except InvalidInput as error:
        raise EngineFailed(FailureKind.LOAD_FAILED, str(error)) from error
    if positions:
        by = acceptance_by(loaded.records, num_speculative_tokens=positions)
        point = replace(point, acceptance_by=by)
    if counters.known:
        return point
    return replace(point, prefix_hit_share=cached_share(loaded.records))


def cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Share of prompt tokens that the server says it had cached; None where it does not say."""
    told = [
        (record.cached_tokens, record.prompt_tokens)
        for record in records
        if record.outcome is Outcome.OK
        and record.cached_tokens is not None
        and record.prompt_tokens
    ]
    prompts = sum(prompt or 0 for _, prompt in told)
    return sum(cached or 0 for cached, _ in told) / prompts if prompts else None


def _foreign(
    server: Server,
    before: EngineSnapshot | None,
    counters: EngineCounters,
    records: Sequence[RequestRecord],
) -> str | None:
    """A flaw where an attached server worked for others meanwhile; None where that is not seen."""
    if server.rank is Rank.OWN_ENGINE or before is None or not counters.known:
        return None
    if before.running:
        return f"the server was busy before the load: {before.running} requests running"
    ours = sum(record.output_tokens or 0 for record in records)
    theirs = counters.generation_tokens - ours
    failed = any(record.outcome is not Outcome.OK for record in records)
    if failed or theirs <= max(1.0, _FOREIGN_SHARE * counters.generation_tokens):
        return None
    return (
        f"the server worked for others: {theirs} of the {counters.generation_tokens} tokens that"
        " it generated meanwhile are not ours"
    )


def _remarks(server: Server, plan: MeasurePlan, shot: Shot) -> list[str]:
    """What a reader must know of a load that is usable all the same."""
    own = server.rank is Rank.OWN_ENGINE
    unsalted = server.salt(plan.salt) is Salt.NONE
    sent, wanted, deal = len(shot.workload.requests), shot.planned.requests, shot.deal
    remarks = []
    if unsalted and not own and deal.again:
        remarks.append("requests were sent before: the prefix cache may have known them")
    if unsalted and not server.identity.is_vllm and any(deal.laps):
        remarks.append("requests came again within the load: the prefix cache may have known them")
    if sent < wanted:
        remarks.append(f"the workload has {sent} requests for a load, {wanted} were wanted")
    return remarks


def _marked(point: LoadPoint, flaws: Sequence[str], remarks: Sequence[str]) -> LoadPoint:
    return replace(
        point,
        usable=point.usable and not flaws,
        flaws=(*flaws, *point.flaws, *remarks),
    )
