"""Intervals of percentiles and means from requests that need not be independent (handbook 11.2).

Percentiles have order-statistic intervals: two of the values themselves, which need no form of the
distribution. Requests that run at once share steps, and turns of a session share a history, so a
sample says less than its count: the count is divided by the design effect first.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri, stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source

Floats = NDArray[np.float64]

LEVEL = 0.95
# Handbook 11.2: below this no 99th percentile is stated at all.
LEAST_FOR_P99 = 300
_P99 = 0.99
LEAST_BATCHES = 20
MOST_CORRELATION = 0.2
# Fewer batches, values or groups than these say nothing of how their means vary.
_FEW_BATCHES = 5
_FEW_VALUES = 3
_LEAST_IN_TIME = 40
_BATCHES, _LEAST_IN_BATCH = 10, 8


def ranks(count: int, share: float, *, level: float = LEVEL) -> tuple[int | None, int | None]:
    """Ranks, from 1, of the values that hold the percentile at this level; None: no such value.

    Of n independent values the number below the percentile is Binomial(n, share).
    """
    if count < 1 or not 0 < share < 1:
        raise InvalidInput("percentile", f"{share} of {count} values")
    tail = (1 - level) / 2
    below = bdtr(np.arange(count, dtype=float), count, share)
    low = int(np.count_nonzero(below <= tail))
    high = int(np.count_nonzero(below < 1 - tail)) + 1
    return (low or None), (high if high <= count else None)


def least_count(share: float, *, level: float = LEVEL, sides: int = 1) -> int:
    """Fewest values of which the largest lies above the percentile at this level.

    ``n >= ln(alpha) / ln(share)``, alpha halved for an interval with two sides.
    """
    return math.ceil(math.log((1 - level) / sides) / math.log(share))


def count_for(share: float, *, precision: float, sigma: float) -> float:
    """Values that a percentile needs for this relative half-width, with a lognormal tail.

    ``z^2 p (1 - p) / (f(q) q)^2 / precision^2``, where f(q) q of a lognormal distribution is the
    normal density at the percentile over `sigma`.
    """
    at = float(ndtri(share))
    density = math.exp(-(at**2) / 2) / math.sqrt(2 * math.pi) / sigma
    z = float(ndtri(1 - (1 - LEVEL) / 2))
    return z**2 * share * (1 - share) / density**2 / precision**2


def percentile(
    values: Sequence[float], share: float, *, clusters: Sequence[Hashable] | None = None
) -> Estimate | None:
    """The percentile with its order-statistic interval; None where the count does not allow one.

    `values` are in the order of sending: neighbours in time may be alike. `clusters` names what
    each value belongs to (a session), where one cluster's values are alike. The 99th percentile
    and above need 300 values.
    """
    known = np.asarray(values, dtype=float)
    if share >= _P99 and len(known) < LEAST_FOR_P99:
        return None
    if len(known) == 0:
        return None
    value = float(np.quantile(known, share))
    # Values that are equal to the percentile lie on both sides of it.
    sides = ((known <= value).astype(float), (known < value).astype(float))
    effect = max(design_effect(side, clusters) for side in sides)
    effective = max(1, math.floor(len(known) / effect))
    low, high = ranks(effective, share)
    if low is None or high is None:
        return None
    # Ranks of the smaller sample, moved to the same shares of the whole one, outwards.
    first = math.floor((low - 1) * len(known) / effective)
    last = math.ceil(high * len(known) / effective) - 1
    ordered = np.sort(known)
    return Estimate(
        value=value,
        low=min(value, float(ordered[first])),
        high=max(value, float(ordered[last])),
        source=Source.MEASURED,
        basis=f"order statistics of {_sample(len(known), effective)}",
    )


def mean(values: Sequence[float], *, clusters: Sequence[Hashable] | None = None) -> Estimate | None:
    """The mean of values in order with a t interval; None below three.

    The count is divided by the design effect. A weak likeness over many neighbours hides in the
    noise of single values and shows in the means of batches: the wider of both intervals is taken.
    Neighbouring batches share the requests in flight between them, which is made up for.
    """
    known = np.asarray(values, dtype=float)
    if len(known) < _FEW_VALUES:
        return None
    effect = design_effect(known, clusters)
    effective = len(known) / effect
    if effective <= 1:
        return None
    half = t_half_width(float(known.std(ddof=1)), effective)
    half = max(half, _half_of_batches(known))
    return around(
        float(known.mean()), half, f"t interval of {_sample(len(known), math.floor(effective))}"
    )


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """Sum over sum with a t interval over the pairs, a request each; None below three.

    Each pair's distance from the ratio, linearised: requests differ, their parts do not count on
    their own.
    """
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if len(above) < _FEW_VALUES or below.sum() <= 0:
        return None
    value = float(above.sum() / below.sum())
    apart = (above - value * below) / below.mean()
    half = t_half_width(float(apart.std(ddof=1)), len(above))
    return around(value, half, f"t interval over {len(above)} requests")


def batch_means(batches: Sequence[float]) -> Estimate | None:
    """Mean of equal time batches with a t interval; None below five batches.

    Batches are merged in pairs while neighbours are alike (lag-1 correlation of 0.2 and more) and
    at least 20 are left (handbook 11.1). What correlation the finest batches show over longer times
    counts too, as does that of a tenth of the time each: the widest interval is taken.
    """
    finest = np.asarray(batches, dtype=float)
    if len(finest) < _FEW_BATCHES:
        return None
    means = finest
    while abs(lag_one(means)) >= MOST_CORRELATION and len(means) // 2 >= LEAST_BATCHES:
        paired = means[: len(means) // 2 * 2]
        means = paired.reshape(-1, 2).mean(axis=1)
    alike = lag_one(means)
    few = "" if len(means) >= LEAST_BATCHES else ", fewer than 20"
    stays = "" if abs(alike) < MOST_CORRELATION else f", lag-1 correlation {alike:.2f}"
    half = t_half_width(float(means.std(ddof=1)), float(len(means)))
    effective = max(2.0, len(finest) / design_effect(finest))
    half = max(half, t_half_width(float(finest.std(ddof=1)), effective), _half_of_batches(finest))
    return around(
        float(finest.mean()), half, f"t interval over {len(means)} time batches{few}{stays}"
    )


def lag_one(values: Floats) -> float:
    """Correlation of neighbours; 0 where nothing varies."""
    centred = values - values.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0


def design_effect(values: Floats, clusters: Sequence[Hashable] | None = None) -> float:
    """How many times wider than that of independent values the variance of the mean is, 1 at least.

    Of clusters: the variance of their totals about the mean, against that of single values. In
    time: by the correlations of neighbours, of neighbours' neighbours and so on (`_in_time`).
    """
    count = len(values)
    centred = values - values.mean()
    alone = float(centred @ centred) / max(1, count - 1)
    if alone <= 0 or count < _FEW_VALUES:
        return 1.0
    effects = [1.0, _in_time(centred)]
    if clusters is not None:
        effects.append(_in_clusters(centred, clusters, alone))
    return min(max(effects), float(count))


def _in_time(centred: Floats) -> float:
    """``1 + 2 (rho_1 + rho_2 + ...)``, until sums of two neighbours fall below 0 (Geyer, 1992).

    Such sums fall steadily for values that remember: what rises again is noise and is cut down.
    Taking the mean off the values hides a share of ``effect / n``, which is put back.
    """
    count = len(centred)
    if count < _LEAST_IN_TIME:
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * count)
    products = np.fft.irfft(spectrum * spectrum.conj(), 2 * count)[:count]
    correlations = products[: count // 2 * 2] / products[0]
    sums = correlations.reshape(-1, 2).sum(axis=1)
    below = np.flatnonzero(sums <= 0)
    kept = np.minimum.accumulate(sums[: below[0]] if len(below) else sums)
    effect = max(1.0, 2 * float(kept.sum()) - 1)
    return effect / max(1 / count, 1 - effect / count)


def _in_clusters(centred: Floats, clusters: Sequence[Hashable], alone: float) -> float:
    totals: dict[Hashable, float] = {}
    for value, cluster in zip(centred, clusters, strict=True):
        totals[cluster] = totals.get(cluster, 0.0) + float(value)
    groups = len(totals)
    if groups <= 1:
        return float(len(centred))
    between = sum(total**2 for total in totals.values()) * groups / (groups - 1)
    return between / (alone * len(centred))


def _half_of_batches(values: Floats) -> float:
    """Half of the t interval over few long batches; 0 where there are too few values for them."""
    batches = min(_BATCHES, len(values) // _LEAST_IN_BATCH)
    if batches < _FEW_BATCHES:
        return 0.0
    size = len(values) // batches
    means = values[: batches * size].reshape(batches, size).mean(axis=1)
    # The mean of few values taken off, their neighbours look less alike than they are.
    alike = lag_one(means) + 1 / batches
    return math.sqrt(_spread(alike)) * t_half_width(float(means.std(ddof=1)), batches)


def _spread(correlation: float) -> float:
    """Variance of the mean of neighbours with this correlation over that of independent values."""
    held = min(0.5, max(0.0, correlation))
    return (1 + held) / (1 - held)


def t_half_width(deviation: float, count: float) -> float:
    """Half of the 95 % t interval of a mean of so many independent values, 2 at least."""
    return float(stdtrit(count - 1, 1 - (1 - LEVEL) / 2)) * deviation / math.sqrt(count)


def around(value: float, half: float, basis: str) -> Estimate:
    """A measured value with a symmetric interval."""
    return Estimate(
        value=value, low=value - half, high=value + half, source=Source.MEASURED, basis=basis
    )


def _sample(count: int, effective: int) -> str:
    if effective >= count:
        return f"{count} requests"
    return f"{count} requests, worth {effective} independent ones"
