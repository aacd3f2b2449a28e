"""Engine runs: one start of an engine, for a trial or a deployment."""

import uuid
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from advisor.errors import NotFound
from advisor.serving import EngineFacts
from advisor.states import RUN_TRANSITIONS, RunState, moved
from db import devices
from db.tables import DeploymentRow, EngineRunRow, StudyRow, TrialRow, WorkloadRow

LIVE = (RunState.STARTING.value, RunState.READY.value)


def begin_for_trial(
    session: Session,
    trial: TrialRow,
    *,
    device_id: uuid.UUID,
    fencing_token: int,
    token: str,
    now: datetime,
) -> EngineRunRow:
    """A run in state starting; an outdated fencing token is refused."""
    row = _new(device_id=device_id, fencing_token=fencing_token, token=token, now=now)
    row.trial_id = trial.id
    row.attempt = 1 + _count(session, trial_id=trial.id)
    return _kept(session, row)


def begin_for_deployment(
    session: Session,
    deployment: DeploymentRow,
    *,
    device_id: uuid.UUID,
    fencing_token: int,
    token: str,
    now: datetime,
) -> EngineRunRow:
    """A run in state starting; an outdated fencing token is refused."""
    row = _new(device_id=device_id, fencing_token=fencing_token, token=token, now=now)
    row.deployment_id = deployment.id
    row.attempt = 1 + _count(session, deployment_id=deployment.id)
    return _kept(session, row)


def started(
    session: Session,
    run: EngineRunRow,
    *,
    pid: int,
    pid_started_at: float | None,
    port: int,
) -> None:
    """The process is there: what a later sweep needs to recognise it."""
    row = _locked(session, run)
    row.pid = pid
    row.pid_started_at = pid_started_at
    row.port = port
    session.flush()


def ready(session: Session, run: EngineRunRow, facts: EngineFacts, *, now: datetime) -> None:
    """The engine answers and said these facts of itself."""
    row = _locked(session, run)
    row.state = moved("engine run", RUN_TRANSITIONS, RunState(row.state), RunState.READY).value
    row.facts = facts
    row.ready_at = now
    session.flush()


def ended(
    session: Session,
    run: EngineRunRow,
    state: RunState,
    *,
    now: datetime,
    failure_kind: str | None = None,
    failure_detail: str | None = None,
    log: bytes | None = None,
) -> None:
    """The engine is gone: `stopped`, or `failed` with a kind; `log` is zstd-compressed text."""
    row = _locked(session, run)
    row.state = moved("engine run", RUN_TRANSITIONS, RunState(row.state), state).value
    row.failure_kind = failure_kind
    row.failure_detail = failure_detail
    row.ended_at = now
    if log is not None:
        row.log = log
    session.flush()


def unfinished(session: Session, device_id: uuid.UUID) -> list[EngineRunRow]:
    """Runs of a device that are not known to have ended, oldest first."""
    query = select(EngineRunRow).where(
        EngineRunRow.device_id == device_id, EngineRunRow.state.in_(LIVE)
    )
    return list(session.scalars(query.order_by(EngineRunRow.created_at)))


def ended_without_log(
    session: Session, device_id: uuid.UUID, tokens: Collection[str]
) -> list[EngineRunRow]:
    """Ended runs of a device, of these tokens, whose log nobody kept and nobody purged."""
    purged = (
        select(TrialRow.id)
        .join(StudyRow, StudyRow.id == TrialRow.study_id)
        .join(WorkloadRow, WorkloadRow.id == StudyRow.workload_id)
        .where(TrialRow.id == EngineRunRow.trial_id, WorkloadRow.purged_at.is_not(None))
    )
    query = select(EngineRunRow).where(
        EngineRunRow.device_id == device_id,
        EngineRunRow.token.in_(tokens),
        EngineRunRow.state.not_in(LIVE),
        EngineRunRow.log.is_(None),
        ~purged.exists(),
    )
    return list(session.scalars(query.order_by(EngineRunRow.created_at)))


def keep_log(session: Session, run: EngineRunRow, log: bytes | None) -> None:
    """The log of a run that ended without its agent; one that is there stays."""
    row = _locked(session, run)
    if row.log is None:
        row.log = log
    session.flush()


def of_trial(session: Session, trial_id: uuid.UUID) -> list[EngineRunRow]:
    """Runs of a trial in order of their attempts, without logs."""
    query = select(EngineRunRow).where(EngineRunRow.trial_id == trial_id)
    return list(session.scalars(query.order_by(EngineRunRow.attempt)))


def of_study(session: Session, study_id: uuid.UUID) -> list[EngineRunRow]:
    """Runs of all trials of a study, oldest first, without logs."""
    query = select(EngineRunRow).join(TrialRow, TrialRow.id == EngineRunRow.trial_id)
    query = query.where(TrialRow.study_id == study_id)
    return list(session.scalars(query.order_by(EngineRunRow.created_at, EngineRunRow.attempt)))


def of_deployment(session: Session, deployment_id: uuid.UUID) -> list[EngineRunRow]:
    """Runs of a deployment in order of their attempts, without logs."""
    query = select(EngineRunRow).where(EngineRunRow.deployment_id == deployment_id)
    return list(session.scalars(query.order_by(EngineRunRow.attempt)))


def log(session: Session, run_id: uuid.UUID) -> bytes | None:
    """The compressed log of a run; None while it has none."""
    found = session.execute(select(EngineRunRow.log).where(EngineRunRow.id == run_id)).one_or_none()
    if found is None:
        raise NotFound("engine run", str(run_id))
    body: bytes | None = found[0]
    return body


def _new(*, device_id: uuid.UUID, fencing_token: int, token: str, now: datetime) -> EngineRunRow:
    return EngineRunRow(
        id=uuid.uuid4(),
        device_id=device_id,
        fencing_token=fencing_token,
        token=token,
        state=RunState.STARTING.value,
        created_at=now,
    )


def _kept(session: Session, row: EngineRunRow) -> EngineRunRow:
    devices.check_lease(session, row.device_id, row.fencing_token)
    session.add(row)
    session.flush()
    return row


def _count(session: Session, **owner: uuid.UUID) -> int:
    return session.scalars(select(func.count()).select_from(EngineRunRow).filter_by(**owner)).one()


def _locked(session: Session, run: EngineRunRow) -> EngineRunRow:
    query = select(EngineRunRow).where(EngineRunRow.id == run.id).with_for_update(key_share=True)
    row = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        raise NotFound("engine run", str(run.id))
    return row
