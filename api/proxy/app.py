"""The proxy: OpenAI-compatible routes of the served deployments, and nothing else of an engine."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from advisor.states import DEPLOYMENT_OVER
from api.proxy.answers import refusal
from api.proxy.body import read_body
from api.proxy.endpoints import Directory, Endpoint
from api.proxy.figures import Figures
from api.proxy.forward import Call, Forwarder
from api.proxy.guard import LIVENESS, Guard, caller_of
from api.proxy.health import Health
from api.proxy.relay import CLIENT_CLOSED_REQUEST
from api.proxy.settings import ProxySettings

FORWARDED = {"chat/completions": "/v1/chat/completions", "completions": "/v1/completions"}
EVERY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
RETRY_AFTER_S = 5


class Proxy:
    """The routes with what they need."""

    def __init__(self, settings: ProxySettings, directory: Directory) -> None:
        self.settings = settings
        self.directory = directory
        self.figures = Figures()
        self.health = Health(timeout_s=settings.proxy_connect_timeout_s)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Keeps the table of deployments and their health fresh while the process serves."""
        app.state.forwarder = Forwarder(self.settings, self.figures)
        fresh = self.directory.keep_fresh(self.settings.proxy_refresh_s)
        watch = self.health.watch(self.directory, self.settings.proxy_check_s)
        loops = [asyncio.create_task(loop) for loop in (fresh, watch)]
        try:
            yield
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await app.state.forwarder.aclose()

    async def healthz(self, _: Request) -> Response:
        """The process answers: the one route without a key."""
        return JSONResponse({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        """Whether the proxy can route: 503 until the table of deployments was read once.

        One deployment that is down is no reason to take the others out of rotation: it is listed
        here, and is 503 at its own readiness route.
        """
        seen = self.directory.visible(caller_of(request)).values()
        waiting = sorted(
            e.name for e in seen if not self._ready(e) and e.state not in DEPLOYMENT_OVER
        )
        ready = self.directory.loaded
        body = {"ready": ready, "not_serving": waiting}
        return JSONResponse(body, status_code=200 if ready else 503)

    async def deployment_readyz(self, request: Request) -> Response:
        """503 with Retry-After while this deployment's engine does not take requests."""
        found = self._endpoint(request)
        if isinstance(found, Response):
            return found
        ready = self._ready(found)
        down = self.health.is_down(found)
        body = {
            "ready": ready,
            "deployment": found.name,
            "state": "unhealthy" if down else str(found.state),
            "reason": "the engine does not listen" if down else found.reason,
            "restarts": found.restarts,
        }
        headers = {} if ready or found.state in DEPLOYMENT_OVER else _retry_after()
        return JSONResponse(body, status_code=200 if ready else 503, headers=headers)

    async def metrics(self, request: Request) -> Response:
        """Prometheus text on the deployments that the key sees."""
        visible = self.directory.visible(caller_of(request))
        return PlainTextResponse(self.figures.text(visible))

    async def models(self, request: Request) -> Response:
        """The one model behind this deployment's name, listed or asked for by its name."""
        found = self._endpoint(request)
        if isinstance(found, Response):
            return found
        card = {"id": found.name, "object": "model", "owned_by": "rooftune", "created": 0}
        asked = request.path_params.get("model")
        if asked is None:
            return JSONResponse({"object": "list", "data": [card]})
        return JSONResponse(card) if asked == found.name else _unknown_model(asked, found)

    async def generate(self, request: Request) -> Response:
        """Chat and text completions; any other operation of an engine is not forwarded."""
        path = FORWARDED.get(request.path_params["operation"])
        if path is None:
            return await self.unknown(request)
        found = self._endpoint(request)
        if isinstance(found, Response):
            return found
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        if (body.get("model") or found.name) != found.name:
            return _unknown_model(body["model"], found)
        return self._forwarded(request, Call.of(found, path, body))

    def _forwarded(self, request: Request, call: Call) -> Response:
        if not self._ready(call.endpoint):
            self.figures.refused(call.endpoint.name, HTTPStatus.SERVICE_UNAVAILABLE)
            return self._not_serving(call.endpoint)
        forwarder: Forwarder = request.app.state.forwarder
        return forwarder.send(call)

    async def unknown(self, _: Request) -> Response:
        """Everything else, control routes of the engine included, is not forwarded."""
        return refusal(404, "no such route", kind="invalid_request_error", code="not_found")

    def _ready(self, endpoint: Endpoint) -> bool:
        return endpoint.address is not None and not self.health.is_down(endpoint)

    def _endpoint(self, request: Request) -> Endpoint | Response:
        name, visible = (
            request.path_params["deployment"],
            self.directory.visible(caller_of(request)),
        )
        if name in visible:
            return visible[name]
        known = ", ".join(sorted(visible)) or "none"
        return refusal(
            404,
            f"no deployment {name!r}; known: {known}",
            kind="invalid_request_error",
            code="model_not_found",
        )

    async def _body(self, request: Request) -> dict[str, Any] | Response:
        try:
            raw = await read_body(request, self.settings.proxy_max_body_bytes)
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        return raw if isinstance(raw, Response) else _json_object(raw)

    def _not_serving(self, endpoint: Endpoint) -> Response:
        down = self.health.is_down(endpoint)
        over = endpoint.state in DEPLOYMENT_OVER
        return refusal(
            503,
            f"deployment {endpoint.name!r} is {'unhealthy' if down else endpoint.state}",
            kind="server_error",
            code="not_serving",
            retry_after_s=None if over else RETRY_AFTER_S,
        )


def _retry_after() -> dict[str, str]:
    return {"Retry-After": str(RETRY_AFTER_S)}


def _unknown_model(asked: object, endpoint: Endpoint) -> Response:
    said = f"model {asked!r}" if isinstance(asked, str) else "a model that is no name"
    return refusal(
        404,
        f"{said} is not served here; valid names: {endpoint.name}",
        kind="invalid_request_error",
        code="model_not_found",
    )


def _json_object(raw: bytes) -> dict[str, Any] | Response:
    try:
        body = json.loads(raw, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        return body
    return refusal(400, "the body must be a JSON object", kind="invalid_request_error")


def _no_number(_: str) -> NoReturn:
    raise ValueError


def _finite(text: str) -> float:
    if not math.isfinite(found := float(text)):
        raise ValueError
    return found


async def _failed(_request: Request, _error: Exception) -> Response:
    return refusal(500, "the proxy failed; its log says how", kind="server_error")


def build(settings: ProxySettings, directory: Directory) -> Starlette:
    """The ASGI application of the proxy process."""
    proxy = Proxy(settings, directory)
    served = "/serve/{deployment}"
    routes = [
        Route(LIVENESS, proxy.healthz),
        Route("/readyz", proxy.readyz),
        Route("/metrics", proxy.metrics),
        Route(f"{served}/readyz", proxy.deployment_readyz),
        Route(f"{served}/v1/models", proxy.models),
        Route(f"{served}/v1/models/{{model}}", proxy.models),
        Route(f"{served}/v1/{{operation:path}}", proxy.generate, methods=["POST"]),
        Route("/{path:path}", proxy.unknown, methods=EVERY_METHOD),
    ]
    return Starlette(
        routes=routes,
        lifespan=proxy.lifespan,
        middleware=[Middleware(Guard, directory=directory)],
        exception_handlers={Exception: _failed},
    )
