"""Growth of an engine's counters over many snapshots, restarts included, and its histograms."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from typing_extensions import override

from advisor.errors import InvalidInput

Snapshot = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How much each counter grew over the snapshots.

    `resets` are the places of the snapshots before which the counters began anew. What was counted
    between the last snapshot before a reset and the reset is in no snapshot: with resets the growth
    is what is known at least.
    """

    totals: Mapping[str, float]
    resets: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether one engine counted all along."""
        return not self.resets


def growth(snapshots: Sequence[Snapshot]) -> Growth:
    """Growth from the first to the last snapshot of counters that never fall but by a restart.

    A restart resets all counters of the engine at once: where any one fell, all of them count
    from zero again, also those that had passed their old value by then. A counter that is not yet
    in a snapshot stood at zero.
    """
    if len(snapshots) <= 1:
        raise InvalidInput("snapshots", "a difference needs two")
    totals = dict.fromkeys((name for snapshot in snapshots for name in snapshot), 0.0)
    resets = []
    for place, (before, after) in enumerate(pairwise(snapshots), start=1):
        restarted = any(after.get(name, 0.0) < value for name, value in before.items())
        if restarted:
            resets.append(place)
        for name, value in after.items():
            totals[name] += value if restarted else value - before.get(name, 0.0)
    return Growth(totals=totals, resets=tuple(resets))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketQuantile:
    """A quantile read off a histogram.

    `beyond`: it lies above the last finite bound, which is `value`; nothing more is known
    (case S-12). Else `value` is interpolated within a bucket as if its values lay evenly.
    """

    value: float
    beyond: bool

    @override
    def __str__(self) -> str:
        return f"> {self.value:g}" if self.beyond else f"{self.value:.4g} (interpolated)"


def histogram_quantile(buckets: Iterable[tuple[float, float]], share: float) -> BucketQuantile:
    """The quantile of a histogram given as (upper bound, count up to it), in any order.

    The last bound is infinite. An empty histogram or one without that bound: `InvalidInput`.
    """
    rows = _rows(buckets)
    wanted = share * rows[-1][1]
    lower, below = min(0.0, rows[0][0]), 0.0
    for bound, count in rows:
        if count >= wanted and count > 0:
            if math.isinf(bound):
                return BucketQuantile(value=lower, beyond=True)
            inside = count - below
            part = (wanted - below) / inside if inside > 0 else 1.0
            return BucketQuantile(value=lower + part * (bound - lower), beyond=False)
        lower, below = bound, count
    raise InvalidInput("histogram", "its counts fall")


def met_share(buckets: Iterable[tuple[float, float]], limit: float) -> tuple[float, float]:
    """Least and largest share of values at or below `limit` that the histogram allows.

    Equal where the limit is a bound. Above the last finite bound the largest is 1: whether a limit
    there is met is unknown (case S-12).
    """
    rows = _rows(buckets)
    total = rows[-1][1]
    least = max((count for bound, count in rows if bound <= limit), default=0.0)
    most = next(count for bound, count in rows if bound >= limit)
    return least / total, most / total


def _rows(buckets: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    rows = sorted(buckets)
    if not rows or not math.isinf(rows[-1][0]):
        raise InvalidInput("histogram", "it has no last bucket without a bound")
    if rows[-1][1] <= 0:
        raise InvalidInput("histogram", "it counted nothing")
    return rows
