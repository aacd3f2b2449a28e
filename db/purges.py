"""Purging a workload: its texts and all that was made of them go, figures and names stay.

The transaction of `purge` empties the database. Files on the agents' disks follow: every agent
looks for purged workloads that it has not swept yet (`unswept`) and says so when it has.
Committed bytes leave PostgreSQL's files with its next vacuum; backups of it are their owner's.
"""

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.states import DEPLOYMENT_OVER, STUDY_OVER
from advisor.traffic.figures import ClassSummary, TrafficSummary
from advisor.traffic.trace import TraceReport
from db import audit, studies, workloads
from db.audit import Actor
from db.identity_tables import AuditRow, EventRow, IdempotencyRow
from db.tables import (
    DeploymentRow,
    DeviceRow,
    EngineRunRow,
    LoadPointRow,
    RecommendationRow,
    RequestRecordsRow,
    StudyRow,
    TokenColumnsRow,
    TrialRow,
    WorkloadChunkRow,
    WorkloadOriginRow,
    WorkloadPurgeRow,
    WorkloadRow,
)

log = logging.getLogger(__name__)
GONE = "the upload was purged"
ERROR_GONE = "its error went with the purge of its workload"
NEEDS_NO_DATA = "rtn"  # rounding to nearest is not calibrated on anything
RETENTION = Actor(name="retention")
UPLOAD_ROUTE = "POST /v1/workloads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unswept:
    """A purged workload that an agent has not swept: what files of it are named after.

    `digest` None: another upload that is kept has the same requests, so its files stay.
    """

    workload_id: uuid.UUID
    digest: str | None
    run_tokens: frozenset[str]


def purge(
    session: Session,
    workload_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    actor: Actor,
    now: datetime,
) -> WorkloadRow:
    """Delete a workload's texts and everything derived from them; again changes nothing.

    Workloads that were made of it go with it. Raises `StateConflict` with a remedy while a study
    runs on one of them or a deployment serves weights that were calibrated on it.
    """
    row = workloads.one(session, workload_id, project_ids)
    rows = [_locked(session, found) for found in (row.id, *_made_of(session, row.id))]
    for found in rows:
        if found.purged_at is None:
            _refuse_in_use(session, found)
    for found in rows:
        if found.purged_at is None:
            _emptied(session, found, actor=actor, now=now)
    return rows[0]


def purge_expired(session: Session, *, now: datetime) -> int:
    """Purge one workload whose time is over, if there is one; how many there were (0 or 1).

    Its running studies are asked to end first, and it is purged at a later look. One that a
    deployment needs waits for its end.
    """
    query = (
        select(WorkloadRow.id)
        .where(WorkloadRow.purged_at.is_(None), WorkloadRow.expires_at <= now)
        .order_by(WorkloadRow.expires_at)
    )
    for workload_id in session.scalars(query.with_for_update(skip_locked=True)).all():
        for study in _running(session, workload_id):
            studies.request_cancel(session, study.id, None, actor=RETENTION, now=now)
        session.flush()
        try:
            purge(session, workload_id, None, actor=RETENTION, now=now)
        except StateConflict as error:
            log.info("workload %s is past its time and waits: %s", workload_id, error)
            continue
        return 1
    return 0


def sweeps(session: Session, row: WorkloadRow) -> list[tuple[DeviceRow, WorkloadPurgeRow | None]]:
    """Devices that were there at the purge, and what their agents did; none before it."""
    if row.purged_at is None:
        return []
    match = and_(WorkloadPurgeRow.device_id == DeviceRow.id, WorkloadPurgeRow.workload_id == row.id)
    query = (
        select(DeviceRow, WorkloadPurgeRow)
        .outerjoin(WorkloadPurgeRow, match)
        .where(or_(DeviceRow.created_at <= row.purged_at, WorkloadPurgeRow.at.is_not(None)))
        .order_by(DeviceRow.host, DeviceRow.name)
    )
    return [(device, found) for device, found in session.execute(query)]


def unswept(session: Session, device_id: uuid.UUID) -> list[Unswept]:
    """Purged workloads whose files this device's agent has not looked for since."""
    done = select(WorkloadPurgeRow.workload_id).where(WorkloadPurgeRow.device_id == device_id)
    query = select(WorkloadRow).where(
        WorkloadRow.purged_at.is_not(None), WorkloadRow.id.not_in(done)
    )
    return [
        Unswept(
            workload_id=row.id,
            digest=None if _is_kept_elsewhere(session, row) else row.digest,
            run_tokens=frozenset(session.scalars(_run_tokens(row.id))),
        )
        for row in session.scalars(query.order_by(WorkloadRow.purged_at))
    ]


def swept(
    session: Session,
    workload_id: uuid.UUID,
    device_id: uuid.UUID,
    *,
    removed: int,
    now: datetime,
) -> None:
    """The agent of a device has removed what it held of a purged workload."""
    session.merge(
        WorkloadPurgeRow(workload_id=workload_id, device_id=device_id, at=now, removed=removed)
    )
    session.flush()


def purged_at(session: Session, study_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, datetime]:
    """When the evidence of these studies was purged, for those of which it was."""
    query = (
        select(StudyRow.id, WorkloadRow.purged_at)
        .join(WorkloadRow, WorkloadRow.id == StudyRow.workload_id)
        .where(StudyRow.id.in_(list(study_ids)), WorkloadRow.purged_at.is_not(None))
    )
    return {study: at for study, at in session.execute(query) if at is not None}


def _locked(session: Session, workload_id: uuid.UUID) -> WorkloadRow:
    query = select(WorkloadRow).where(WorkloadRow.id == workload_id).with_for_update()
    return session.scalars(query, execution_options={"populate_existing": True}).one()


def _made_of(session: Session, workload_id: uuid.UUID) -> list[uuid.UUID]:
    """Workloads made of this one, of those, and so on."""
    made = (
        select(WorkloadOriginRow.workload_id)
        .where(WorkloadOriginRow.origin_id == workload_id)
        .cte(recursive=True)
    )
    further = select(WorkloadOriginRow.workload_id).join(
        made, WorkloadOriginRow.origin_id == made.c.workload_id
    )
    return list(session.scalars(select(made.union(further).c.workload_id)))


def _running(session: Session, workload_id: uuid.UUID) -> Sequence[StudyRow]:
    over = [state.value for state in STUDY_OVER]
    query = select(StudyRow).where(StudyRow.workload_id == workload_id, StudyRow.state.not_in(over))
    return session.scalars(query).all()


def _refuse_in_use(session: Session, row: WorkloadRow) -> None:
    for study in _running(session, row.id):
        raise StateConflict(
            "workload",
            f"in use by study {study.name!r}",
            "purged",
            f"cancel the study ({study.id}) or let it end, then purge again",
        )
    over = [state.value for state in DEPLOYMENT_OVER]
    query = (
        select(DeploymentRow)
        .join(RecommendationRow, RecommendationRow.id == DeploymentRow.recommendation_id)
        .join(StudyRow, StudyRow.id == RecommendationRow.study_id)
        .where(StudyRow.workload_id == row.id, DeploymentRow.state.not_in(over))
    )
    for deployment in session.scalars(query):
        quantization = deployment.config.levers.quantization
        if quantization is not None and quantization.algorithm != NEEDS_NO_DATA:
            raise StateConflict(
                "workload",
                f"in use by deployment {deployment.name!r}",
                "purged",
                f"its weights were calibrated on the upload: stop the deployment ({deployment.id})"
                " or replace it, then purge again",
            )


def _emptied(session: Session, row: WorkloadRow, *, actor: Actor, now: datetime) -> None:
    """Delete what is derived from a locked workload, and leave its tombstone."""
    study_ids = list(session.scalars(select(StudyRow.id).where(StudyRow.workload_id == row.id)))
    session.execute(delete(WorkloadChunkRow).where(WorkloadChunkRow.workload_id == row.id))
    session.execute(delete(TokenColumnsRow).where(TokenColumnsRow.workload_id == row.id))
    _empty_studies(session, study_ids)
    answers = delete(IdempotencyRow).where(
        IdempotencyRow.route.startswith(UPLOAD_ROUTE),
        IdempotencyRow.body["id"].astext == str(row.id),
    )
    session.execute(answers)
    row.summary = without_text(row.summary)
    row.report = without_names(row.report)
    row.purged_at = now
    session.flush()
    audit.write(
        session,
        actor=actor,
        action="purge",
        noun="workload",
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail={"name": row.name, "digest": row.digest, "studies": len(study_ids)},
    )


def _empty_studies(session: Session, study_ids: Sequence[uuid.UUID]) -> None:
    """Answers, per-request records, logs and what quotes them; load points keep their figures."""
    if not study_ids:
        return
    trials = select(TrialRow.id).where(TrialRow.study_id.in_(study_ids))
    points = select(LoadPointRow.id).where(LoadPointRow.trial_id.in_(trials))
    trial_ids = [str(item) for item in session.scalars(trials)]
    nouns = or_(
        _named(EventRow, "study", [str(item) for item in study_ids]),
        _named(EventRow, "trial", trial_ids),
    )
    quoting = or_(
        _named(AuditRow, "study", [str(item) for item in study_ids]),
        _named(AuditRow, "trial", trial_ids),
    )
    session.execute(delete(RequestRecordsRow).where(RequestRecordsRow.load_point_id.in_(points)))
    _change(session, TrialRow, TrialRow.study_id.in_(study_ids), quality=None)
    failed = and_(TrialRow.study_id.in_(study_ids), TrialRow.failure_kind.is_not(None))
    _change(session, TrialRow, failed, reason=ERROR_GONE)
    _change(session, EngineRunRow, EngineRunRow.trial_id.in_(trials), log=None, failure_detail=None)
    erred = and_(StudyRow.id.in_(study_ids), StudyRow.error.is_not(None))
    _change(session, StudyRow, erred, error=ERROR_GONE)
    _change(session, EventRow, nouns, body={})
    quoted = func.jsonb_strip_nulls(AuditRow.detail).op("-")("error").op("-")("reason")
    _change(session, AuditRow, quoting, detail=quoted)
    for row in list(session):
        if isinstance(row, TrialRow | EngineRunRow | StudyRow | EventRow | AuditRow):
            session.expire(row)


def _named(table: Any, noun: str, identifiers: Sequence[str]) -> Any:
    return and_(table.noun == noun, table.noun_id.in_(identifiers))


def _change(session: Session, table: Any, where: Any, **values: object) -> None:
    statement = update(table).where(where).values(**values)
    session.execute(statement, execution_options={"synchronize_session": False})


def _run_tokens(workload_id: uuid.UUID) -> Select[str]:
    """Names of the engine runs of a workload's studies."""
    return (
        select(EngineRunRow.token)
        .join(TrialRow, TrialRow.id == EngineRunRow.trial_id)
        .join(StudyRow, StudyRow.id == TrialRow.study_id)
        .where(StudyRow.workload_id == workload_id)
    )


def _is_kept_elsewhere(session: Session, row: WorkloadRow) -> bool:
    query = select(WorkloadRow.id).where(
        WorkloadRow.digest == row.digest, WorkloadRow.purged_at.is_(None)
    )
    return session.scalars(query.limit(1)).first() is not None


def without_text(summary: TrafficSummary) -> TrafficSummary:
    """Counts, lengths and times of a summary; nothing that was read off the text, no names."""
    overall = summary.overall
    return TrafficSummary(
        requests=summary.requests,
        with_text=summary.with_text,
        sessions=summary.sessions,
        count_source=summary.count_source,
        overall=ClassSummary(
            label=overall.label,
            requests=overall.requests,
            prompt_tokens=overall.prompt_tokens,
            output_tokens=overall.output_tokens,
            prefix_sharing=None,
            lookup=None,
        ),
        classes=(),
        arrivals=summary.arrivals,
        unmeasurable={"privacy": GONE},
        total_tokens=summary.total_tokens,
        paged_share=summary.paged_share,
        block_size=summary.block_size,
        static_speedup=summary.static_speedup,
        privacy=summary.privacy,
    )


def without_names(report: TraceReport) -> TraceReport:
    """The counts of a report; no warnings, no names of the file's columns, no bad lines."""
    return replace(report, rejects=(), warnings=(), columns={}, readings={})
