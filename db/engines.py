"""Installed engines, as the agents found them."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from advisor.errors import InvalidInput, NotFound
from db.paging import Page, page_of
from db.tables import EngineRow


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEngine:
    """What an engine's own interpreter said of it; `flags` is its flag schema."""

    name: str
    host: str
    interpreter: str
    launcher: str | None
    version: str
    distribution: str
    build: str
    flags: Mapping[str, Any]


def register(
    session: Session, new: NewEngine, now: datetime, *, as_newest: bool = False
) -> EngineRow:
    """The row of this engine: made, or brought up to date, by host, interpreter and version.

    `as_newest` makes a known one the newest again, which is what a target gets by default.
    """
    told: dict[str, object] = {
        "name": new.name,
        "launcher": new.launcher,
        "distribution": new.distribution,
        "build": new.build,
        "flags": dict(new.flags),
    }
    statement = insert(EngineRow).values(
        id=uuid.uuid4(),
        host=new.host,
        interpreter=new.interpreter,
        version=new.version,
        created_at=now,
        **told,
    )
    if as_newest:
        told["created_at"] = now
    upsert = statement.on_conflict_do_update(
        index_elements=["host", "interpreter", "version"], set_=told
    )
    return session.scalars(
        upsert.returning(EngineRow), execution_options={"populate_existing": True}
    ).one()


def one(session: Session, engine_id: uuid.UUID) -> EngineRow:
    """One engine; raises `NotFound`."""
    row = session.get(EngineRow, engine_id)
    if row is None:
        raise NotFound("engine", str(engine_id))
    return row


def on_host(session: Session, engine_id: uuid.UUID, host: str) -> EngineRow:
    """That engine, or its twin on `host`: same version, build and flags, the latest registered.

    A target names an engine where it was inspected; its study may go on elsewhere. Raises
    `InvalidInput` where the host has none.
    """
    wanted = one(session, engine_id)
    if wanted.host == host:
        return wanted
    query = select(EngineRow).where(
        EngineRow.host == host,
        EngineRow.version == wanted.version,
        EngineRow.distribution == wanted.distribution,
        EngineRow.build == wanted.build,
    )
    for row in session.scalars(query.order_by(EngineRow.created_at.desc(), EngineRow.id)):
        if _flags(row) == _flags(wanted):
            return row
    raise InvalidInput(
        "engine",
        f"{wanted.name!r} is installed on {wanted.host!r}; {host!r} has none of its version, build"
        " and flags",
    )


def _flags(row: EngineRow) -> object:
    """What the engine can be told; where its files lie does not matter."""
    return row.flags.get("flags", row.flags)


def page(session: Session, *, limit: int, cursor: str | None) -> Page[EngineRow]:
    """All engines, newest first."""
    keys = (EngineRow.created_at, EngineRow.id)
    return page_of(session, select(EngineRow), keys, limit=limit, cursor=cursor)


def newest(session: Session) -> EngineRow | None:
    """The engine that was registered last."""
    query = select(EngineRow).order_by(EngineRow.created_at.desc(), EngineRow.id.desc())
    return session.scalars(query.limit(1)).first()
