"""Who changed what, written in the transaction of the change."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from db.identity_tables import AuditRow
from db.paging import Page, page_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Whose doing it is: a user, or a process of ours without a user id."""

    name: str
    user_id: uuid.UUID | None = None


def write(
    session: Session,
    *,
    actor: Actor,
    action: str,
    noun: str,
    noun_id: object,
    now: datetime,
    project_id: uuid.UUID | None = None,
    detail: Mapping[str, object] | None = None,
) -> AuditRow:
    """Record one change; `detail` holds names and figures, never text of a request."""
    row = AuditRow(
        at=now,
        user_id=actor.user_id,
        project_id=project_id,
        actor=actor.name,
        action=action,
        noun=noun,
        noun_id=str(noun_id),
        detail=dict(detail or {}),
    )
    session.add(row)
    return row


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[AuditRow]:
    """Changes in these projects and those that belong to no project, newest first."""
    query = select(AuditRow)
    if project_ids is not None:
        query = query.where(
            or_(AuditRow.project_id.in_(project_ids), AuditRow.project_id.is_(None))
        )
    return page_of(session, query, (AuditRow.at, AuditRow.id), limit=limit, cursor=cursor)
