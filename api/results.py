"""A posted result as a report: another tool's file, or one of `rooftune measure`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError

from advisor.canonical import digest
from advisor.errors import InvalidInput
from advisor.measurement.imports.fields import Fields
from advisor.measurement.imports.reading import documents_of, read_documents
from advisor.measurement.report import MeasurementReport, Rank
from api import views
from api.auth import Caller
from api.codec import json_value, read_value
from api.deps import Ask, Parts, answered_before, identifier, remember
from api.measured import MeasurementView
from db import measurements
from db.measurements import NewMeasurement
from db.session import transaction

CREATED = 201
OURS = "rooftune"
MARKS = frozenset({"rank", "tool", "points", "loads"})
LONGEST_TEXT = 500
REMEDY = "send the file that `rooftune measure --out` wrote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A file that has arrived whole, and the target that it was measured of."""

    body: bytes
    target_id: str | None


def keep(parts: Parts, caller: Caller, result: Result, key: str | None) -> MeasurementView:
    """Make a measurement of a file; a bad file raises what it deserves and nothing is kept."""
    sha256 = hashlib.sha256(result.body).hexdigest()
    ask = Ask(
        user_id=caller.principal.user_id,
        key=key,
        route=measurements.ROUTE,
        request_digest=digest(
            {
                "scope": sorted(str(item) for item in caller.scope),
                "target_id": result.target_id,
                "sha256": sha256,
            }
        ),
    )
    target_id = _target(result.target_id)
    report = report_of(result.body)
    now = parts.clock()
    with transaction(parts.sessions) as session:
        before = answered_before(session, ask, MeasurementView)
        if before is not None:
            return before
        row = measurements.create(
            session,
            NewMeasurement(
                project_id=caller.project_id, target_id=target_id, digest=sha256, report=report
            ),
            created_by=caller.principal.user_id,
            actor=caller.principal.actor,
            now=now,
        )
        answer = views.measurement(row)
        remember(session, ask, answer, status=CREATED, now=now)
        return answer


def report_of(body: bytes) -> MeasurementReport:
    """What a file says. Raises `InvalidInput` naming the field, without quoting the file."""
    documents = documents_of(body)
    if len(documents) == 1 and documents[0].held.keys() >= MARKS:
        return _own(documents[0])
    return read_documents(documents)


def _target(text: str | None) -> UUID | None:
    return None if text is None else identifier("target", text)


def _own(document: Fields) -> MeasurementReport:
    """A report of our own client; only what it sees from outside can be said by a caller."""
    try:
        report = read_value(document.held, MeasurementReport)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(where, f"{first['type']}; {REMEDY}") from None
    if report.rank is not Rank.CLIENT_SIDE or report.tool != OURS:
        known = f"only {Rank.CLIENT_SIDE.value!r} by {OURS!r} is taken in this form"
        raise InvalidInput("rank", f"{known}; send another tool's own file")
    _refuse_unknown(document.held, json_value(report), "")
    return report


def _refuse_unknown(sent: object, known: object, path: str) -> None:
    """Refuse fields that a report does not have, and texts that are longer than a remark."""
    if isinstance(sent, str) and len(sent) > LONGEST_TEXT:
        raise InvalidInput(path, f"is longer than {LONGEST_TEXT} characters; {REMEDY}")
    if isinstance(sent, Mapping) and isinstance(known, Mapping):
        unknown = sorted(_keys(sent) - _keys(known))
        if unknown:
            raise InvalidInput(path or "report", f"has fields that are not known; {REMEDY}")
        pairs = {str(name): value for name, value in known.items()}
        for name, value in sent.items():
            _refuse_unknown(value, pairs.get(str(name)), f"{path}.{name}" if path else str(name))
    elif isinstance(sent, list) and isinstance(known, list):
        for place, (value, held) in enumerate(zip(sent, known, strict=True)):
            _refuse_unknown(value, held, f"{path}[{place}]")


def _keys(held: Mapping[str, object]) -> set[str]:
    """Names of fields; percentiles are numbers, whose digits may be written otherwise."""
    return {_number(name) for name in held}


def _number(name: object) -> str:
    try:
        return str(float(str(name)))
    except ValueError:
        return str(name)
