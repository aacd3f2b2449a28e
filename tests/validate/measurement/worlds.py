"""The planted engines that the protocol is tried on, and what is true of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from advisor.measurement.records import LoadPoint, RequestRecord
from advisor.measurement.slo import Slo
from tests.fakes.planted_server import PlantedServer, Served, closed_loop, open_loop
from tests.fakes.records import point

TOP = 32
_LONG = 3000
_LONG_OPEN, _SHORT_OPEN = 5000, 500
_HALVINGS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A planted engine, the load that it is measured at, and how much its starts differ."""

    name: str
    server: PlantedServer
    concurrency: int
    start_sd: float


WORLDS = (
    World(name="quiet", server=PlantedServer(noise=0.02), concurrency=4, start_sd=0.02),
    World(name="loud", server=PlantedServer(noise=0.08), concurrency=8, start_sd=0.04),
    World(
        name="steep",
        server=PlantedServer(request_s=0.002, noise=0.05),
        concurrency=16,
        start_sd=0.03,
    ),
    World(
        name="long prompts",
        server=PlantedServer(prompt_s=2e-4, request_s=0.0005, noise=0.04),
        concurrency=8,
        start_sd=0.02,
    ),
    World(
        name="full cache",
        server=PlantedServer(kv_tokens=1800, request_s=0.0004, noise=0.03),
        concurrency=8,
        start_sd=0.03,
    ),
    World(
        name="drafting",
        server=PlantedServer(survival=(0.8, 0.6, 0.45), noise=0.04, output_tokens=(20, 80)),
        concurrency=8,
        start_sd=0.03,
    ),
    World(
        name="hardly drafting",
        server=PlantedServer(
            survival=(0.3, 0.1), request_s=0.0015, noise=0.06, output_tokens=(10, 60)
        ),
        concurrency=12,
        start_sd=0.08,
    ),
    World(
        name="one at a time",
        server=PlantedServer(survival=(0.5, 0.25, 0.1), noise=0.08, request_s=0.001),
        concurrency=1,
        start_sd=0.05,
    ),
)


def measured(served: Served, *, concurrency: int) -> LoadPoint:
    """The point that the product makes of a load."""
    return point(*served.records, concurrency=concurrency, counters=served.counters)


# The search for a rate takes long loads: three engines stand for the rest.
SEARCHED = (WORLDS[0], WORLDS[2], WORLDS[5])


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of an engine whose start is neither slow nor fast, at its load."""

    ttft_p50_s: float
    tpot_mean_s: float
    tokens_per_s: float
    acceptance_length: float
    knee: float


@cache
def truth(world: World) -> Truth:
    """By the planted constants, and where requests meet by chance by loads of 3,000 requests.

    Throughput of a full loop is a matter of means: every step costs its parts and yields its
    tokens. What is linear in the steps' times is taken from a load without noise, of mean 1; what
    is not, a median, from one with it.
    """
    even = _middle(replace(world.server, noise=0.0), world.concurrency)
    noisy = _middle(world.server, world.concurrency)
    frames = float(np.mean([len(item.frame_times_s) for item in even]))
    tokens = float(np.mean([item.output_tokens or 0 for item in even]))
    curve = _throughput(world.server, frames, tokens)
    return Truth(
        ttft_p50_s=float(np.median([item.ttft_s for item in noisy if item.ttft_s])),
        tpot_mean_s=float(np.mean([item.tpot_s for item in even if item.tpot_s])),
        tokens_per_s=curve(float(world.concurrency)),
        acceptance_length=world.server.tokens_per_step,
        knee=_knee(world.server, curve),
    )


def _middle(server: PlantedServer, concurrency: int) -> list[RequestRecord]:
    """A long load without its beginning and its end."""
    rng = np.random.default_rng(99)
    served = closed_loop(server, concurrency=concurrency, requests=_LONG, rng=rng)
    in_order = sorted(served.records, key=lambda item: item.sent_s)
    return in_order[2 * concurrency : -4 * concurrency]


def _throughput(server: PlantedServer, frames: float, tokens: float) -> Callable[[float], float]:
    """Tokens per second with n requests in flight, n below what slots and cache hold.

    A request takes part in `frames` steps and yields `tokens`; one of its steps has its prompt.
    """
    prompt_s = server.prompt_s * sum(server.prompt_tokens) / 2 / frames

    def at(running: float) -> float:
        step_s = server.fixed_s + (server.request_s + prompt_s) * running
        return running * tokens / frames / step_s

    return at


def _knee(server: PlantedServer, curve: Callable[[float], float]) -> float:
    """The smallest load with 0.9 of the throughput at the top, which a long load there shows."""
    plateau = curve(float(TOP))
    if server.most_at_once < TOP:
        rng = np.random.default_rng(98)
        even = replace(server, noise=0.0)
        served = closed_loop(even, concurrency=TOP, requests=_LONG, rng=rng)
        made = sum(item.output_tokens or 0 for item in served.records)
        plateau = made / max(item.end_s for item in served.records)
    loads = np.linspace(1, TOP, 5000)
    values = np.array([curve(float(load)) for load in loads])
    return float(loads[np.argmax(values >= 0.9 * plateau)])


def limits(world: World) -> Slo:
    """Nine in ten requests decode at most half as long again as those of an idle engine."""
    server = world.server
    per_token_s = (server.fixed_s + server.request_s) / server.tokens_per_step
    return Slo(tpot_s=1.5 * per_token_s, ttft_s=6 * server.fixed_s, attainment=0.9)


@cache
def capacity(world: World) -> float:
    """The rate at which exactly the wanted share keeps the limits.

    Long loads around it, as `_roughly` finds it; the logarithm of kept over missed falls about
    linearly with the rate there.
    """
    rates = _roughly(world) * np.linspace(0.9, 1.1, 5)
    kept = [_kept(world, float(rate), _LONG_OPEN, seed=place) for place, rate in enumerate(rates)]
    slope, start = np.polyfit(rates, [_log_odds(share) for share in kept], 1)
    return float((_log_odds(limits(world).attainment) - start) / slope)


def _roughly(world: World) -> float:
    low, high = 1.0, 64.0
    for halving in range(_HALVINGS):
        rate = math.sqrt(low * high)
        kept = _kept(world, rate, _SHORT_OPEN, seed=10 + halving)
        low, high = (rate, high) if kept >= limits(world).attainment else (low, rate)
    return math.sqrt(low * high)


def _kept(world: World, rate_per_s: float, requests: int, *, seed: int) -> float:
    """Share of requests that keep the limits, those after the first hundred."""
    rng = np.random.default_rng([97, seed])
    served = open_loop(world.server, rate_per_s=rate_per_s, requests=requests, rng=rng)
    slo = limits(world)
    return float(np.mean([slo.met_by(item) for item in served.records[100:]]))


def _log_odds(share: float) -> float:
    return math.log(share / (1 - share))
