"""One set of public measurements against our predictions: points, figures, words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.estimate import Estimate
from tests.bench.figures import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured number and what was predicted without it; `series` groups points of a kind."""

    series: str
    label: str
    measured: float
    predicted: Estimate

    @property
    def error(self) -> float:
        """Relative error of the centre."""
        return abs(self.predicted.value / self.measured - 1)

    @property
    def covered(self) -> bool:
        """Whether the 90 % interval holds the measured number."""
        return self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another predictor's published figure on the same or the like data."""

    name: str
    figure: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSet:
    """What one set showed. `pooled` False keeps its points out of the pooled coverage.

    That is for points that were not held out, and for predictions that are no 90 % intervals.
    """

    name: str
    title: str
    what: str
    points: tuple[Point, ...]
    figures: tuple[Figure, ...]
    not_modelled: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())
    pooled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Error and coverage of some points; `width` is the median of high over low."""

    points: int
    median_error: float
    mean_error: float
    p90_error: float
    coverage: float
    width: float


def summary(points: Sequence[Point]) -> Summary:
    """Median, mean and 90th percentile of the relative error, and what the intervals hold."""
    errors = [point.error for point in points]
    widths = [
        math.log(point.predicted.high / point.predicted.low)
        for point in points
        if point.predicted.low > 0
    ]
    return Summary(
        points=len(points),
        median_error=float(np.median(errors)),
        mean_error=float(np.mean(errors)),
        p90_error=float(np.percentile(errors, 90)),
        coverage=sum(point.covered for point in points) / len(points),
        width=math.exp(float(np.median(widths))) if widths else math.inf,
    )
