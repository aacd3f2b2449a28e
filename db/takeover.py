"""A study whose device lost its agent goes on at another device of the same class (docs/adr/0024).

Only a device that was not seen for the takeover time and whose lease ran out counts as lost. Its
lease is fenced in the same transaction, so an agent that was only cut off can record nothing more.
"""

import uuid
from datetime import datetime, timedelta

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from advisor.states import FailureKind, RunState, TrialState
from db import audit, events, runs, studies, trials
from db.audit import Actor
from db.tables import DeviceRow, LeaseRow, StudyRow, TrialRow

LOST = "the agent that ran it was lost with its host"


def orphaned(
    session: Session, device: DeviceRow, *, now: datetime, after_s: float
) -> list[StudyRow]:
    """Unfinished studies of this class on devices without an agent, oldest first; none is claimed.

    Empty while `device` has an unfinished study of its own: two never overlap on it.
    """
    live = select(StudyRow).where(StudyRow.state.not_in(studies.OVER))
    if session.scalars(live.where(StudyRow.device_id == device.id).limit(1)).first() is not None:
        return []
    query = (
        live.join(DeviceRow, DeviceRow.id == StudyRow.device_id)
        .join(LeaseRow, LeaseRow.device_id == DeviceRow.id)
        .where(StudyRow.device_class == device.device_class, DeviceRow.id != device.id)
        .where(DeviceRow.agent_seen_at < now - timedelta(seconds=after_s))
        .where(or_(LeaseRow.expires_at.is_(None), LeaseRow.expires_at < now))
    )
    return list(session.scalars(query.order_by(StudyRow.created_at, StudyRow.id)))


def take_over(
    session: Session,
    study_id: uuid.UUID,
    device: DeviceRow,
    *,
    now: datetime,
    after_s: float,
    actor: Actor,
) -> StudyRow | None:
    """Give the study to `device`; None when another agent was faster or its own came back.

    Its open run failed (agent lost) at the last sign of life, its trial waits again; finished load
    points stay where they are.
    """
    study = studies.lock(session, study_id)
    if study.id not in {row.id for row in orphaned(session, device, now=now, after_s=after_s)}:
        return None
    left = session.get_one(DeviceRow, study.device_id)
    lease = select(LeaseRow).where(LeaseRow.device_id == left.id).with_for_update()
    held = session.scalars(lease, execution_options={"populate_existing": True}).one()
    if held.expires_at is not None and held.expires_at >= now:
        return None
    held.fencing_token += 1
    held.holder = held.purpose = held.expires_at = None
    study.device_id = device.id
    session.flush()
    _abandon(session, study, left, actor=actor, now=now)
    body = {"from": f"{left.host}/{left.name}", "to": f"{device.host}/{device.name}"}
    audit.write(
        session,
        actor=actor,
        action="take over",
        noun=studies.NOUN,
        noun_id=study.id,
        now=now,
        project_id=study.project_id,
        detail=body,
    )
    events.append(
        session, noun=studies.NOUN, noun_id=study.id, kind="taken_over", body=body, now=now
    )
    return study


def _abandon(
    session: Session, study: StudyRow, left: DeviceRow, *, actor: Actor, now: datetime
) -> None:
    """Its live runs on the lost device are over. The dead time is not engine time of the study."""
    for run in runs.unfinished(session, left.id):
        trial = session.get(TrialRow, run.trial_id) if run.trial_id is not None else None
        if trial is None or trial.study_id != study.id:
            continue
        runs.ended(
            session,
            run,
            RunState.FAILED,
            now=max(run.created_at, left.agent_seen_at or run.created_at),
            failure_kind=FailureKind.AGENT_LOST,
            failure_detail=LOST,
        )
        if trial.state == TrialState.MEASURING.value:
            trials.transition(session, trial, TrialState.QUEUED, actor=actor, now=now, reason=LOST)
