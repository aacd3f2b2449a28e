"""Uploaded traffic samples and what was computed from them."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import Privacy, TraceReport
from db import audit
from db.audit import Actor
from db.ownership import owned, owned_page
from db.paging import Page
from db.tables import (
    StudyRow,
    TargetRow,
    TokenChunkRow,
    TokenColumnsRow,
    WorkloadChunkRow,
    WorkloadOriginRow,
    WorkloadRow,
)

PURGE_INSTEAD = (
    "purge it instead: its texts and all that was made of them go, the study keeps its figures"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorkload:
    """A parsed upload; `digest` hashes the accepted requests, `bytes` is the size of the file.

    `expires_at` is when it is purged, None: never. `origins` are the workloads that its requests
    were made of: it is purged with any of them.
    """

    project_id: uuid.UUID
    name: str
    digest: str
    requests: int
    bytes: int
    report: TraceReport
    summary: TrafficSummary
    privacy: Privacy = Privacy.RAW
    expires_at: datetime | None = None
    origins: tuple[uuid.UUID, ...] = ()


def create(
    session: Session,
    new: NewWorkload,
    chunks: Iterable[bytes],
    *,
    created_by: uuid.UUID,
    actor: Actor,
    now: datetime,
) -> WorkloadRow:
    """Store an upload; `chunks` are its requests as compressed Parquet, in order."""
    row = WorkloadRow(
        id=uuid.uuid4(),
        project_id=new.project_id,
        name=new.name,
        created_by=created_by,
        created_at=now,
        digest=new.digest,
        requests=new.requests,
        bytes=new.bytes,
        report=new.report,
        summary=new.summary,
        privacy=new.privacy,
        expires_at=new.expires_at,
    )
    session.add(row)
    session.flush()
    for origin in sorted(new.origins):
        refuse_purged(session, origin, "a source of another")
        session.add(WorkloadOriginRow(workload_id=row.id, origin_id=origin))
    for seq, body in enumerate(chunks):
        # Not through the session, which would hold all of them until the commit.
        values = {"workload_id": row.id, "seq": seq, "body": body}
        session.execute(insert(WorkloadChunkRow).values(values))
    audit.write(
        session,
        actor=actor,
        action="create",
        noun="workload",
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail={
            "name": new.name,
            "digest": new.digest,
            "requests": new.requests,
            "privacy": new.privacy,
            "expires_at": None if new.expires_at is None else new.expires_at.isoformat(),
        },
    )
    return row


def one(
    session: Session, workload_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> WorkloadRow:
    """One workload of these projects; raises `NotFound`."""
    return owned(session, WorkloadRow, workload_id, noun="workload", project_ids=project_ids)


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[WorkloadRow]:
    """Workloads of these projects, newest first."""
    return owned_page(session, WorkloadRow, project_ids=project_ids, limit=limit, cursor=cursor)


def chunks(session: Session, workload_id: uuid.UUID) -> Iterator[bytes]:
    """The stored requests, one compressed Parquet body at a time."""
    query = select(WorkloadChunkRow.body).where(WorkloadChunkRow.workload_id == workload_id)
    yield from session.scalars(query.order_by(WorkloadChunkRow.seq).execution_options(yield_per=1))


def delete(
    session: Session,
    workload_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    actor: Actor,
    now: datetime,
) -> None:
    """Remove a workload and all that was derived from it; one that a study used stays."""
    row = one(session, workload_id, project_ids)
    used = session.scalars(select(StudyRow.id).where(StudyRow.workload_id == row.id).limit(1))
    if used.first() is not None:
        raise StateConflict("workload", "used by a study", "deleted", PURGE_INSTEAD)
    session.delete(row)
    audit.write(
        session,
        actor=actor,
        action="delete",
        noun="workload",
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail={"name": row.name, "digest": row.digest},
    )


def refuse_purged(session: Session, workload_id: uuid.UUID, wanted: str) -> None:
    """Raise `StateConflict` when nothing can be made of a workload any more.

    The lock keeps a purge from coming between this look and what the transaction makes.
    """
    query = select(WorkloadRow.purged_at).where(WorkloadRow.id == workload_id)
    if session.scalars(query.with_for_update(read=True)).one_or_none() is not None:
        raise StateConflict("workload", "purged", wanted, "upload the traffic again")


def put_token_columns(
    session: Session,
    *,
    workload_id: uuid.UUID,
    tokenizer_digest: str,
    template_digest: str,
    summary: TrafficSummary,
    chunks: Iterable[bytes],
) -> None:
    """Keep token columns under their key; columns that are there already stay.

    `chunks` are the token ids of consecutive requests; a workload without text has none. Raises
    `StateConflict` for a workload that was purged meanwhile.
    """
    refuse_purged(session, workload_id, "tokenised")
    key = {
        "workload_id": workload_id,
        "tokenizer_digest": tokenizer_digest,
        "template_digest": template_digest,
    }
    statement = insert(TokenColumnsRow).values(**key, summary=summary).on_conflict_do_nothing()
    if session.execute(statement.returning(TokenColumnsRow.workload_id)).first() is None:
        return
    for seq, body in enumerate(chunks):
        session.execute(insert(TokenChunkRow).values(**key, seq=seq, body=body))


def token_columns(
    session: Session, workload_id: uuid.UUID, tokenizer_digest: str, template_digest: str
) -> TokenColumnsRow | None:
    """The summary under one tokenizer and template, if it was computed."""
    return session.get(TokenColumnsRow, (workload_id, tokenizer_digest, template_digest))


def token_chunks(
    session: Session, workload_id: uuid.UUID, tokenizer_digest: str, template_digest: str
) -> Iterator[bytes]:
    """Token ids under one tokenizer and template, one compressed Parquet body at a time."""
    query = select(TokenChunkRow.body).where(
        TokenChunkRow.workload_id == workload_id,
        TokenChunkRow.tokenizer_digest == tokenizer_digest,
        TokenChunkRow.template_digest == template_digest,
    )
    yield from session.scalars(query.order_by(TokenChunkRow.seq).execution_options(yield_per=1))


def summary(session: Session, workload: WorkloadRow, target: TargetRow | None) -> TrafficSummary:
    """The summary under the target's tokenizer where there is one, else the upload's own."""
    if target is None or target.tokenizer_digest is None or target.template_digest is None:
        return workload.summary
    key = (workload.id, target.tokenizer_digest, target.template_digest)
    query = select(TokenColumnsRow.summary).where(
        TokenColumnsRow.workload_id == key[0],
        TokenColumnsRow.tokenizer_digest == key[1],
        TokenColumnsRow.template_digest == key[2],
    )
    return session.scalars(query).one_or_none() or workload.summary
