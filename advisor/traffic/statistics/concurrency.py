"""Requests in flight over time, swept over the durations that a log measured."""

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.facts import Facts
from advisor.traffic.figures import Concurrency, Timeline
from advisor.traffic.statistics.arrivals import nice_window

_P95 = 0.95


def concurrency(facts: Facts) -> Concurrency | None:
    """From arrivals and durations; None where no request has both or none takes any time.

    Mean and percentile are over time, from the first arrival to the last end. `known` requests
    have a duration: the others are not counted, so the figures are lower bounds where they lack.
    """
    usable = ~np.isnan(facts.arrival_s) & (facts.duration_s >= 0)
    starts = facts.arrival_s[usable]
    ends = starts + facts.duration_s[usable]
    if not len(starts) or ends.max() <= starts.min():
        return None
    moments, held = _steps(starts, ends)
    spans = np.diff(moments)
    span_s = float(moments[-1] - moments[0])
    areas = np.concatenate([np.zeros(1), np.cumsum(spans * held[:-1])])
    window_s = nice_window(span_s)
    edges = np.append(np.arange(0, span_s, window_s), span_s)
    inside = np.diff(np.interp(edges + moments[0], moments, areas))
    order = np.argsort(held[:-1], kind="stable")
    below = np.cumsum(spans[order])
    return Concurrency(
        mean=float(areas[-1] / span_s),
        p95=float(held[order[int(np.searchsorted(below, _P95 * below[-1]))]]),
        peak=int(held.max()),
        known=len(starts),
        timeline=Timeline(window_s=window_s, values=tuple((inside / np.diff(edges)).tolist())),
    )


def _steps(
    starts: NDArray[np.float64], ends: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The moments at which the number in flight changes, and the number from there on.

    A request that ends when another starts is not in flight with it.
    """
    moments = np.unique(np.concatenate([starts, ends]))
    begun = np.searchsorted(np.sort(starts), moments, side="right")
    ended = np.searchsorted(np.sort(ends), moments, side="right")
    return moments, (begun - ended).astype(np.int64)
