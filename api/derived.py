"""A workload made of others: faster, longer, together; computed in a child, kept as an upload."""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import BinaryIO

from sqlalchemy.orm import Session

from advisor.errors import InvalidInput, StateConflict
from advisor.traffic.privacy.redaction import said_of
from advisor.traffic.sampling.synthesis import Recipe
from advisor.traffic.trace import Privacy
from api import views
from api.auth import Caller
from api.codec import json_text
from api.deps import Ask, Parts, answered_before, identifier, remember
from api.frames import write_frame
from api.inputs import DerivedIn
from api.intake import Asked, Intake, limits_of, read_derived
from api.order import ORDER, PART, SOURCE, Order
from api.schemas import WorkloadView
from db import workloads
from db.session import transaction
from db.tables import WorkloadRow

CREATED = 201
ROUTE = "POST /v1/workloads/derived"
# From what is kept whole to what is kept least of.
STRICTNESS = (Privacy.RAW, Privacy.REDACTED, Privacy.HASHED, Privacy.LENGTHS)


def derive(parts: Parts, caller: Caller, asked: DerivedIn, key: str | None) -> WorkloadView:
    """Make a workload of others of the caller's; it keeps no more text than any of them."""
    ask = Ask.of(caller, key, ROUTE, asked)
    limits = limits_of(parts.settings)
    with tempfile.TemporaryFile(dir=limits.spool) as given:
        with transaction(parts.sessions) as session:
            before = answered_before(session, ask, WorkloadView)
            if before is not None:
                return before
            sources = [_source(session, caller, item) for item in asked.workload_ids]
            privacy = strictest([Privacy(row.privacy) for row in sources])
            _write(given, session, sources, _order(asked, sources))
        # Blocks that are hashed stay so; everything else is reduced as an upload would be.
        reduced = Privacy.RAW if privacy is Privacy.HASHED else privacy
        reading = Asked(filename=asked.name, privacy=reduced)
        with read_derived(given, reading, limits) as intake:
            new = _new(parts, caller, asked, intake=intake, privacy=privacy, sources=sources)
            with transaction(parts.sessions) as session:
                return _kept(session, parts, caller, new=new, ask=ask, intake=intake)


def _source(session: Session, caller: Caller, workload_id: str) -> WorkloadRow:
    row = workloads.one(session, identifier("workload", workload_id), caller.scope)
    if row.purged_at is not None:
        raise StateConflict("workload", "purged", "a source of another")
    return row


def strictest(modes: Sequence[Privacy]) -> Privacy:
    """The mode that keeps least; hashes of several uploads go with no text beside them."""
    found = max(modes, key=STRICTNESS.index)
    if found is Privacy.HASHED and set(modes) != {Privacy.HASHED}:
        raise InvalidInput(
            "workload_ids",
            "hashed workloads can only be derived from with hashed ones or `lengths`",
        )
    return found


def _order(asked: DerivedIn, sources: Sequence[WorkloadRow]) -> Order:
    recipe = Recipe(
        rate=asked.rate,
        requests=asked.requests,
        seed=asked.seed,
        outputs=asked.outputs,
        label_by_source=asked.label_by_workload,
    )
    return Order(names=tuple(row.name for row in sources), recipe=recipe, by_time=asked.by_time)


def _write(given: BinaryIO, session: Session, sources: Sequence[WorkloadRow], order: Order) -> None:
    """What `api.derivation` takes: every source with its parts, then the order."""
    for row in sources:
        write_frame(given, json_text(row.report).encode(), SOURCE)
        for body in workloads.chunks(session, row.id):
            write_frame(given, body, PART)
    write_frame(given, json_text(asdict(order)).encode(), ORDER)
    given.flush()
    given.seek(0)


def _new(
    parts: Parts,
    caller: Caller,
    asked: DerivedIn,
    *,
    intake: Intake,
    privacy: Privacy,
    sources: Sequence[WorkloadRow],
) -> workloads.NewWorkload:
    summary = intake.summary
    if privacy is Privacy.HASHED:
        summary = said_of(replace(summary, privacy=privacy), privacy)
    return workloads.NewWorkload(
        project_id=caller.project_id,
        name=asked.name,
        digest=intake.digest,
        requests=intake.requests,
        bytes=intake.bytes or 0,
        report=intake.report,
        summary=summary,
        privacy=privacy,
        expires_at=_expires_at(parts, sources),
        origins=tuple(dict.fromkeys(row.id for row in sources)),
    )


def _expires_at(parts: Parts, sources: Sequence[WorkloadRow]) -> datetime | None:
    """With the first of its sources, and no later than an upload of now."""
    ends = [row.expires_at for row in sources if row.expires_at is not None]
    days = parts.settings.retention_days
    if days is not None:
        ends.append(parts.clock() + timedelta(days=days))
    return min(ends, default=None)


def _kept(
    session: Session,
    parts: Parts,
    caller: Caller,
    *,
    new: workloads.NewWorkload,
    ask: Ask,
    intake: Intake,
) -> WorkloadView:
    before = answered_before(session, ask, WorkloadView)
    if before is not None:
        return before
    for origin in new.origins:  # purged while the child was at work
        _source(session, caller, str(origin))
    principal = caller.principal
    row = workloads.create(
        session,
        new,
        intake.chunks,
        created_by=principal.user_id,
        actor=principal.actor,
        now=parts.clock(),
    )
    answer = views.workload(row)
    remember(session, ask, answer, status=CREATED, now=parts.clock())
    return answer
