"""The same POST twice has one effect: its first answer is kept under the caller's key."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, delete, func, select
from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.errors import StateConflict
from db.identity_tables import IdempotencyRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the first request got."""

    status: int
    body: dict[str, Any]


def find(
    session: Session, *, user_id: uuid.UUID, key: str, route: str, request_digest: str
) -> Answer | None:
    """The kept answer, or None: then this transaction is the first and others wait for its end.

    The key with another route or request is refused with `StateConflict`.
    """
    number = int(digest([str(user_id), key])[:15], 16)
    session.execute(select(func.pg_advisory_xact_lock(number)))
    row = session.get(IdempotencyRow, (user_id, key))
    if row is None:
        return None
    if (row.route, row.request_digest) != (route, request_digest):
        raise StateConflict("idempotency key", "used for another request", "reused")
    return Answer(status=row.status, body=row.body)


def keep(
    session: Session,
    *,
    user_id: uuid.UUID,
    key: str,
    route: str,
    request_digest: str,
    answer: Answer,
    now: datetime,
) -> None:
    """Keep the answer of the request that `find` said was the first."""
    session.add(
        IdempotencyRow(
            user_id=user_id,
            key=key,
            route=route,
            request_digest=request_digest,
            status=answer.status,
            body=answer.body,
            created_at=now,
        )
    )


def forget(session: Session, route: str, noun_id: str) -> None:
    """Drop the answers of a route that hold the noun of this id, which is deleted."""
    held = IdempotencyRow.body["id"].astext == noun_id
    session.execute(delete(IdempotencyRow).where(IdempotencyRow.route == route, held))


def purge(session: Session, before: datetime) -> int:
    """Forget answers older than `before`; how many there were."""
    done = session.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at < before))
    return done.rowcount if isinstance(done, CursorResult) else 0
