"""Prometheus figures of the proxy: by deployment and status, never by anything a client wrote."""

from collections.abc import Collection, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from api.proxy.frames import Usage

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class _Shown(Collector):
    """The samples of some deployments only."""

    def __init__(self, registry: CollectorRegistry, deployments: Collection[str]) -> None:
        self._registry = registry
        self._deployments = deployments

    @override
    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            shown = Metric(family.name, family.documentation, family.type)
            shown.samples = [
                sample
                for sample in family.samples
                if sample.labels.get("deployment") in self._deployments
            ]
            yield shown

    def describe(self) -> Iterable[Metric]:
        """Nothing to check for duplicates: there is no other collector."""
        return []


class Figures:
    """Requests, tokens, times and requests in flight per deployment."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "rooftune_proxy_requests",
            "Requests answered, by deployment and HTTP status; 499 is a client that left.",
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
        self._ttft = Histogram(
            "rooftune_proxy_ttft_seconds",
            "From the request to the first frame with a token of a stream.",
            ["deployment"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._duration = Histogram(
            "rooftune_proxy_request_seconds",
            "From the request to the end of its answer, whatever that was.",
            ["deployment"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def started(self, deployment: str) -> None:
        """A request goes to the engine."""
        self._in_flight.labels(deployment).inc()

    def ended(
        self,
        deployment: str,
        status: int,
        usage: Usage | None,
        *,
        seconds: float,
        ttft_s: float | None,
    ) -> None:
        """A request is over; what was not measured is not counted, never as 0 (case S-04)."""
        self._in_flight.labels(deployment).dec()
        self.refused(deployment, status)
        self._duration.labels(deployment).observe(seconds)
        if ttft_s is not None:
            self._ttft.labels(deployment).observe(ttft_s)
        if usage is not None:
            self._tokens.labels(deployment, "prompt").inc(usage.prompt_tokens)
            self._tokens.labels(deployment, "completion").inc(usage.completion_tokens)

    def refused(self, deployment: str, status: int) -> None:
        """A request that was answered without going to the engine, or one of `ended`."""
        self._requests.labels(deployment, str(status)).inc()

    def text(self, deployments: Collection[str]) -> bytes:
        """The exposition text for whoever may see these deployments."""
        shown = CollectorRegistry()
        shown.register(_Shown(self.registry, deployments))
        return generate_latest(shown)
