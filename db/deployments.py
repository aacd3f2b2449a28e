"""Deployments: approved configurations that are wanted on a device. An agent makes it so."""

import re
import uuid
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.errors import AlreadyExists, InvalidInput, NotFound
from advisor.states import DEPLOYMENT_OVER, DEPLOYMENT_TRANSITIONS, DeploymentState, moved
from db import audit, events, purges, recommendations, workloads
from db.audit import Actor
from db.identity import Principal
from db.ownership import owned, owned_page
from db.paging import Page
from db.tables import DeploymentRow, DeviceRow, StudyRow
from db.wakeups import wake

NOUN = "deployment"
RUNNING = "running"
STOPPED = "stopped"
DRAIN_S = 30.0
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
OVER = tuple(state.value for state in DEPLOYMENT_OVER)


def create(
    session: Session,
    *,
    name: str,
    recommendation_id: uuid.UUID,
    config_hash: str,
    principal: Principal,
    now: datetime,
    drain_s: float = DRAIN_S,
) -> DeploymentRow:
    """Want an approved configuration served under a name, as the name's next generation.

    Earlier generations of the name are to stop (strategy replace, with drain). A name belongs to
    the project that used it first.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput("name", "1 to 63 lower-case letters, digits, dots, hyphens, underscores")
    visible = principal.project_ids
    config = recommendations.approved_config(session, recommendation_id, visible, config_hash)
    recommendation = recommendations.one(session, recommendation_id, visible)
    study = session.get_one(StudyRow, recommendation.study_id)
    quantization = config.levers.quantization
    if quantization is not None and quantization.algorithm != purges.NEEDS_NO_DATA:
        workloads.refuse_purged(session, study.workload_id, "calibrated on")
    session.execute(select(func.pg_advisory_xact_lock(int(digest([NOUN, name])[:15], 16))))
    same = select(DeploymentRow).where(DeploymentRow.name == name)
    earlier = session.scalars(same.order_by(DeploymentRow.generation)).all()
    if any(row.project_id != study.project_id for row in earlier):
        raise AlreadyExists(NOUN, f"the name {name!r} belongs to another project")
    for row in earlier:
        if row.state not in OVER and row.wanted == RUNNING:
            _stop(session, row, actor=principal.actor, now=now)
    made = DeploymentRow(
        id=uuid.uuid4(),
        project_id=study.project_id,
        name=name,
        generation=1 + max((row.generation for row in earlier), default=0),
        recommendation_id=recommendation.id,
        target_id=study.target_id,
        device_class=study.device_class,
        config=config,
        config_hash=config_hash,
        wanted=RUNNING,
        state=DeploymentState.PENDING.value,
        restarts=0,
        drain_s=drain_s,
        created_by=principal.user_id,
        created_at=now,
    )
    session.add(made)
    session.flush()
    _told(session, made, action="create", actor=principal.actor, now=now)
    wake(session, made.device_class)
    return made


def one(
    session: Session, deployment_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> DeploymentRow:
    """One deployment of these projects; raises `NotFound`."""
    return owned(session, DeploymentRow, deployment_id, noun=NOUN, project_ids=project_ids)


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[DeploymentRow]:
    """Deployments of these projects, newest first."""
    return owned_page(session, DeploymentRow, project_ids=project_ids, limit=limit, cursor=cursor)


def newest_by_name(session: Session) -> list[DeploymentRow]:
    """Per name the deployment that requests go to: the newest that serves, else the newest."""
    serving = DeploymentRow.state == DeploymentState.SERVING.value
    live = DeploymentRow.state.not_in(OVER)
    query = select(DeploymentRow).ext(distinct_on(DeploymentRow.name))
    order = (DeploymentRow.name, serving.desc(), live.desc(), DeploymentRow.generation.desc())
    return list(session.scalars(query.order_by(*order)))


def for_device(session: Session, device: DeviceRow) -> list[DeploymentRow]:
    """Deployments that this device's agent looks after or may take, oldest first; locked."""
    free = and_(
        DeploymentRow.device_id.is_(None), DeploymentRow.device_class == device.device_class
    )
    query = select(DeploymentRow).where(
        DeploymentRow.state.not_in(OVER), or_(DeploymentRow.device_id == device.id, free)
    )
    ordered = query.order_by(DeploymentRow.created_at, DeploymentRow.id)
    locked = ordered.with_for_update(key_share=True)
    return list(session.scalars(locked, execution_options={"populate_existing": True}))


def assign(session: Session, deployment: DeploymentRow, device_id: uuid.UUID) -> None:
    """Put a deployment on a device."""
    _locked(session, deployment).device_id = device_id
    session.flush()


def set_endpoint(
    session: Session,
    deployment: DeploymentRow,
    *,
    host: str,
    port: int,
    served_model_name: str,
) -> None:
    """Where its engine listens, and the name that the engine knows the model by."""
    row = _locked(session, deployment)
    row.host, row.port, row.served_model_name = host, port, served_model_name
    session.flush()


def count_restart(session: Session, deployment: DeploymentRow) -> int:
    """One more restart; how many there were."""
    row = _locked(session, deployment)
    row.restarts += 1
    session.flush()
    return row.restarts


def transition(
    session: Session,
    deployment: DeploymentRow,
    wanted: DeploymentState,
    *,
    actor: Actor,
    now: datetime,
    reason: str | None = None,
) -> DeploymentRow:
    """Move a deployment along its state machine; `StateConflict` when it has no such arrow."""
    row = _locked(session, deployment)
    state = moved(NOUN, DEPLOYMENT_TRANSITIONS, DeploymentState(row.state), wanted)
    row.state = state.value
    row.reason = reason
    if state is DeploymentState.SERVING:
        row.ready_at = now
    if state in DEPLOYMENT_OVER:
        row.ended_at = now
        row.host = row.port = row.served_model_name = None
    session.flush()
    _told(session, row, action=state.value, actor=actor, now=now)
    return row


def request_stop(
    session: Session,
    deployment_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    actor: Actor,
    now: datetime,
) -> DeploymentRow:
    """Want it stopped; one that no device took stops at once, one that is over stays."""
    row = _locked(session, one(session, deployment_id, project_ids))
    if row.state in OVER or row.wanted == STOPPED:
        return row
    return _stop(session, row, actor=actor, now=now)


def _stop(
    session: Session, deployment: DeploymentRow, *, actor: Actor, now: datetime
) -> DeploymentRow:
    row = _locked(session, deployment)
    row.wanted = STOPPED
    session.flush()
    _told(session, row, action="stop", actor=actor, now=now)
    if row.state == DeploymentState.PENDING.value and row.device_id is None:
        return transition(session, row, DeploymentState.STOPPED, actor=actor, now=now)
    wake(session, row.device_class)
    return row


def _locked(session: Session, deployment: DeploymentRow) -> DeploymentRow:
    query = select(DeploymentRow).where(DeploymentRow.id == deployment.id)
    locked = query.with_for_update(key_share=True)
    row = session.scalars(locked, execution_options={"populate_existing": True}).one_or_none()
    if row is None:
        raise NotFound(NOUN, str(deployment.id))
    return row


def _told(
    session: Session, row: DeploymentRow, *, action: str, actor: Actor, now: datetime
) -> None:
    """Audit row and event of one change."""
    body: Mapping[str, object] = {
        "name": row.name,
        "generation": row.generation,
        "config_hash": row.config_hash,
        "wanted": row.wanted,
        "state": row.state,
        "reason": row.reason,
    }
    audit.write(
        session,
        actor=actor,
        action=action,
        noun=NOUN,
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail=body,
    )
    events.append(session, noun=NOUN, noun_id=row.id, kind=NOUN, body=body, now=now)
