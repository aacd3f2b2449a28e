"""Composition root of the API process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime

from fastapi import FastAPI

from advisor.units import MIB
from api import errors
from api.auth import KeyCache
from api.deps import Parts
from api.events import Hub
from api.figures import Figures, FiguresMiddleware
from api.retention import Retention
from api.routes import (
    audit,
    deployments,
    derived,
    engines,
    health,
    keys,
    measurements,
    recommendations,
    studies,
    targets,
    workload_charts,
    workloads,
)
from api.schemas import Problem
from api.settings import ApiSettings
from db.events import EventListener
from db.identity import utc_now
from db.session import Sessions, close_sessions, open_sessions

API_VERSION = "1"  # the path prefix of its routes, not the release
POOL_SIZE = 20
BODY_LIMIT_BYTES = MIB
REFUSALS = (401, 403, 404, 409, 413, 422, 503)


def build(
    settings: ApiSettings,
    *,
    sessions: Sessions | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> FastAPI:
    """The application; with `sessions` of the caller's, those are used and left open."""
    figures = Figures()
    parts = Parts(
        settings=settings,
        sessions=sessions or open_sessions(settings.database_url, pool_size=POOL_SIZE),
        keys=KeyCache(settings.key_cache_s),
        hub=Hub(),
        figures=figures,
        clock=clock,
    )
    app = FastAPI(
        title="Rooftune",
        version=API_VERSION,
        summary="Which ways of making LLM generation faster help your traffic.",
        lifespan=_lifespan(parts, owned=sessions is None),
        max_body_size=BODY_LIMIT_BYTES,
        responses={status: _documented() for status in REFUSALS},
    )
    app.state.parts = parts
    app.add_middleware(FiguresMiddleware, figures=figures)
    errors.install(app)
    for module in (health, keys, audit, engines, targets, studies, recommendations, deployments):
        app.include_router(module.router)
    app.include_router(workloads.router(settings.upload_max_bytes))
    app.include_router(workload_charts.router)
    app.include_router(derived.router)
    app.include_router(measurements.router)
    return app


def _documented() -> dict[str, object]:
    return {"model": Problem, "description": "An RFC 9457 problem document"}


def _lifespan(
    parts: Parts, *, owned: bool
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        listener = EventListener(parts.settings.database_url)
        settings = parts.settings
        retention = Retention(parts.sessions, parts.clock, every_s=settings.retention_poll_s)
        parts.hub.attach(asyncio.get_running_loop())
        listener.start(parts.hub.notify)
        retention.start()
        try:
            yield
        finally:
            await asyncio.to_thread(listener.stop)
            await asyncio.to_thread(retention.stop)
            if owned:
                close_sessions(parts.sessions)

    return lifespan
