"""The key check in front of every route, so that no route can be outside of it (case D-05)."""

from collections.abc import Mapping
from http import HTTPStatus

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.errors import RooftuneError, Unavailable
from api.proxy.answers import refusal
from api.proxy.endpoints import Directory
from db import identity

LIVENESS = "/healthz"
CALLER = "rooftune.caller"


class Guard:
    """Lets the stated liveness route through, and whoever shows a valid key."""

    def __init__(self, app: ASGIApp, directory: Directory) -> None:
        self._app = app
        self._directory = directory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check HTTP requests; nothing else is served (a start and a stop are no requests)."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "no such route"})
            return
        if scope["path"] != LIVENESS:
            caller = await self._caller(Headers(scope=scope))
            if isinstance(caller, Response):
                await caller(scope, receive, send)
                return
            scope = {**scope, CALLER: caller}
        await self._app(scope, receive, send)

    async def _caller(self, headers: Mapping[str, str]) -> identity.Principal | Response:
        scheme, _, key_text = headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() == "bearer" and key_text.strip():
                return await self._directory.principal(key_text.strip())
        except (SQLAlchemyError, Unavailable):
            return refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "keys cannot be checked now: the database is away",
                kind="server_error",
                code="unavailable",
                retry_after_s=2,
            )
        except RooftuneError:
            pass
        return refusal(
            HTTPStatus.UNAUTHORIZED,
            "a valid API key is needed: Authorization: Bearer rt_...",
            kind="invalid_request_error",
            code="invalid_api_key",
        )


def caller_of(request: Request) -> identity.Principal:
    """Who the guard let through."""
    caller: identity.Principal = request.scope[CALLER]
    return caller
