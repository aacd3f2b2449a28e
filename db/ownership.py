"""Rows that belong to a project: found and listed only for those who see the project."""

import uuid
from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import Select, select
from sqlalchemy.orm import Session
from sqlalchemy.orm.interfaces import ORMOption

from advisor.errors import NotFound
from db.measurement_tables import MeasurementRow
from db.paging import Page, page_of
from db.tables import DeploymentRow, RecommendationRow, StudyRow, TargetRow, WorkloadRow

R = TypeVar("R", WorkloadRow, TargetRow, StudyRow, RecommendationRow, DeploymentRow, MeasurementRow)


def owned(
    session: Session,
    cls: type[R],
    identifier: uuid.UUID,
    *,
    noun: str,
    project_ids: frozenset[uuid.UUID] | None,
    options: Sequence[ORMOption] = (),
) -> R:
    """The row, if one of these projects owns it (None: any project); else `NotFound`."""
    row = session.get(cls, identifier, options=options)
    if row is None or (project_ids is not None and row.project_id not in project_ids):
        raise NotFound(noun, str(identifier))
    return row


def owned_page(
    session: Session,
    cls: type[R],
    *,
    project_ids: frozenset[uuid.UUID] | None,
    limit: int,
    cursor: str | None,
    query: Select[R] | None = None,
) -> Page[R]:
    """Rows of these projects, newest first; `query` None is all rows."""
    chosen = select(cls) if query is None else query
    if project_ids is not None:
        chosen = chosen.where(cls.project_id.in_(project_ids))
    return page_of(session, chosen, (cls.created_at, cls.id), limit=limit, cursor=cursor)
