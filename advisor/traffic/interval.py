"""Intervals for ratios of sums over requests, resampled by request (handbook 6.1, 11.2)."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 400
_LEVEL = (2.5, 97.5)
_DRAWS_AT_ONCE = 1_000_000


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, seed: int = 0
) -> tuple[float, float, float]:
    """``sum(numerators) / sum(denominators)`` with its 95 % bootstrap interval (value, low, high).

    A request is drawn with both of its numbers: tokens of one request are not independent. The
    seed is fixed, so that equal inputs give equal intervals. The denominators' sum is positive.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    value = float(top.sum() / bottom.sum())
    rng = np.random.default_rng(seed)
    rows = max(1, min(RESAMPLES, _DRAWS_AT_ONCE // len(top)))
    drawn = []
    for start in range(0, RESAMPLES, rows):
        picked = rng.integers(0, len(top), size=(min(rows, RESAMPLES - start), len(top)))
        below = bottom[picked].sum(axis=1)
        drawn.append(top[picked].sum(axis=1)[below > 0] / below[below > 0])
    low, high = np.percentile(np.concatenate(drawn), _LEVEL)
    return value, min(float(low), value), max(float(high), value)
