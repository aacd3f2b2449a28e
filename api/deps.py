"""What routes are given: the parts of the process, a session per request, the caller."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel
from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.errors import NotAllowed, NotFound
from api.auth import Caller, KeyCache, bearer, narrowed
from api.codec import json_value, read_value
from api.errors import NotAuthenticated
from api.events import Hub
from api.figures import Figures
from api.settings import ApiSettings
from db import idempotency, identity
from db.identity import Principal, Role
from db.session import Sessions, transaction

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Built once by the composition root (`api.app.build`)."""

    settings: ApiSettings
    sessions: Sessions
    keys: KeyCache
    hub: Hub
    figures: Figures
    clock: Callable[[], datetime]

    def verify(self, key: str) -> Principal:
        """The principal of a key, from the database; raises `NotAuthenticated`."""
        try:
            with transaction(self.sessions) as session:
                return identity.authenticate(session, key, self.clock())
        except NotAllowed as error:
            raise NotAuthenticated("the key is unknown, expired or revoked") from error


def parts_of(request: Request) -> Parts:
    """The parts of this application."""
    parts: Parts = request.app.state.parts
    return parts


Service = Annotated[Parts, Depends(parts_of)]


def open_session(service: Service) -> Iterator[Session]:
    """The request's one transaction; it is committed before the answer is sent."""
    with transaction(service.sessions) as session:
        yield session


Db = Annotated[Session, Depends(open_session, scope="function")]


def caller_of(
    service: Service,
    authorization: Annotated[str | None, Header(include_in_schema=False)] = None,
    x_project: Annotated[str | None, Header()] = None,
) -> Caller:
    """Who asks, and about which of its projects."""
    return narrowed(service.keys.get(bearer(authorization), service.verify), x_project)


def needs(role: Role) -> Callable[[Caller], Caller]:
    """A dependency that refuses callers below `role`."""

    def checked(caller: Annotated[Caller, Depends(caller_of)]) -> Caller:
        caller.require(role)
        return caller

    return checked


Viewer = Annotated[Caller, Depends(needs(Role.VIEWER))]
Submitter = Annotated[Caller, Depends(needs(Role.SUBMITTER))]
Reviewer = Annotated[Caller, Depends(needs(Role.REVIEWER))]
Operator = Annotated[Caller, Depends(needs(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(needs(Role.ADMIN))]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Which stretch of a list is wanted."""

    limit: int
    cursor: str | None


def slice_of(
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Slice:
    """Query parameters of every list route."""
    return Slice(limit=limit, cursor=cursor)


Paging = Annotated[Slice, Depends(slice_of)]


def identifier(noun: str, text: str) -> UUID:
    """An id from a path; what is no id names nothing."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(noun, text) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A POST that starts work, as its `Idempotency-Key` remembers it."""

    user_id: UUID
    key: str | None
    route: str
    request_digest: str

    @classmethod
    def of(cls, caller: Caller, key: str | None, route: str, body: BaseModel) -> "Ask":
        """The ask of a JSON request in the caller's projects."""
        scope = sorted(str(item) for item in caller.scope)
        asked = digest({"scope": scope, "body": body.model_dump(mode="json")})
        return cls(user_id=caller.principal.user_id, key=key, route=route, request_digest=asked)


def answered_before(session: Session, ask: Ask, cls: type[T]) -> T | None:
    """What this key was answered the first time; another request under it is a conflict."""
    if ask.key is None:
        return None
    answer = idempotency.find(
        session,
        user_id=ask.user_id,
        key=ask.key,
        route=ask.route,
        request_digest=ask.request_digest,
    )
    return None if answer is None else read_value(answer.body, cls)


def remember(session: Session, ask: Ask, answer: object, *, status: int, now: datetime) -> None:
    """Keep the answer under the key."""
    if ask.key is None:
        return
    body: dict[str, Any] = json_value(answer)
    idempotency.keep(
        session,
        user_id=ask.user_id,
        key=ask.key,
        route=ask.route,
        request_digest=ask.request_digest,
        answer=idempotency.Answer(status=status, body=body),
        now=now,
    )


def once(
    session: Session, ask: Ask, cls: type[T], make: Callable[[], T], *, status: int, now: datetime
) -> T:
    """`make`'s answer, or the earlier one to the same request under the same key."""
    before = answered_before(session, ask, cls)
    if before is not None:
        return before
    answer = make()
    remember(session, ask, answer, status=status, now=now)
    return answer
