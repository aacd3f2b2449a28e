"""The proxy: OpenAI-compatible routes of the served deployments, and nothing else of an engine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from advisor.errors import RooftuneError
from advisor.states import DeploymentState
from api.proxy.answers import refusal
from api.proxy.endpoints import Directory, Endpoint
from api.proxy.figures import Figures
from api.proxy.forward import Call, Forwarder
from api.proxy.settings import ProxySettings
from db import identity

FORWARDED = {"chat/completions": "/v1/chat/completions", "completions": "/v1/completions"}
COMING_UP = frozenset(
    {DeploymentState.PENDING, DeploymentState.STARTING, DeploymentState.UNHEALTHY}
)


class Proxy:
    """The routes with what they need."""

    def __init__(self, settings: ProxySettings, directory: Directory) -> None:
        self.settings = settings
        self.directory = directory
        self.figures = Figures()

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Keeps the table of deployments fresh while the process serves."""
        app.state.forwarder = Forwarder(self.settings, self.figures)
        refresher = asyncio.create_task(
            self.directory.keep_fresh(self.settings.proxy_refresh_s), name="deployment-table"
        )
        try:
            yield
        finally:
            refresher.cancel()
            await asyncio.gather(refresher, return_exceptions=True)
            await app.state.forwarder.aclose()

    async def healthz(self, _: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """503 until the table of deployments was read, and while a wanted one does not serve."""
        waiting = sorted(e.name for e in self.directory.endpoints.values() if e.state in COMING_UP)
        ready = self.directory.loaded and not waiting
        body = {"ready": ready, "not_serving": waiting}
        return JSONResponse(body, status_code=200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus text; needs a key like every route but health."""
        if isinstance(caller := await self._caller(request), Response):
            return caller
        return PlainTextResponse(self.figures.text())

    async def models(self, request: Request) -> Response:
        """The one model behind this deployment's name."""
        found = await self._endpoint(request)
        if isinstance(found, Response):
            return found
        card = {"id": found.name, "object": "model", "owned_by": "rooftune", "created": 0}
        return JSONResponse({"object": "list", "data": [card]})

    async def generate(self, request: Request) -> Response:
        """Chat and text completions; any other operation of an engine is not forwarded."""
        path = FORWARDED.get(request.path_params["operation"])
        if path is None:
            return await self.unknown(request)
        found = await self._endpoint(request)
        if isinstance(found, Response):
            return found
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        if body.get("model", found.name) != found.name:
            return refusal(
                404,
                f"model {body.get('model')!r} is not served here; this endpoint serves"
                f" {found.name!r}",
                kind="invalid_request_error",
                code="model_not_found",
            )
        if found.base_url is None:
            return _not_serving(found)
        forwarder: Forwarder = request.app.state.forwarder
        return await forwarder.send(request, Call.of(found, path, body))

    async def unknown(self, request: Request) -> Response:
        """Everything else, control routes of the engine included, is not forwarded."""
        if isinstance(caller := await self._caller(request), Response):
            return caller
        return refusal(404, "no such route", kind="invalid_request_error", code="not_found")

    async def _caller(self, request: Request) -> identity.Principal | Response:
        scheme, _, key_text = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() == "bearer" and key_text:
                return await self.directory.principal(key_text.strip())
        except RooftuneError:
            pass
        return refusal(
            401,
            "a valid API key is needed: Authorization: Bearer rt_...",
            kind="invalid_request_error",
            code="invalid_api_key",
        )

    async def _endpoint(self, request: Request) -> Endpoint | Response:
        caller = await self._caller(request)
        if isinstance(caller, Response):
            return caller
        name, visible = request.path_params["deployment"], self.directory.visible(caller)
        if name not in visible:
            known = ", ".join(sorted(visible)) or "none"
            return refusal(
                404,
                f"no deployment {name!r}; known: {known}",
                kind="invalid_request_error",
                code="model_not_found",
            )
        return visible[name]

    async def _body(self, request: Request) -> dict[str, Any] | Response:
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > self.settings.proxy_max_body_bytes:
                return refusal(413, "the body is too large", kind="invalid_request_error")
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if isinstance(body, dict):
            return body
        return refusal(400, "the body must be a JSON object", kind="invalid_request_error")


def _not_serving(endpoint: Endpoint) -> Response:
    over = endpoint.state in {DeploymentState.STOPPED, DeploymentState.FAILED}
    return refusal(
        503,
        f"deployment {endpoint.name!r} is {endpoint.state}",
        kind="server_error",
        code="not_serving",
        retry_after_s=None if over else 5,
    )


def build(settings: ProxySettings, directory: Directory) -> Starlette:
    """The ASGI application of the proxy process."""
    proxy = Proxy(settings, directory)
    every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    routes = [
        Route("/healthz", proxy.healthz),
        Route("/readyz", proxy.readyz),
        Route("/metrics", proxy.metrics),
        Route("/serve/{deployment}/v1/models", proxy.models),
        Route("/serve/{deployment}/v1/{operation:path}", proxy.generate, methods=["POST"]),
        Route("/{path:path}", proxy.unknown, methods=every),
    ]
    return Starlette(routes=routes, lifespan=proxy.lifespan)
