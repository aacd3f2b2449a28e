"""Prometheus figures of the proxy: by deployment and status, never by anything a client wrote."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from api.proxy.frames import Usage


class Figures:
    """Requests, tokens and requests in flight per deployment."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rooftune_proxy_requests",
            "Requests answered, by deployment and HTTP status.",
            ["deployment", "status"],
            registry=self.registry,
        )
        self._tokens = Counter(
            "rooftune_proxy_tokens",
            "Tokens that engines reported, by deployment and kind (prompt, completion).",
            ["deployment", "kind"],
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "rooftune_proxy_requests_in_flight",
            "Requests sent to an engine and not ended.",
            ["deployment"],
            registry=self.registry,
        )

    def started(self, deployment: str) -> None:
        """A request goes to the engine."""
        self._in_flight.labels(deployment).inc()

    def ended(self, deployment: str, status: int, usage: Usage | None) -> None:
        """A request is over; without usage nothing is added to the tokens."""
        self._in_flight.labels(deployment).dec()
        self._requests.labels(deployment, str(status)).inc()
        if usage is not None:
            self._tokens.labels(deployment, "prompt").inc(usage.prompt_tokens)
            self._tokens.labels(deployment, "completion").inc(usage.completion_tokens)

    def text(self) -> bytes:
        """The exposition text."""
        return generate_latest(self.registry)
