"""Distributions as tools state them, and what a point of theirs is good for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from advisor.errors import InvalidInput
from advisor.measurement.imports.fields import REMEDY
from advisor.measurement.protocol.reached import load_reached
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint

S_PER_MS = 1e-3
FEWEST_FOR_P99 = 300  # handbook 11.2: below that a p99 is one request's luck
COMPUTED = (50.0, 90.0, 95.0)
CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a tool says of one quantity, in its own unit; `field` is where it says so."""

    field: str
    count: int | None = None
    mean: float | None = None
    sd: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    percentiles: Mapping[float, float | None]


def distribution(stated: Stated, scale: float = 1.0) -> Distribution | None:
    """The figures times `scale`; None where nothing was measured.

    Tools write 0 for a time that no request had (case S-04): figures that are all 0 are none.
    """
    known = {p: value for p, value in sorted(stated.percentiles.items()) if value is not None}
    figures = [stated.mean, stated.minimum, stated.maximum, *known.values()]
    if stated.count == 0 or not any(figures):
        return None
    ordered = [stated.minimum, *known.values(), stated.maximum]
    rising = [value for value in ordered if value is not None]
    if any(after < before * (1 - CLOSE) for before, after in pairwise(rising)):
        raise InvalidInput(stated.field, f"a higher percentile is the smaller one; {REMEDY}")
    return Distribution(
        count=stated.count,
        mean=_scaled(stated.mean, scale),
        sd=_scaled(stated.sd, scale),
        minimum=_scaled(stated.minimum, scale),
        maximum=_scaled(stated.maximum, scale),
        percentiles={p: value * scale for p, value in known.items()},
    )


def of_values(values: Sequence[float]) -> Distribution | None:
    """Figures of per-request values of a file, computed here; None where all are 0 or none is."""
    if not any(values):
        return None
    array = np.asarray(values, dtype=float)
    wanted = (*COMPUTED, 99.0) if len(values) >= FEWEST_FOR_P99 else COMPUTED
    return Distribution(
        count=len(values),
        mean=float(array.mean()),
        sd=float(array.std()),
        minimum=float(array.min()),
        maximum=float(array.max()),
        percentiles={p: float(np.percentile(array, p)) for p in wanted},
    )


def judged(point: MeasuredPoint) -> MeasuredPoint:
    """The point with its flaws: failures, nothing measured, a closed loop that was not filled."""
    flaws = []
    if point.failed:
        flaws.append(f"{point.failed} of {point.requests} requests failed")
    if point.requests == point.failed:
        flaws.append("no request succeeded")
    loaded = in_flight(point)
    if loaded is not None and point.concurrency is not None and point.kind is LoopKind.CLOSED:
        planned = int(point.concurrency)
        if not load_reached(loaded, planned):
            flaws.append(
                f"load not reached: {loaded:.1f} of {planned} requests in flight (Little's law)"
            )
    return replace(point, usable=point.usable and not flaws, remarks=(*flaws, *point.remarks))


def in_flight(point: MeasuredPoint) -> float | None:
    """Mean number of requests in flight by Little's law; None without rate or latency."""
    if point.requests_per_s is None or point.e2e_s is None or point.e2e_s.mean is None:
        return None
    return point.requests_per_s * point.e2e_s.mean


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
