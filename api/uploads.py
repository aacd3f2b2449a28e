"""From an uploaded file to a workload: read in a child, then stored in one transaction."""

import hashlib
import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import BinaryIO
from uuid import UUID

from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.errors import Unavailable
from advisor.serving import default_block_size
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.trace import Privacy
from api import views
from api.auth import Caller
from api.deps import Ask, Parts, answered_before, identifier, remember
from api.inputs import WorkloadIn
from api.intake import (
    Asked,
    Counted,
    Intake,
    Vocabulary,
    count_tokens,
    limits_of,
    read_upload,
    write_stored,
)
from api.schemas import WorkloadView
from db import targets, workloads
from db.session import transaction
from db.tables import TargetRow
from db.tokenizer import unpack_tokenizer

CREATED = 201
BLOCK_BYTES = 1 << 20
OTHER_TOKENIZER = (
    "counted at the upload, by another tokenizer than this target's: the text is not kept"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file that has arrived whole, and what it was sent with."""

    fields: WorkloadIn
    file: BinaryIO
    filename: str
    bytes: int


def store(parts: Parts, caller: Caller, upload: Upload, key: str | None) -> WorkloadView:
    """Make a workload of a file; a bad file raises what it deserves and leaves nothing behind."""
    ask = _ask(caller, upload, key)
    fields = upload.fields
    with transaction(parts.sessions) as session:
        before = answered_before(session, ask, WorkloadView)
        if before is not None:
            return before
        vocabulary = _wanted_vocabulary(session, caller, fields.target_id)
    asked = Asked(
        filename=upload.filename,
        options=_options(parts, fields),
        privacy=Privacy(fields.privacy),
        vocabulary=vocabulary,
    )
    with read_upload(upload.file, asked, limits_of(parts.settings)) as intake:
        return _kept(parts, caller, upload, ask=ask, intake=intake)


def _kept(
    parts: Parts, caller: Caller, upload: Upload, *, ask: Ask, intake: Intake
) -> WorkloadView:
    """The workload, in one transaction."""
    fields, principal, now = upload.fields, caller.principal, parts.clock()
    new = workloads.NewWorkload(
        project_id=caller.project_id,
        name=fields.name,
        digest=intake.digest,
        requests=intake.requests,
        bytes=upload.bytes,
        report=intake.report,
        summary=intake.summary,
        privacy=Privacy(fields.privacy),
        expires_at=_expires_at(parts, fields.retention_days, now),
    )
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
            now=now,
        )
        if intake.counted is not None:
            _put(session, row.id, intake.counted)
        answer = views.workload(row)
        remember(session, ask, answer, status=CREATED, now=now)
        return answer


def summary_under(
    parts: Parts, caller: Caller, workload_id: UUID, target_id: UUID | None
) -> TrafficSummary:
    """The upload's own summary, or under a target's tokenizer; counted once and kept.

    Of an upload without text there is only what was counted before the text went.
    """
    limits = limits_of(parts.settings)
    with tempfile.TemporaryFile(dir=limits.spool) as given:
        with transaction(parts.sessions) as session:
            workload = workloads.one(session, workload_id, caller.scope)
            if target_id is None or workload.purged_at is not None:
                return workload.summary
            target = targets.one(session, target_id, caller.scope)
            asked = Asked(privacy=Privacy(workload.privacy), vocabulary=_vocabulary(target))
            kept = workloads.token_columns(
                session, workload.id, str(target.tokenizer_digest), str(target.template_digest)
            )
            if kept is not None:
                return kept.summary
            if not asked.privacy.keeps_text:
                return _under_another(workload.summary)
            write_stored(given, workload.report, workloads.chunks(session, workload.id))
        with (
            count_tokens(given, asked, limits) as counted,
            transaction(parts.sessions) as session,
        ):
            _put(session, workload_id, counted)
            return counted.summary


def _under_another(summary: TrafficSummary) -> TrafficSummary:
    return replace(summary, warnings=(*summary.warnings, OTHER_TOKENIZER))


def _options(parts: Parts, fields: WorkloadIn) -> ReadOptions:
    return ReadOptions(
        columns=fields.columns,
        time_unit=fields.time_unit,
        session_lengths=fields.session_lengths,
        format=fields.format,
        max_rows=parts.settings.upload_max_rows,
        max_bytes=parts.settings.upload_max_decompressed_bytes,
    )


def _expires_at(parts: Parts, retention_days: int | None, now: datetime) -> datetime | None:
    days = retention_days or parts.settings.retention_days
    return None if days is None else now + timedelta(days=days)


def _ask(caller: Caller, upload: Upload, key: str | None) -> Ask:
    sha = hashlib.sha256()
    while block := upload.file.read(BLOCK_BYTES):
        sha.update(block)
    upload.file.seek(0)
    asked = {
        "scope": sorted(str(item) for item in caller.scope),
        "fields": upload.fields.model_dump(mode="json"),
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
    longest = target.shape.max_position_embeddings if target.shape is not None else None
    wanted = target.functional.max_model_len or longest
    return Vocabulary(
        tokenizer_json=tokenizer_json,
        special=special,
        chat_template=target.chat_template,
        limits=() if wanted is None else (wanted,),
        block_size=default_block_size(None if target.device is None else target.device.kind),
    )


def _put(session: Session, workload_id: UUID, counted: Counted) -> None:
    workloads.put_token_columns(
        session,
        workload_id=workload_id,
        tokenizer_digest=counted.tokenizer_digest,
        template_digest=counted.template_digest,
        summary=counted.summary,
        chunks=counted.chunks,
    )
