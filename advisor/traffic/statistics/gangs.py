"""What static batches of given output lengths waste (handbook 5.1)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.estimate import Estimate, Source
from advisor.traffic.statistics.interval import RESAMPLES

_LEVEL = (2.5, 97.5)
_TWO_SIDED_95 = 1.959964
# Resampling costs the number of different lengths.
_MANY = 2_000


def static_waste(lengths: Sequence[int]) -> float:
    """Idle share of the slots of one static batch, which ends with its longest request."""
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def resampled_static_waste(lengths: Sequence[int], batch: int) -> float:
    """Idle share expected of static batches of `batch` requests drawn from these lengths.

    One less the mean length over the mean of the longest of `batch` draws with replacement.
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    return 1 - 1 / float(_speedups(values, counts[np.newaxis], batch)[0])


def static_speedup(
    lengths: Sequence[int] | NDArray[np.int64], batch: int, *, seed: int = 0
) -> Estimate | None:
    """The most that continuous batching gains over static batches: E[longest of batch] / E[length].

    A bound: it takes a step to last as long whether or not rows of it are finished. The interval
    is bootstrapped by request; with more than 2,000 different lengths it is the normal one that
    the bootstrap tends to. None below two lengths, or where all are 0.
    """
    values, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    total = int(counts.sum())
    if total <= 1 or not values.any():
        return None
    if len(values) > _MANY:
        value, half = _linear(values, counts, batch)
        return _bound((value, max(1.0, value - half), value + half), batch, total)
    drawn = np.random.default_rng(seed).multinomial(total, counts / total, size=RESAMPLES)
    value = float(_speedups(values, counts[np.newaxis], batch)[0])
    low, high = np.percentile(_speedups(values, drawn[drawn @ values > 0], batch), _LEVEL)
    return _bound((value, min(float(low), value), max(float(high), value)), batch, total)


def _bound(interval: tuple[float, float, float], batch: int, total: int) -> Estimate:
    value, low, high = interval
    return Estimate(
        value=value,
        low=min(low, value),
        high=high,
        source=Source.SIMULATED,
        basis=f"upper bound E[longest of {batch}] / E[length] of {total} outputs, bootstrap by"
        " request",
    )


def _linear(
    values: NDArray[np.int64], counts: NDArray[np.int64], batch: int
) -> tuple[float, float]:
    """The ratio and half of its 95 % interval, from the influence of one request on it.

    ``E[longest] = integral of 1 - F(t)^batch``, so that a request of length x adds to it
    ``-batch * integral of F(t)^(batch - 1) * ((x <= t) - F(t))``.
    """
    total = counts.sum()
    share = counts / total
    below = np.cumsum(share)
    longest = float(np.diff(below**batch, prepend=0.0) @ values)
    mean = float(share @ values)
    widths = np.diff(values, append=values[-1])
    weights = batch * below ** (batch - 1) * widths
    # The integral from x on, less what all requests have on average.
    from_x = np.cumsum(weights[::-1])[::-1]
    influence = float((weights * below).sum()) - from_x
    residual = (influence - longest / mean * (values - mean)) / mean
    deviation = float(np.sqrt(share @ residual**2 / total))
    return longest / mean, _TWO_SIDED_95 * deviation


def _speedups(
    values: NDArray[np.int64], counts: NDArray[np.int64], batch: int
) -> NDArray[np.float64]:
    """Mean longest of `batch` draws over the mean, for every row of counts of ascending values."""
    below = np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True)
    longest = np.diff(below**batch, axis=1, prepend=0.0) @ values
    means = counts @ values / counts.sum(axis=1)
    ratios: NDArray[np.float64] = longest / means
    return ratios
