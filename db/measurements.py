"""Measurements of servers that no study made: kept as figures, attached to a target or to none."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.measurement.report import MeasurementReport
from db import audit, idempotency, targets
from db.audit import Actor
from db.measurement_tables import MeasurementRow
from db.ownership import owned, owned_page
from db.paging import Page

NOUN = "measurement"
ROUTE = "POST /v1/measurements"
MOST_OF_TARGET = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMeasurement:
    """A result that was read; `digest` is that of its file."""

    project_id: uuid.UUID
    target_id: uuid.UUID | None
    digest: str
    report: MeasurementReport


def create(
    session: Session, new: NewMeasurement, *, created_by: uuid.UUID, actor: Actor, now: datetime
) -> MeasurementRow:
    """Keep a result; the same file a second time in one project is a `StateConflict`.

    A target must be of the same project (`NotFound`).
    """
    if new.target_id is not None:
        targets.one(session, new.target_id, frozenset({new.project_id}))
    kept = select(MeasurementRow).where(
        MeasurementRow.project_id == new.project_id, MeasurementRow.digest == new.digest
    )
    for row in session.scalars(kept):
        raise StateConflict(NOUN, "kept", "kept again", f"it is {row.id}; delete it first")
    row = MeasurementRow(
        id=uuid.uuid4(),
        project_id=new.project_id,
        target_id=new.target_id,
        rank=new.report.rank.value,
        tool=new.report.tool,
        digest=new.digest,
        report=new.report,
        created_by=created_by,
        created_at=now,
    )
    session.add(row)
    session.flush()
    _audited(session, row, action="create", actor=actor, now=now)
    return row


def one(
    session: Session, measurement_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> MeasurementRow:
    """One measurement of these projects; raises `NotFound`."""
    return owned(session, MeasurementRow, measurement_id, noun=NOUN, project_ids=project_ids)


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
    target_id: uuid.UUID | None = None,
) -> Page[MeasurementRow]:
    """Measurements of these projects (and of one target), newest first."""
    query = select(MeasurementRow)
    if target_id is not None:
        query = query.where(MeasurementRow.target_id == target_id)
    return owned_page(
        session, MeasurementRow, project_ids=project_ids, limit=limit, cursor=cursor, query=query
    )


def of_target(session: Session, target_id: uuid.UUID) -> list[MeasurementRow]:
    """What was measured of a target outside its studies, newest first, at most `MOST_OF_TARGET`."""
    query = (
        select(MeasurementRow)
        .where(MeasurementRow.target_id == target_id)
        .order_by(MeasurementRow.created_at.desc(), MeasurementRow.id)
        .limit(MOST_OF_TARGET)
    )
    return list(session.scalars(query))


def delete(
    session: Session,
    measurement_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Remove a measurement and the answer that was kept for the request that made it."""
    row = one(session, measurement_id, project_ids)
    session.delete(row)
    idempotency.forget(session, ROUTE, str(row.id))
    _audited(session, row, action="delete", actor=actor, now=now)


def _audited(
    session: Session, row: MeasurementRow, *, action: str, actor: Actor, now: datetime
) -> None:
    audit.write(
        session,
        actor=actor,
        action=action,
        noun=NOUN,
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail={"tool": row.tool, "rank": row.rank, "digest": row.digest},
    )
