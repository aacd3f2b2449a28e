"""How often nominal 95 % intervals hold the planted truth, quantity by quantity."""

from collections.abc import Iterator

import numpy as np

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.measurement.capacity import Capacity, Search, Tried, next_load
from advisor.measurement.protocol.repeats import pooled
from advisor.measurement.protocol.steady import inside, steady_window
from advisor.measurement.records import LoadPoint
from advisor.measurement.saturation import fit_saturation, ladder
from advisor.measurement.slo import attained
from tests.fakes.planted_server import closed_loop, open_loop, with_start
from tests.validate.measurement.worlds import (
    SEARCHED,
    TOP,
    World,
    capacity,
    limits,
    measured,
    truth,
)

STARTS = 4
_REQUESTS = 160
_OPEN_REQUESTS = 300
# Requests of a rung, for each that is in flight.
_TURNS = 3


def run(world: World, seed: int) -> dict[str, bool | None]:
    """One run of the protocol: for each quantity whether its interval holds the truth.

    None: the protocol gave no interval, which it may only do where it says why.
    """
    rng = np.random.default_rng([seed, 41])
    return {
        **_loads(world, rng),
        **_knee(world, rng, seed),
        **_capacity(SEARCHED[seed % len(SEARCHED)], rng),
    }


def _loads(world: World, rng: np.random.Generator) -> dict[str, bool | None]:
    """Four starts with one load each: intervals within the first load, and over the starts."""
    true = truth(world)
    starts = [with_start(world.server, world.start_sd, rng) for _ in range(STARTS)]
    points = []
    for server in starts:
        served = closed_loop(server, concurrency=world.concurrency, requests=_REQUESTS, rng=rng)
        points.append(measured(served, concurrency=world.concurrency))
    first, factor = points[0], starts[0].start
    ttft, tpot = first.intervals.get("ttft_s p50"), first.intervals.get("tpot_s mean")
    length = first.intervals.get("acceptance_length")
    found = {
        "TTFT median, one load": _holds(ttft, true.ttft_p50_s * factor),
        "TPOT mean, one load": _holds(tpot, true.tpot_mean_s * factor),
        "throughput, one load": _holds(first.steady_tokens_per_s, true.tokens_per_s / factor),
        "TTFT median, over starts": _over_starts(points, "ttft_s p50", true.ttft_p50_s),
        "TPOT mean, over starts": _over_starts(points, "tpot_s mean", true.tpot_mean_s),
        "throughput, over starts": _holds(
            _pooled([point.steady_tokens_per_s for point in points]), true.tokens_per_s
        ),
    }
    if world.server.survival:
        found["acceptance length"] = _holds(length, true.acceptance_length)
    return found


def _over_starts(points: list[LoadPoint], name: str, true: float) -> bool | None:
    return _holds(_pooled([point.intervals.get(name) for point in points]), true)


def _pooled(found: list[Estimate | None]) -> Estimate | None:
    known = [[item.value] for item in found if item is not None]
    return pooled(known) if known else None


def _knee(world: World, rng: np.random.Generator, seed: int) -> dict[str, bool | None]:
    """A ladder on one start."""
    server = with_start(world.server, world.start_sd, rng)
    points = [
        measured(
            closed_loop(server, concurrency=load, requests=max(40, _TURNS * load), rng=rng),
            concurrency=load,
        )
        for load in ladder(TOP)
    ]
    fit = fit_saturation(points, max_num_seqs=world.server.slots, seed=seed)
    return {"knee": None if fit is None else _holds(fit.concurrency, truth(world).knee)}


def _capacity(world: World, rng: np.random.Generator) -> dict[str, bool | None]:
    """The search for the largest rate that keeps the limits, on open loops of 300 requests."""
    slo = limits(world)
    search = Search(lowest=1.0, highest=64.0, start=4.0, precision=0.1, most_repeats=2)
    tried: list[Tried] = []
    while not isinstance(step := next_load(tried, search), Capacity):
        served = open_loop(world.server, rate_per_s=step.load, requests=_OPEN_REQUESTS, rng=rng)
        window = steady_window(served.records, concurrency=None)
        sample = inside(served.records, window) if window.steady else served.records
        tried.append(Tried(load=step.load, attained=(attained(sample, slo),)))
    return {"capacity": _within(step, capacity(world))}


def _within(found: Capacity, true: float) -> bool | None:
    """Between the largest load that passed and the smallest that was shown to fail."""
    if found.load is None:
        return None
    return found.load <= true and (found.fails_at is None or true <= found.fails_at)


def _holds(found: Estimate | None, true: float) -> bool | None:
    return None if found is None else found.low <= true <= found.high


def quantities(runs: list[dict[str, bool | None]]) -> Iterator[tuple[str, float, int, int]]:
    """Name, share that holds the truth, intervals given, and runs without one."""
    if not runs:
        raise InvalidInput("runs", "are none")
    for name in dict.fromkeys(name for found in runs for name in found):
        said = [found[name] for found in runs if name in found]
        given = [held for held in said if held is not None]
        share = sum(given) / len(given) if given else 0.0
        yield name, share, len(given), len(said) - len(given)
