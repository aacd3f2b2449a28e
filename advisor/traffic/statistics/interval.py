"""Intervals for ratios of sums over requests, resampled by request (handbook 6.1, 11.2)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 400
LARGE = 20_000
_LEVEL = (2.5, 97.5)
_DRAWS_AT_ONCE = 1_000_000
_TWO_SIDED_95 = 1.959964

Column = Sequence[float] | NDArray[np.int64] | NDArray[np.float64]


def ratio_interval(
    numerators: Column, denominators: Column, *, seed: int = 0
) -> tuple[float, float, float]:
    """``sum(numerators) / sum(denominators)`` with its 95 % bootstrap interval (value, low, high).

    A request is drawn with both of its numbers: tokens of one request are not independent. The
    seed is fixed, so that equal inputs give equal intervals. The denominators' sum is positive.
    Above 20,000 requests the interval is the normal one that the bootstrap tends to (the ratio's
    linearisation, residuals ``n - value * d``), because resampling would take seconds.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    value = float(top.sum() / bottom.sum())
    if len(top) > LARGE:
        half = _TWO_SIDED_95 * float(np.sqrt(((top - value * bottom) ** 2).sum()) / bottom.sum())
        return value, value - half, value + half
    rng = np.random.default_rng(seed)
    rows = max(1, min(RESAMPLES, _DRAWS_AT_ONCE // len(top)))
    drawn = []
    for start in range(0, RESAMPLES, rows):
        picked = rng.integers(0, len(top), size=(min(rows, RESAMPLES - start), len(top)))
        below = bottom[picked].sum(axis=1)
        drawn.append(top[picked].sum(axis=1)[below > 0] / below[below > 0])
    low, high = np.percentile(np.concatenate(drawn), _LEVEL)
    return value, min(float(low), value), max(float(high), value)
