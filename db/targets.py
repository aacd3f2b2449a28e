"""Targets: a model on a device class with an engine. An agent of the class inspects a new one."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.serving import FunctionalSettings
from advisor.states import STUDY_OVER, TARGET_TRANSITIONS, StudyState, TargetState, moved
from db import audit, studies
from db.audit import Actor
from db.ownership import owned, owned_page
from db.paging import Page
from db.tables import StudyRow, TargetRow
from db.wakeups import wake


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTarget:
    """What the user asks for; `model` is an allowed absolute path or the word ``demo``."""

    project_id: uuid.UUID
    name: str
    model: str
    engine_id: uuid.UUID
    device_class: str
    functional: FunctionalSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What an agent found: `tokenizer` is the stored form of `db.tokenizer`."""

    model_path: str
    model_digest: str
    shape: ModelShape
    device: DeviceFacts
    tokenizer: bytes
    tokenizer_digest: str
    chat_template: str | None
    template_digest: str


def create(
    session: Session, new: NewTarget, *, created_by: uuid.UUID, actor: Actor, now: datetime
) -> TargetRow:
    """Add a pending target and wake an agent of its device class."""
    row = TargetRow(
        id=uuid.uuid4(),
        project_id=new.project_id,
        name=new.name,
        created_by=created_by,
        created_at=now,
        model=new.model,
        engine_id=new.engine_id,
        device_class=new.device_class,
        functional=new.functional,
        state=TargetState.PENDING.value,
    )
    session.add(row)
    session.flush()
    _audited(session, row, action="create", actor=actor, now=now, reason=None)
    wake(session, new.device_class)
    return row


def one(
    session: Session, target_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> TargetRow:
    """One target of these projects with its tokenizer; raises `NotFound`."""
    return owned(
        session,
        TargetRow,
        target_id,
        noun="target",
        project_ids=project_ids,
        options=[undefer(TargetRow.tokenizer)],
    )


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[TargetRow]:
    """Targets of these projects, newest first, without their tokenizers."""
    return owned_page(session, TargetRow, project_ids=project_ids, limit=limit, cursor=cursor)


def pending(session: Session, device_class: str) -> list[TargetRow]:
    """Targets that wait for inspection, oldest first; locked, skipping those in other hands."""
    query = (
        select(TargetRow)
        .where(TargetRow.device_class == device_class)
        .where(TargetRow.state == TargetState.PENDING.value)
        .order_by(TargetRow.created_at, TargetRow.id)
        .with_for_update(skip_locked=True, key_share=True)
    )
    return list(session.scalars(query))


def mark_ready(
    session: Session, target: TargetRow, found: Inspected, *, actor: Actor, now: datetime
) -> None:
    """Keep what the inspection found; studies on the target can begin."""
    _move(session, target, TargetState.READY)
    target.model_path = found.model_path
    target.model_digest = found.model_digest
    target.shape = found.shape
    target.device = found.device
    target.tokenizer = found.tokenizer
    target.tokenizer_digest = found.tokenizer_digest
    target.chat_template = found.chat_template
    target.template_digest = found.template_digest
    _audited(session, target, action="ready", actor=actor, now=now, reason=None)
    wake(session, target.device_class)


def mark_failed(
    session: Session, target: TargetRow, error: str, *, actor: Actor, now: datetime
) -> None:
    """The inspection failed; studies that wait for the target fail with it."""
    _move(session, target, TargetState.FAILED)
    target.error = error
    _audited(session, target, action="failed", actor=actor, now=now, reason=error)
    over = [state.value for state in STUDY_OVER]
    waiting = select(StudyRow).where(StudyRow.target_id == target.id, StudyRow.state.not_in(over))
    for study in session.scalars(waiting.order_by(StudyRow.created_at)).all():
        detail = {"error": f"the target failed: {error}"}
        studies.transition(session, study, StudyState.FAILED, actor=actor, now=now, detail=detail)


def _move(session: Session, target: TargetRow, wanted: TargetState) -> None:
    session.refresh(target, attribute_names=["state"], with_for_update={"key_share": True})
    state = TargetState(target.state)
    target.state = moved("target", TARGET_TRANSITIONS, state, wanted).value


def _audited(
    session: Session,
    target: TargetRow,
    *,
    action: str,
    actor: Actor,
    now: datetime,
    reason: str | None,
) -> None:
    audit.write(
        session,
        actor=actor,
        action=action,
        noun="target",
        noun_id=target.id,
        now=now,
        project_id=target.project_id,
        detail={"name": target.name, **({"error": reason} if reason else {})},
    )
