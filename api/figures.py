"""Request figures for Prometheus; labels come from our own route table, never from a request."""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS"})
FAULT = 500


class Figures:
    """Counts of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "rooftune_http_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "rooftune_http_request_seconds",
            "Seconds until the answer was sent.",
            ["route"],
            registry=self.registry,
        )


class FiguresMiddleware:
    """Counts every HTTP request after its route is known."""

    def __init__(self, app: ASGIApp, figures: Figures) -> None:
        self.app = app
        self.figures = figures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve and count one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = FAULT
        started = time.monotonic()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            self._count(scope, status, time.monotonic() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.figures.requests.labels(method, route, str(status)).inc()
        self.figures.seconds.labels(route).observe(seconds)
