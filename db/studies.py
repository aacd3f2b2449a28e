"""Studies: the rows are the truth about what is to be tried, by whom, and how far it came.

Every function that changes a study takes its row lock first, then locks of trials and leases; its
events are appended under that lock, so their ids become visible in order.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from advisor.errors import NotFound, Unavailable
from advisor.goal import Goal
from advisor.recommender.evidence import (
    StudyEvidence,
    StudyOptions,
    TrialEvidence,
    TrialPlan,
)
from advisor.serving import ServingConfig
from advisor.states import (
    STUDY_OVER,
    STUDY_TRANSITIONS,
    StudyState,
    TargetState,
    TrialState,
    moved,
)
from db import audit, events, workloads
from db.audit import Actor
from db.ownership import owned, owned_page
from db.paging import Page
from db.tables import (
    DeviceRow,
    EngineRow,
    EngineRunRow,
    LoadPointRow,
    StudyRow,
    TargetRow,
    TrialRow,
    WorkloadRow,
)
from db.wakeups import wake

NOUN = "study"
OVER = tuple(state.value for state in STUDY_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStudy:
    """What to find out: a workload on a target, for a goal, within a budget in seconds.

    `techniques` are the keys to test; None means every technique.
    """

    project_id: uuid.UUID
    name: str
    workload_id: uuid.UUID
    target_id: uuid.UUID
    goal: Goal
    baseline: ServingConfig
    budget_s: float
    requests_per_point: int
    seed: int
    techniques: tuple[str, ...] | None = None
    options: StudyOptions = field(default_factory=StudyOptions)


def create(
    session: Session, new: NewStudy, *, created_by: uuid.UUID, actor: Actor, now: datetime
) -> StudyRow:
    """Queue a study and wake an agent of the target's device class."""
    projects = frozenset({new.project_id})
    workload = workloads.one(session, new.workload_id, projects)
    target = session.get(TargetRow, new.target_id)
    if target is None or target.project_id != new.project_id:
        raise NotFound("target", str(new.target_id))
    row = StudyRow(
        id=uuid.uuid4(),
        project_id=new.project_id,
        name=new.name,
        workload_id=workload.id,
        target_id=target.id,
        device_class=target.device_class,
        goal=new.goal,
        baseline=new.baseline,
        budget_s=new.budget_s,
        requests_per_point=new.requests_per_point,
        seed=new.seed,
        techniques=None if new.techniques is None else list(new.techniques),
        options=new.options,
        state=StudyState.QUEUED.value,
        progress=0.0,
        cancel_requested=False,
        created_by=created_by,
        created_at=now,
    )
    session.add(row)
    session.flush()
    _told(session, row, action="create", actor=actor, now=now, body={"state": row.state})
    wake(session, row.device_class)
    return row


def one(
    session: Session, study_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> StudyRow:
    """One study of these projects; raises `NotFound`."""
    return owned(session, StudyRow, study_id, noun=NOUN, project_ids=project_ids)


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[StudyRow]:
    """Studies of these projects, newest first."""
    return owned_page(session, StudyRow, project_ids=project_ids, limit=limit, cursor=cursor)


def lock(session: Session, study_id: uuid.UUID) -> StudyRow:
    """The study with its row lock, as it is now."""
    query = select(StudyRow).where(StudyRow.id == study_id).with_for_update(key_share=True)
    row = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        raise NotFound(NOUN, str(study_id))
    return row


def claim_work(session: Session, *, device: DeviceRow, now: datetime) -> StudyRow | None:
    """The study that this device works on: the one it began, else the oldest that waits.

    Locked until the commit. A device begins a study only when it has none that is unfinished, so
    two never overlap on it; a study that another device takes at this moment is skipped, and one
    whose engine version and build this host does not have.
    """
    mine = select(DeviceRow.id).where(DeviceRow.id == device.id)
    session.execute(mine.with_for_update(key_share=True))  # one claim per device at a time
    live = select(StudyRow).where(StudyRow.state.not_in(OVER))
    oldest = live.order_by(StudyRow.created_at, StudyRow.id).limit(1)
    fresh = {"populate_existing": True}
    begun = oldest.where(StudyRow.device_id == device.id).with_for_update(key_share=True)
    own = session.scalars(begun, execution_options=fresh).one_or_none()
    if own is not None:
        return own
    waiting = (
        oldest.join(TargetRow, TargetRow.id == StudyRow.target_id)
        .where(StudyRow.device_id.is_(None), StudyRow.device_class == device.device_class)
        .where(TargetRow.state == TargetState.READY.value, _served_on(device.host))
        .with_for_update(of=StudyRow, skip_locked=True, key_share=True)
    )
    taken = session.scalars(waiting, execution_options=fresh).one_or_none()
    if taken is not None:
        taken.device_id = device.id
        taken.started_at = now
        session.flush()
    return taken


def _served_on(host: str) -> ColumnElement[bool]:
    """Whether `host` has an engine of the target's version and build (`engines.on_host`)."""
    asked, there = aliased(EngineRow), aliased(EngineRow)
    same = (there.version == asked.version, there.distribution == asked.distribution)
    query = select(there.id).join(asked, and_(*same, there.build == asked.build))
    return query.where(asked.id == TargetRow.engine_id, there.host == host).exists()


def waiting(session: Session, device: DeviceRow) -> list[StudyRow]:
    """Unfinished studies that this device began or may begin, oldest first; nothing is claimed."""
    free = and_(StudyRow.device_id.is_(None), StudyRow.device_class == device.device_class)
    query = select(StudyRow).where(
        StudyRow.state.not_in(OVER), or_(StudyRow.device_id == device.id, free)
    )
    return list(session.scalars(query.order_by(StudyRow.created_at, StudyRow.id)))


def transition(
    session: Session,
    study: StudyRow,
    wanted: StudyState,
    *,
    actor: Actor,
    now: datetime,
    detail: Mapping[str, object] | None = None,
) -> StudyRow:
    """Move the study along its state machine; `StateConflict` when it has no such arrow.

    ``detail["error"]`` is kept as the study's error. Trials that wait are skipped when it ends.
    """
    row = lock(session, study.id)
    state = moved(NOUN, STUDY_TRANSITIONS, StudyState(row.state), wanted)
    row.state = state.value
    row.started_at = row.started_at or now
    error = (detail or {}).get("error")
    row.error = str(error) if error is not None else row.error
    if state in STUDY_OVER:
        row.ended_at = now
        row.remaining_s = 0.0
        row.progress = 1.0 if state is not StudyState.CANCELLED else row.progress
        _skip_waiting_trials(session, row, f"the study is {state.value}", now)
    session.flush()
    body = {"state": state.value, "error": row.error, **(detail or {})}
    _told(session, row, action=state.value, actor=actor, now=now, body=body)
    return row


def request_cancel(
    session: Session,
    study_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    actor: Actor,
    now: datetime,
) -> StudyRow:
    """Cancel a study that no device began at once; else ask its agent. One that is over stays."""
    row = lock(session, one(session, study_id, project_ids).id)
    if row.state in OVER or row.cancel_requested:
        return row
    row.cancel_requested = True
    if row.device_id is None:
        return transition(session, row, StudyState.CANCELLED, actor=actor, now=now)
    session.flush()
    body = {"state": row.state, "cancel_requested": True}
    _told(session, row, action="cancel", actor=actor, now=now, body=body)
    wake(session, row.device_class)
    return row


def set_progress(
    session: Session,
    study: StudyRow,
    *,
    progress: float,
    remaining_s: float | None,
    now: datetime,
) -> None:
    """Say how far the study is, in [0, 1], and how long it will still take (None: unknown)."""
    row = lock(session, study.id)
    row.progress = min(1.0, max(0.0, progress))
    row.remaining_s = remaining_s
    session.flush()
    body = {"state": row.state, "progress": row.progress, "remaining_s": remaining_s}
    events.append(session, noun=NOUN, noun_id=row.id, kind="progress", body=body, now=now)


def ensure_trial(session: Session, study: StudyRow, plan: TrialPlan, *, now: datetime) -> TrialRow:
    """The trial with the plan's key: made, or given the new plan (points that are missing)."""
    lock(session, study.id)
    query = select(TrialRow).where(TrialRow.study_id == study.id, TrialRow.key == plan.key)
    row = session.scalars(query.with_for_update(key_share=True)).one_or_none()
    if row is not None:
        row.plan = plan
        session.flush()
        return row
    count = select(func.count()).where(TrialRow.study_id == study.id)
    row = TrialRow(
        id=uuid.uuid4(),
        study_id=study.id,
        seq=session.scalars(count).one(),
        key=plan.key,
        plan=plan,
        config_hash=plan.config.hash,
        state=TrialState.QUEUED.value,
        created_at=now,
    )
    session.add(row)
    session.flush()
    body = {"trial": plan.key, "title": plan.title, "state": row.state}
    events.append(session, noun=NOUN, noun_id=study.id, kind="trial", body=body, now=now)
    return row


def spent_s(session: Session, study_id: uuid.UUID) -> float:
    """Engine time of the study's ended runs, in seconds."""
    took = func.extract("epoch", EngineRunRow.ended_at - EngineRunRow.created_at)
    query = select(func.sum(took)).join(TrialRow, TrialRow.id == EngineRunRow.trial_id)
    return float(session.scalars(query.where(TrialRow.study_id == study_id)).one() or 0.0)


def evidence(session: Session, study_id: uuid.UUID) -> StudyEvidence:
    """All that the study knows now; `Unavailable` while its target is not inspected."""
    study = one(session, study_id, None)
    target = session.get_one(TargetRow, study.target_id)
    workload = session.get_one(WorkloadRow, study.workload_id)
    engine = session.get_one(EngineRow, target.engine_id)
    if target.shape is None or target.device is None or target.model_digest is None:
        raise Unavailable(f"target {target.name!r} is {target.state}", "wait until it is ready")
    device = session.get(DeviceRow, study.device_id) if study.device_id is not None else None
    return StudyEvidence(
        goal=study.goal,
        baseline=study.baseline,
        model=target.shape,
        device=(device.facts if device is not None else None) or target.device,
        traffic=workloads.summary(session, workload, target),
        trials=_trials(session, study_id),
        budget_s=study.budget_s,
        spent_s=spent_s(session, study_id),
        requests_per_point=study.requests_per_point,
        workload_digest=workload.digest,
        model_digest=target.model_digest,
        engine_version=engine.version,
        techniques=None if study.techniques is None else tuple(study.techniques),
        options=study.options,
        hosts=max(1, _hosts(session, study_id)),
    )


def _hosts(session: Session, study_id: uuid.UUID) -> int:
    """On how many hosts load points of the study were measured."""
    query = (
        select(func.count(DeviceRow.host.distinct()))
        .join(EngineRunRow, EngineRunRow.device_id == DeviceRow.id)
        .join(LoadPointRow, LoadPointRow.engine_run_id == EngineRunRow.id)
        .join(TrialRow, TrialRow.id == LoadPointRow.trial_id)
    )
    return session.scalars(query.where(TrialRow.study_id == study_id)).one()


def _trials(session: Session, study_id: uuid.UUID) -> tuple[TrialEvidence, ...]:
    of_study = TrialRow.study_id == study_id
    trials = session.scalars(select(TrialRow).where(of_study).order_by(TrialRow.seq)).all()
    points = select(LoadPointRow).join(TrialRow, TrialRow.id == LoadPointRow.trial_id)
    ordered = (LoadPointRow.created_at, LoadPointRow.concurrency, LoadPointRow.repeat)
    measured = session.scalars(points.where(of_study).order_by(*ordered)).all()
    joined = select(EngineRunRow).join(TrialRow, TrialRow.id == EngineRunRow.trial_id)
    runs = session.scalars(joined.where(of_study).order_by(EngineRunRow.attempt)).all()
    found = []
    for trial in trials:
        own = [run for run in runs if run.trial_id == trial.id]
        facts = [run.facts for run in own if run.facts is not None]
        failures = [run.failure_detail for run in own if run.failure_detail is not None]
        found.append(
            TrialEvidence(
                plan=trial.plan,
                state=TrialState(trial.state),
                failure_kind=trial.failure_kind,
                failure_detail=trial.reason or (failures[-1] if failures else None),
                facts=facts[-1] if facts else None,
                points=tuple(row.point for row in measured if row.trial_id == trial.id),
                quality=trial.quality,
            )
        )
    return tuple(found)


def _skip_waiting_trials(session: Session, study: StudyRow, reason: str, now: datetime) -> None:
    waiting = TrialRow.state == TrialState.QUEUED.value
    for trial in session.scalars(select(TrialRow).where(TrialRow.study_id == study.id, waiting)):
        trial.state = TrialState.SKIPPED.value
        trial.reason = reason
        trial.ended_at = now


def _told(
    session: Session,
    study: StudyRow,
    *,
    action: str,
    actor: Actor,
    now: datetime,
    body: Mapping[str, object],
) -> None:
    """Audit row and event of one change."""
    audit.write(
        session,
        actor=actor,
        action=action,
        noun=NOUN,
        noun_id=study.id,
        now=now,
        project_id=study.project_id,
        detail=body,
    )
    events.append(session, noun=NOUN, noun_id=study.id, kind=NOUN, body=body, now=now)
