"""Trials and their load points. Law: no finished load point is measured twice."""

import uuid
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from advisor.errors import NotFound, StateConflict
from advisor.measurement.records import LoadPoint, LoadRole, QualityPass, QualityRecord
from advisor.states import (
    TRIAL_OVER,
    TRIAL_TRANSITIONS,
    FailureKind,
    RunState,
    TrialState,
    moved,
)
from db import audit, devices, events, runs, studies
from db.audit import Actor
from db.tables import EngineRunRow, LoadPointRow, RequestRecordsRow, StudyRow, TrialRow


def of_study(session: Session, study_id: uuid.UUID) -> list[TrialRow]:
    """Trials of a study in the order in which they were planned."""
    query = select(TrialRow).where(TrialRow.study_id == study_id)
    return list(session.scalars(query.order_by(TrialRow.seq)))


def start(
    session: Session,
    trial: TrialRow,
    *,
    device_id: uuid.UUID,
    fencing_token: int,
    token: str,
    now: datetime,
    actor: Actor,
) -> EngineRunRow:
    """Begin to measure: the trial moves to measuring and gets a run, in one step.

    `token` is the run's own name (the served model name, and the mark in its environment).
    """
    moved_row = transition(session, trial, TrialState.MEASURING, actor=actor, now=now)
    return runs.begin_for_trial(
        session,
        moved_row,
        device_id=device_id,
        fencing_token=fencing_token,
        token=token,
        now=now,
    )


def transition(
    session: Session,
    trial: TrialRow,
    wanted: TrialState,
    *,
    actor: Actor,
    now: datetime,
    failure_kind: str | None = None,
    reason: str | None = None,
) -> TrialRow:
    """Move a trial along its state machine; `StateConflict` when it has no such arrow."""
    study = studies.lock(session, trial.study_id)
    row = _locked(session, trial)
    state = moved("trial", TRIAL_TRANSITIONS, TrialState(row.state), wanted)
    row.state = state.value
    row.failure_kind = failure_kind
    row.reason = reason
    if state is TrialState.MEASURING:
        row.started_at = row.started_at or now
    if state in TRIAL_OVER:
        row.ended_at = now
    session.flush()
    body = {
        "trial": row.key,
        "title": row.plan.title,
        "state": state.value,
        "failure_kind": failure_kind,
        "reason": reason,
    }
    _told(session, study, row, actor=actor, now=now, body=body)
    return row


def measured(session: Session, trial_id: uuid.UUID) -> set[tuple[LoadRole, int, int]]:
    """(role, concurrency, repeat) of the points that the trial has."""
    query = select(LoadPointRow.role, LoadPointRow.concurrency, LoadPointRow.repeat)
    found = session.execute(query.where(LoadPointRow.trial_id == trial_id))
    return {(LoadRole(role), concurrency, repeat) for role, concurrency, repeat in found}


def points(session: Session, study_id: uuid.UUID) -> dict[uuid.UUID, list[LoadPointRow]]:
    """Load points of a study by trial, in the order in which they were measured."""
    query = select(LoadPointRow).join(TrialRow, TrialRow.id == LoadPointRow.trial_id)
    query = query.where(TrialRow.study_id == study_id)
    ordered = query.order_by(LoadPointRow.created_at, LoadPointRow.concurrency, LoadPointRow.repeat)
    found: dict[uuid.UUID, list[LoadPointRow]] = {}
    for row in session.scalars(ordered):
        found.setdefault(row.trial_id, []).append(row)
    return found


def record_point(
    session: Session,
    *,
    trial: TrialRow,
    run: EngineRunRow,
    point: LoadPoint,
    records: bytes | None,
    now: datetime,
) -> LoadPointRow:
    """Keep a finished load point with its per-request records (compressed Parquet).

    Refused with `StateConflict` under an outdated fencing token, and when the point is there.
    """
    study = studies.lock(session, trial.study_id)
    devices.check_lease(session, run.device_id, run.fencing_token)
    if run.trial_id != trial.id:
        raise StateConflict("engine run", "of another trial", "measured by this one")
    statement = insert(LoadPointRow).values(
        id=uuid.uuid4(),
        trial_id=trial.id,
        engine_run_id=run.id,
        role=point.role.value,
        concurrency=point.concurrency,
        repeat=point.repeat,
        point=point,
        created_at=now,
    )
    key = ["trial_id", "role", "concurrency", "repeat"]
    once = statement.on_conflict_do_nothing(index_elements=key)
    row = session.scalars(once.returning(LoadPointRow)).one_or_none()
    if row is None:
        raise StateConflict("load point", "measured", "measured again")
    if records is not None:
        session.add(RequestRecordsRow(load_point_id=row.id, body=records))
        session.flush()
    body = {
        "trial": trial.key,
        "role": point.role.value,
        "concurrency": point.concurrency,
        "repeat": point.repeat,
        "throughput_tokens_per_s": point.throughput_tokens_per_s.value,
        "usable": point.usable,
    }
    events.append(session, noun=studies.NOUN, noun_id=study.id, kind="point", body=body, now=now)
    return row


def record_quality(
    session: Session, *, trial: TrialRow, run: EngineRunRow, passed: QualityPass
) -> TrialRow:
    """Keep one more finished quality pass; refused under an outdated fencing token."""
    studies.lock(session, trial.study_id)
    devices.check_lease(session, run.device_id, run.fencing_token)
    row = _locked(session, trial)
    earlier = row.quality.passes if row.quality is not None else ()
    row.quality = QualityRecord(passes=(*earlier, passed))
    session.flush()
    return row


def request_records(session: Session, load_point_id: uuid.UUID) -> bytes | None:
    """Per-request records of a point as compressed Parquet; None when none were kept."""
    row = session.get(RequestRecordsRow, load_point_id)
    return None if row is None else row.body


def abandon(
    session: Session, *, device_id: uuid.UUID, actor: Actor, now: datetime
) -> list[TrialRow]:
    """After a sweep of the device: its trials' live runs failed (agent lost), trials wait again.

    Finished load points stay.
    """
    found = []
    for run in runs.unfinished(session, device_id):
        trial = session.get(TrialRow, run.trial_id) if run.trial_id is not None else None
        if trial is None:
            continue
        studies.lock(session, trial.study_id)
        kind = FailureKind.AGENT_LOST.value
        detail = "the agent that ran it was lost"
        runs.ended(session, run, RunState.FAILED, now=now, failure_kind=kind, failure_detail=detail)
        if trial.state == TrialState.MEASURING.value:
            again = transition(
                session, trial, TrialState.QUEUED, actor=actor, now=now, reason=detail
            )
            found.append(again)
    return found


def _locked(session: Session, trial: TrialRow) -> TrialRow:
    query = select(TrialRow).where(TrialRow.id == trial.id).with_for_update(key_share=True)
    row = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        raise NotFound("trial", str(trial.id))
    return row


def _told(
    session: Session,
    study: StudyRow,
    trial: TrialRow,
    *,
    actor: Actor,
    now: datetime,
    body: Mapping[str, object],
) -> None:
    """Audit row of the trial and event of its study."""
    audit.write(
        session,
        actor=actor,
        action=trial.state,
        noun="trial",
        noun_id=trial.id,
        now=now,
        project_id=study.project_id,
        detail=body,
    )
    events.append(session, noun=studies.NOUN, noun_id=study.id, kind="trial", body=body, now=now)
