"""Lists in pages, newest first, behind cursors that stay right while rows are added."""

import base64
import binascii
import json
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from advisor.errors import InvalidInput

MAX_LIMIT = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some rows and the cursor of the next ones; `next` is None on the last page."""

    items: tuple[T, ...]
    next: str | None


def page_of(
    session: Session,
    query: Select[T],
    keys: tuple[InstrumentedAttribute[datetime], InstrumentedAttribute[Any]],
    *,
    limit: int,
    cursor: str | None,
) -> Page[T]:
    """At most `limit` rows of `query` after `cursor`, by `keys` (a time and an id), descending."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"{limit} is not between 1 and {MAX_LIMIT}")
    when, identifier = keys
    if cursor is not None:
        query = query.where(tuple_(when, identifier) < _read(cursor))
    ordered = query.order_by(when.desc(), identifier.desc()).limit(limit + 1)
    rows = tuple(session.scalars(ordered))
    items = rows[:limit]
    if len(rows) <= limit:
        return Page(items=items, next=None)
    last = items[-1]
    return Page(items=items, next=_write(getattr(last, when.key), getattr(last, identifier.key)))


def _write(when: datetime, identifier: object) -> str:
    held = [when.isoformat(), identifier if isinstance(identifier, int) else str(identifier)]
    return base64.urlsafe_b64encode(json.dumps(held).encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[datetime, int | uuid.UUID]:
    try:
        body = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        when, identifier = json.loads(body)
        moment = datetime.fromisoformat(when)
        if moment.tzinfo is None:
            raise InvalidInput("cursor", "is not one that a list gave")
        return moment, identifier if isinstance(identifier, int) else uuid.UUID(identifier)
    except (binascii.Error, ValueError, TypeError, AttributeError):
        raise InvalidInput("cursor", "is not one that a list gave") from None
