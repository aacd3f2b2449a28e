"""What static batches of given output lengths waste (handbook 5.1)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.estimate import Estimate, Source
from advisor.traffic.interval import RESAMPLES

_LEVEL = (2.5, 97.5)


def static_waste(lengths: Sequence[int]) -> float:
    """Idle share of the slots of one static batch, which ends with its longest request."""
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def resampled_static_waste(lengths: Sequence[int], batch: int) -> float:
    """Idle share expected of static batches of `batch` requests drawn from these lengths.

    One less the mean length over the mean of the longest of `batch` draws with replacement.
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    return 1 - 1 / float(_speedups(values, counts[np.newaxis], batch)[0])


def static_speedup(lengths: Sequence[int], batch: int, *, seed: int = 0) -> Estimate | None:
    """The most that continuous batching gains over static batches: E[longest of batch] / E[length].

    A bound: it takes a step to last as long whether or not rows of it are finished. The interval
    is bootstrapped by request. None below two lengths, or where all are 0.
    """
    if len(lengths) <= 1 or not any(lengths):
        return None
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    total = len(lengths)
    drawn = np.random.default_rng(seed).multinomial(total, counts / total, size=RESAMPLES)
    value = float(_speedups(values, counts[np.newaxis], batch)[0])
    low, high = np.percentile(_speedups(values, drawn[drawn @ values > 0], batch), _LEVEL)
    return Estimate(
        value=value,
        low=min(float(low), value),
        high=max(float(high), value),
        source=Source.SIMULATED,
        basis=f"upper bound E[longest of {batch}] / E[length] of {total} outputs, bootstrap by"
        " request",
    )


def _speedups(
    values: NDArray[np.int64], counts: NDArray[np.int64], batch: int
) -> NDArray[np.float64]:
    """Mean longest of `batch` draws over the mean, for every row of counts of ascending values."""
    below = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    longest = np.diff(below**batch, axis=1, prepend=0.0) @ values
    means = counts @ values / counts.sum(axis=1)
    ratios: NDArray[np.float64] = longest / means
    return ratios
