"""From an uploaded file to a workload: read in a child, then stored in one transaction."""

import hashlib
from dataclasses import dataclass
from typing import BinaryIO
from uuid import UUID

from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.errors import Unavailable
from advisor.traffic.trace import TrafficSummary
from api import views
from api.auth import Caller
from api.deps import Ask, Parts, answered_before, identifier, remember
from api.intake import (
    Counted,
    Intake,
    Vocabulary,
    count_tokens,
    limits_of,
    read_upload,
    spool_of,
)
from api.schemas import WorkloadView
from db import targets, workloads
from db.session import transaction
from db.tables import TargetRow
from db.tokenizer import unpack_tokenizer

CREATED = 201
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that has arrived whole, and what it was sent with."""

    name: str
    target_id: str | None
    file: BinaryIO
    filename: str
    bytes: int


def store(parts: Parts, caller: Caller, upload: Upload, key: str | None) -> WorkloadView:
    """Make a workload of a file; a bad file raises what it deserves and leaves nothing behind."""
    ask = _ask(caller, upload, key)
    project_id = caller.project_id
    with transaction(parts.sessions) as session:
        before = answered_before(session, ask, WorkloadView)
        if before is not None:
            return before
        vocabulary = _wanted_vocabulary(session, caller, upload.target_id)
    intake, counted = _read(parts, upload, vocabulary)
    new = workloads.NewWorkload(
        project_id=project_id,
        name=upload.name,
        digest=intake.digest,
        requests=intake.requests,
        bytes=upload.bytes,
        report=intake.report,
        summary=intake.summary,
    )
    principal = caller.principal
    with transaction(parts.sessions) as session:
        before = answered_before(session, ask, WorkloadView)
        if before is not None:
            return before
        row = workloads.create(
            session,
            new,
            intake.chunks,
            created_by=principal.user_id,
            actor=principal.actor,
            now=parts.clock(),
        )
        if counted is not None:
            _put(session, row.id, counted)
        answer = views.workload(row)
        remember(session, ask, answer, status=CREATED, now=parts.clock())
        return answer


def summary_under(
    parts: Parts, caller: Caller, workload_id: UUID, target_id: UUID | None
) -> TrafficSummary:
    """The upload's own summary, or under a target's tokenizer; counted once and kept."""
    with transaction(parts.sessions) as session:
        workload = workloads.one(session, workload_id, caller.scope)
        if target_id is None:
            return workload.summary
        target = targets.one(session, target_id, caller.scope)
        vocabulary = _vocabulary(target)
        kept = workloads.token_columns(
            session, workload.id, str(target.tokenizer_digest), str(target.template_digest)
        )
        if kept is not None:
            return kept.summary
        chunks = tuple(workloads.chunks(session, workload.id))
    counted = count_tokens(
        chunks, vocabulary, limits=limits_of(parts.settings), spool=spool_of(parts.settings)
    )
    with transaction(parts.sessions) as session:
        _put(session, workload_id, counted)
    return counted.summary


def _ask(caller: Caller, upload: Upload, key: str | None) -> Ask:
    sha = hashlib.sha256()
    while block := upload.file.read(BLOCK_BYTES):
        sha.update(block)
    upload.file.seek(0)
    asked = {
        "scope": sorted(str(item) for item in caller.scope),
        "name": upload.name,
        "target_id": upload.target_id,
        "filename": upload.filename,
        "sha256": sha.hexdigest(),
    }
    return Ask(
        user_id=caller.principal.user_id,
        key=key,
        route="POST /v1/workloads",
        request_digest=digest(asked),
    )


def _wanted_vocabulary(
    session: Session, caller: Caller, target_id: str | None
) -> Vocabulary | None:
    if target_id is None:
        return None
    return _vocabulary(targets.one(session, identifier("target", target_id), caller.scope))


def _vocabulary(target: TargetRow) -> Vocabulary:
    if target.tokenizer is None:
        raise Unavailable(f"target {target.name!r} is {target.state}", "wait until it is ready")
    tokenizer_json, special = unpack_tokenizer(target.tokenizer)
    return Vocabulary(
        tokenizer_json=tokenizer_json, special=special, chat_template=target.chat_template
    )


def _read(
    parts: Parts, upload: Upload, vocabulary: Vocabulary | None
) -> tuple[Intake, Counted | None]:
    limits, spool = limits_of(parts.settings), spool_of(parts.settings)
    intake = read_upload(upload.file, filename=upload.filename, limits=limits, spool=spool)
    if vocabulary is None:
        return intake, None
    return intake, count_tokens(intake.chunks, vocabulary, limits=limits, spool=spool)


def _put(session: Session, workload_id: UUID, counted: Counted) -> None:
    workloads.put_token_columns(
        session,
        workload_id=workload_id,
        tokenizer_digest=counted.tokenizer_digest,
        template_digest=counted.template_digest,
        summary=counted.summary,
        body=counted.body,
    )
