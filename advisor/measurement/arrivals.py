"""Send times of an open loop: equal arguments give equal times."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.measurement.records import OpenLoop

Floats = NDArray[np.float64]


def arrival_offsets(
    loop: OpenLoop, count: int, *, seed: int, recorded_s: Sequence[float | None] | None = None
) -> tuple[float, ...]:
    """Send times of `count` requests in seconds after the start; the first goes at once.

    One seed gives the same gaps at every rate, only longer or shorter, so that loads at two rates
    are compared on the same luck. `recorded_s` are the recorded times of the requests, for
    arrivals "recorded" (`loop.speed` None: as fast as recorded).
    """
    if count < 1:
        raise InvalidInput("count", "a load without a request measures nothing")
    match loop.arrivals:
        case "recorded":
            offsets = _recorded(recorded_s, count, speed=1.0 if loop.speed is None else loop.speed)
        case "constant":
            offsets = np.arange(count) / _rate(loop)
        case "poisson":
            offsets = _renewal(loop, count, seed, cv=1.0)
        case "gamma":
            offsets = _renewal(loop, count, seed, cv=_variation(loop))
        case _:
            raise InvalidInput("arrivals", "is one of poisson, gamma, recorded, constant")
    return tuple(offsets.tolist())


def recorded_loop(
    recorded_s: Sequence[float | None], *, speed: float = 1.0, most_in_flight: int | None = None
) -> OpenLoop:
    """The open loop that replays these times at `speed` times their pace, with its mean rate."""
    offsets = _recorded(recorded_s, len(recorded_s), speed=speed)
    span_s = float(offsets[-1]) if len(offsets) else 0.0
    if span_s <= 0:
        raise InvalidInput("recorded_s", "all requests came at once: they have no rate")
    return OpenLoop(
        arrivals="recorded",
        rate_per_s=(len(offsets) - 1) / span_s,
        speed=speed,
        most_in_flight=most_in_flight,
    )


def _renewal(loop: OpenLoop, count: int, seed: int, *, cv: float) -> Floats:
    """Independent gaps of mean 1 / rate and coefficient of variation `cv`, gamma distributed.

    Shape 1 / cv^2: 1 is the exponential of a Poisson process, above 1 comes in bursts.
    """
    shape = 1.0 / cv**2
    gaps = np.random.default_rng(seed).gamma(shape, 1.0 / shape, count - 1)
    return np.concatenate([[0.0], np.cumsum(gaps)]) / _rate(loop)


def _recorded(recorded_s: Sequence[float | None] | None, count: int, *, speed: float) -> Floats:
    """Gaps are scaled, not times: a log that begins in 2023 does not begin by waiting (T-07)."""
    if recorded_s is None or len(recorded_s) != count:
        raise InvalidInput("recorded_s", "one recorded time per request is needed")
    if not 0 < speed < float("inf"):
        raise InvalidInput("speed", f"{speed} is not above 0")
    known = [time for time in recorded_s if time is not None]
    if len(known) != count:
        raise InvalidInput("recorded_s", f"{count - len(known)} requests have no recorded time")
    times = np.asarray(known, dtype=np.float64)
    if not np.isfinite(times).all() or bool((np.diff(times) < 0).any()):
        raise InvalidInput("recorded_s", "times run backwards or have no end")
    offsets: Floats = (times - times[0]) / speed
    return offsets


def _rate(loop: OpenLoop) -> float:
    if not 0 < loop.rate_per_s < float("inf"):
        raise InvalidInput("rate_per_s", f"{loop.rate_per_s} is not above 0")
    return loop.rate_per_s


def _variation(loop: OpenLoop) -> float:
    cv = loop.cv
    if cv is None or not 0 < cv < float("inf"):
        raise InvalidInput("cv", "gamma arrivals need a coefficient of variation above 0")
    return cv
