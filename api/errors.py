"""Errors as RFC 9457 problem documents: one table from domain error to status.

RooftuneError                (advisor.errors has the rest of the tree)
├── NotAuthenticated         no key, or one that is unknown, expired or revoked
├── UploadTooLarge           more bytes or rows than the settings allow
└── IdempotencyMismatch      a key that was used for another request
"""

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from advisor.canonical import as_json
from advisor.errors import (
    AlreadyExists,
    EngineFailed,
    FileTooLong,
    InvalidInput,
    NotAllowed,
    NotFound,
    NoUsableRows,
    RooftuneError,
    StateConflict,
    Unavailable,
    UnknownName,
    UnreadableFile,
    UnsupportedArchitecture,
)
from advisor.traffic.trace import Reject
from api.schemas import FieldProblem, Problem

log = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
TYPE_BASE = "urn:rooftune:problem:"
MOST_REJECTS = 20


class NotAuthenticated(RooftuneError):
    """The caller did not show a usable key."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.remedy = "send `Authorization: Bearer <key>`; `rooftune key create` makes keys"


class UploadTooLarge(RooftuneError):
    """An upload above a limit; `limit` names it with its value."""

    def __init__(self, what: str, limit: str) -> None:
        super().__init__(f"{what}; the limit is {limit}")
        self.remedy = "upload a shorter sample of the traffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one kind of error looks on the wire."""

    status: HTTPStatus
    slug: str
    title: str


SHAPES: Mapping[type[RooftuneError], Shape] = {
    InvalidInput: Shape(
        status=HTTPStatus.UNPROCESSABLE_ENTITY, slug="invalid-input", title="Invalid input"
    ),
    UnknownName: Shape(
        status=HTTPStatus.UNPROCESSABLE_ENTITY, slug="unknown-name", title="Unknown name"
    ),
    NotFound: Shape(status=HTTPStatus.NOT_FOUND, slug="not-found", title="Not found"),
    AlreadyExists: Shape(status=HTTPStatus.CONFLICT, slug="already-exists", title="Exists already"),
    UnsupportedArchitecture: Shape(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        slug="unsupported-architecture",
        title="Unsupported architecture",
    ),
    UnreadableFile: Shape(
        status=HTTPStatus.UNPROCESSABLE_ENTITY, slug="unreadable-file", title="Unreadable file"
    ),
    FileTooLong: Shape(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, slug="file-too-long", title="Too long"
    ),
    NoUsableRows: Shape(
        status=HTTPStatus.UNPROCESSABLE_ENTITY, slug="no-usable-rows", title="No usable rows"
    ),
    StateConflict: Shape(status=HTTPStatus.CONFLICT, slug="state-conflict", title="Conflict"),
    NotAllowed: Shape(status=HTTPStatus.FORBIDDEN, slug="not-allowed", title="Not allowed"),
    Unavailable: Shape(
        status=HTTPStatus.SERVICE_UNAVAILABLE, slug="unavailable", title="Unavailable"
    ),
    EngineFailed: Shape(
        status=HTTPStatus.BAD_GATEWAY, slug="engine-failed", title="The engine failed"
    ),
    NotAuthenticated: Shape(
        status=HTTPStatus.UNAUTHORIZED, slug="not-authenticated", title="Not authenticated"
    ),
    UploadTooLarge: Shape(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, slug="upload-too-large", title="Too large"
    ),
}


def problem_of(error: RooftuneError) -> Problem:
    """The document of a domain error; a class without a row is a fault of ours (500)."""
    shape = SHAPES.get(type(error))
    if shape is None:
        return _plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the service failed on this request")
    fields = (
        [FieldProblem(field=error.field, message=error.message)]
        if isinstance(error, InvalidInput)
        else []
    )
    rows = error if isinstance(error, NoUsableRows) else None
    accepted = rows.accepted if rows else error.known if isinstance(error, UnknownName) else ()
    remedy: str | None = getattr(error, "remedy", None)
    return Problem(
        type=TYPE_BASE + shape.slug,
        title=shape.title,
        status=shape.status,
        detail=str(error).removesuffix(f"; {remedy}"),
        remedy=remedy,
        errors=tuple(fields),
        found=rows.found if rows else (),
        accepted=accepted,
        rejects=tuple(
            Reject(line=line, field=field, reason=reason)
            for line, field, reason in (rows.rejects[:MOST_REJECTS] if rows else ())
        ),
    )


def _plain(status: HTTPStatus, detail: str, remedy: str | None = None) -> Problem:
    return Problem(
        type="about:blank",
        title=status.phrase,
        status=status,
        detail=detail,
        remedy=remedy,
        errors=(),
        found=(),
        accepted=(),
        rejects=(),
    )


def respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The document as an answer."""
    return JSONResponse(
        as_json(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


def _domain(_: Request, error: Exception) -> Response:
    if not isinstance(error, RooftuneError):
        raise error
    headers: dict[str, str] = {}
    if isinstance(error, NotAuthenticated):
        headers["www-authenticate"] = 'Bearer realm="rooftune"'
    if isinstance(error, Unavailable):
        headers["retry-after"] = "5"
    return respond(problem_of(error), headers)


def _validation(_: Request, error: Exception) -> Response:
    """Names the wrong fields and what is expected; never what was sent in them."""
    if not isinstance(error, RequestValidationError):
        raise error
    fields = tuple(
        FieldProblem(
            field=".".join(str(part) for part in item["loc"] if part != "body") or "body",
            message=str(item["msg"]),
        )
        for item in error.errors()
    )
    problem = Problem(
        type=TYPE_BASE + "invalid-request",
        title="Invalid request",
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        detail="; ".join(f"{item.field}: {item.message}" for item in fields),
        remedy="correct the named fields; /docs lists the fields of every request",
        errors=fields,
        found=(),
        accepted=(),
        rejects=(),
    )
    return respond(problem)


def _http(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    status = HTTPStatus(error.status_code)
    return respond(_plain(status, str(error.detail)), error.headers)


def _database(_: Request, error: Exception) -> Response:
    log.error("database: %s", type(error).__name__)
    return _domain(_, Unavailable("the database does not answer", "try again in a moment"))


def _fault(request: Request, error: Exception) -> Response:
    """Our own fault: the frames are logged, the message is not (it may quote a request)."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s in %s %s\n%s", type(error).__name__, request.method, request.url.path, frames)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return respond(_plain(status, "the service failed on this request", "see the API's log"))


HANDLERS: Mapping[type[Exception], Callable[[Request, Exception], Response]] = {
    RooftuneError: _domain,
    RequestValidationError: _validation,
    HTTPException: _http,
    OperationalError: _database,
    Exception: _fault,
}


def install(app: FastAPI) -> None:
    """Answer every error of this app with a problem document."""
    for kind, handler in HANDLERS.items():
        app.add_exception_handler(kind, handler)
