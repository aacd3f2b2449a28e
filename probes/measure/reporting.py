"""The report of a measurement: what was measured, of whom, under which plan."""

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import datetime
from importlib.metadata import version

from advisor.canonical import Json, as_json, digest
from advisor.errors import InvalidInput
from advisor.measurement.asked import MeasurePlan, Salt
from advisor.measurement.findings import Findings
from advisor.measurement.memory import breakdown, preemption_onset
from advisor.measurement.records import LoadPoint, LoopKind
from advisor.measurement.report import MeasurementReport, Rank, measured_point
from advisor.measurement.saturation import fit_saturation
from probes.measure.driver import Measured
from probes.measure.server import Server

TOOL = "rooftune"
# What may differ between two runs that go on with each other: how much is enough.
_FREE = ("budget_s", "precision", "most_repeats")
_SALTED = {
    Salt.FIELD: "every load had a cache_salt of its own: no prefix cached by an earlier load was"
    " reused, what requests of one load share was",
    Salt.PROMPT: "a word was put before the first message of every request, another one for each"
    " load: prompts are some tokens longer than yours, and no earlier load's prefix was reused",
    Salt.NONE: "the prefix cache could neither be emptied nor kept apart between loads",
}

_NO_COUNTERS = (
    "the server's counters cannot be read (/metrics): preemptions and acceptance are unknown, and"
    " whether it worked for others meanwhile"
)


def plan_digest(plan: MeasurePlan, server: Server, workload_digest: str, config_hash: str) -> str:
    """Names what is measured: loads with equal ones may stand in one report."""
    own = server.rank is Rank.OWN_ENGINE
    return digest(
        {
            "plan": plan_values(plan),
            "workload": workload_digest,
            "address": None if own else server.address.shown,
            "model": None if own else server.identity.model,
            "engine": server.identity.title,
            "config": config_hash,
        }
    )


def plan_values(plan: MeasurePlan) -> dict[str, Json]:
    """The plan without what only says how much is enough."""
    return {
        item.name: as_json(getattr(plan, item.name))
        for item in fields(plan)
        if item.name not in _FREE
    }


def continued(report: MeasurementReport | None, wanted: str) -> tuple[LoadPoint, ...]:
    """The loads of an earlier run; one of something else raises `InvalidInput`."""
    if report is None:
        return ()
    if report.plan_digest != wanted:
        raise InvalidInput(
            "--out", "the file holds another measurement: name another file, or remove it"
        )
    return report.loads


def report_of(
    measured: Measured,
    server: Server,
    plan: MeasurePlan,
    *,
    wanted: str,
    model: str,
    started: datetime,
) -> MeasurementReport:
    """The report; its numbers carry the source of the server's rank."""
    loads = tuple(sourced(load, server.rank) for load in measured.loads)
    return MeasurementReport(
        rank=server.rank,
        tool=TOOL,
        tool_version=version(TOOL),
        model=model,
        engine=server.identity.title,
        started_epoch_s=started.timestamp(),
        points=tuple(measured_point(load) for load in loads),
        loads=loads,
        remarks=(*measured.remarks, *_cache_remarks(server, plan), *_counter_remarks(loads)),
        plan_digest=wanted,
        complete=measured.complete,
        findings=_findings(measured, server, plan, loads),
    )


def sourced(load: LoadPoint, rank: Rank) -> LoadPoint:
    """The load with the source of that rank."""
    rate = replace(load.throughput_tokens_per_s, source=rank.source)
    return replace(load, throughput_tokens_per_s=rate)


def _findings(
    measured: Measured, server: Server, plan: MeasurePlan, loads: Sequence[LoadPoint]
) -> Findings:
    facts = server.facts
    closed = plan.kind is LoopKind.CLOSED
    most = None if facts is None else facts.max_num_seqs
    return Findings(
        capacity=measured.capacity,
        tried=measured.tried,
        saturation=fit_saturation(loads, max_num_seqs=most, seed=plan.seed) if closed else None,
        onset=preemption_onset(loads, facts) if closed else None,
        memory=None if facts is None else breakdown(facts, points=loads),
        start_s=None if facts is None else facts.start_s,
        start_phases=() if facts is None else facts.start_phases,
    )


def _cache_remarks(server: Server, plan: MeasurePlan) -> tuple[str, ...]:
    if server.rank is Rank.OWN_ENGINE:
        return ("the prefix cache was emptied before every load",)
    return (_SALTED[server.salt(plan.salt)],)


def _counter_remarks(loads: Sequence[LoadPoint]) -> tuple[str, ...]:
    if all(load.counters.known for load in loads):
        return ()
    return (_NO_COUNTERS,)
