"""Loads that were planted to be unusable: whether each is marked, and what else is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.measurement.protocol.neighbours import disturbed
from advisor.measurement.records import (
    ClientHealth,
    HostLoad,
    LoadPoint,
    OpenLoop,
    RequestRecord,
)
from tests.fakes.planted_server import PlantedServer, Served, closed_loop, open_loop
from tests.fakes.planted_world import QUIET
from tests.fakes.records import point

_CONCURRENCY = 8
_REQUESTS = 200
_RATE_PER_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """One planted load. `wanted` is the mark that it must have, None: it must have none."""

    kind: str
    wanted: str | None
    point: LoadPoint

    @property
    def missed(self) -> bool:
        """Whether the mark is lacking, or the point could be used."""
        if self.wanted is None:
            return False
        told = any(flaw.startswith(self.wanted) for flaw in self.point.flaws)
        return not told or self.point.usable

    @property
    def false(self) -> bool:
        """Whether a load without a fault was marked."""
        return self.wanted is None and not self.point.usable


def marked(seed: int) -> tuple[Marked, ...]:
    """One load of every kind, the engine's noise drawn from 2 to 8 %."""
    rng = np.random.default_rng([seed, 43])
    server = PlantedServer(noise=float(rng.uniform(0.02, 0.08)))
    kinds: Sequence[tuple[str, str | None, Callable[[], LoadPoint]]] = (
        ("clean closed loop", None, lambda: _closed(server, rng)),
        ("clean open loop", None, lambda: _opened(server, rng, cost_s=1e-4)),
        ("slow client", "client-limited", lambda: _slow_client(server, rng)),
        ("slower from some time on", "not steady", lambda: _step(server, rng)),
        ("slower and slower", "not steady", lambda: _drift(server, rng)),
        ("stalled", "not steady", lambda: _stall(server, rng)),
        ("neighbour", "disturbed", lambda: _neighbour(server, rng)),
        ("stolen time", "disturbed", lambda: _stolen(server, rng)),
    )
    return tuple(Marked(kind=kind, wanted=wanted, point=made()) for kind, wanted, made in kinds)


def _closed(server: PlantedServer, rng: np.random.Generator, host: HostLoad = QUIET) -> LoadPoint:
    served = closed_loop(server, concurrency=_CONCURRENCY, requests=_REQUESTS, rng=rng)
    return point(*served.records, concurrency=_CONCURRENCY, counters=served.counters, host=host)


def _span_s(server: PlantedServer, rng: np.random.Generator) -> float:
    """About how long the closed loop takes when nothing is planted."""
    served = closed_loop(server, concurrency=_CONCURRENCY, requests=_REQUESTS, rng=rng)
    return max(record.end_s for record in served.records)


def _step(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    """Steps a quarter to twice as long from the 30th to the 70th percent of the load on."""
    since_s = _span_s(server, rng) * float(rng.uniform(0.3, 0.7))
    factor = float(rng.uniform(1.25, 2))
    return _closed(replace(server, slowed=((since_s, np.inf, factor),)), rng)


def _drift(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    """Steps that grow evenly, by a third to four thirds over the load."""
    edges = np.linspace(0, _span_s(server, rng), 21)
    most = float(rng.uniform(1 / 3, 4 / 3))
    ends = [*edges[1:-1], np.inf]
    slowed = tuple(
        (float(since), float(until), 1 + most * place / 19)
        for place, (since, until) in enumerate(zip(edges[:-1], ends, strict=True))
    )
    return _closed(replace(server, slowed=slowed), rng)


def _stall(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    """The engine stands nearly still for a tenth to a quarter of the load."""
    span_s = _span_s(server, rng)
    since_s = span_s * float(rng.uniform(0.35, 0.6))
    until_s = since_s + span_s * float(rng.uniform(0.1, 0.25))
    return _closed(replace(server, slowed=((since_s, until_s, 10.0),)), rng)


def _neighbour(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    """Another process uses 25 % of a core or more."""
    return _closed(server, rng, _host(cores=float(rng.uniform(0.25, 1.5)), steal=0.0))


def _stolen(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    return _closed(server, rng, _host(cores=0.05, steal=float(rng.uniform(0.06, 0.3))))


def _host(*, cores: float, steal: float) -> HostLoad:
    span_s = 30.0
    return replace(
        QUIET,
        neighbour_cpu_s=cores * span_s,
        steal_share=steal,
        disturbed=disturbed(neighbour_cpu_s=cores * span_s, span_s=span_s, steal_share=steal),
    )


def _slow_client(server: PlantedServer, rng: np.random.Generator) -> LoadPoint:
    """A client whose one thread is busy for nine tenths of the time or more."""
    frames_per_s = _RATE_PER_S * sum(server.output_tokens) / 2
    return _opened(server, rng, cost_s=float(rng.uniform(0.9, 1.3)) / frames_per_s)


def _opened(server: PlantedServer, rng: np.random.Generator, *, cost_s: float) -> LoadPoint:
    served = open_loop(server, rate_per_s=_RATE_PER_S, requests=_REQUESTS, rng=rng)
    records, health = through_client(served, cost_s)
    return point(
        *records,
        concurrency=None,
        counters=served.counters,
        client=health,
        open_loop=OpenLoop(arrivals="poisson", rate_per_s=_RATE_PER_S),
    )


def through_client(served: Served, cost_s: float) -> tuple[list[RequestRecord], ClientHealth]:
    """The load as a client sees it that needs `cost_s` for each frame and each send, in order.

    What the engine does is as if it had got every request in time: what a late send delays comes
    on top and would only make the mark clearer.
    """
    events = sorted(
        [(record.intended_s, index, -1) for index, record in enumerate(served.records)]
        + [
            (time_s, index, place)
            for index, record in enumerate(served.records)
            for place, time_s in enumerate(record.frame_times_s)
        ]
    )
    free_s = 0.0
    seen: dict[tuple[int, int], float] = {}
    waits: list[float] = []
    for at_s, index, place in events:
        waits.append(max(0.0, free_s - at_s))
        free_s = max(free_s, at_s) + cost_s
        seen[index, place] = free_s
    records = [
        _as_seen(record, [seen[index, place] for place in range(-1, len(record.frame_times_s))])
        for index, record in enumerate(served.records)
    ]
    sends = [record.sent_s - record.intended_s for record in records]
    span_s = max(record.end_s for record in records)
    return records, ClientHealth(
        processes=1,
        cpu_share=cost_s * len(events) / span_s,
        send_delay_p50_s=float(np.percentile(sends, 50)),
        send_delay_p99_s=float(np.percentile(sends, 99)),
        send_delay_max_s=max(sends),
        loop_delay_p99_s=float(np.percentile(waits, 99)),
        frames=len(events) - len(records),
    )


def _as_seen(record: RequestRecord, times_s: list[float]) -> RequestRecord:
    sent_s, *frames = times_s
    frames = [max(sent_s, frame) for frame in frames]
    return replace(
        record,
        sent_s=sent_s,
        end_s=frames[-1],
        first_token_s=frames[0],
        last_token_s=frames[-1],
        frame_times_s=tuple(frames),
    )
