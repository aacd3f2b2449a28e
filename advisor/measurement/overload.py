"""Whether an open loop asks for more than the engine serves: does its queue grow?

Requests in flight, counted from their intended send, rise by the arrival rate less the rate of
answers. Neighbouring moments of a queue are alike, so that a plain t test on the slope over samples
finds growth in busy queues that hold. Two tests share the question. Growth is shown by the
increments over blocks: of a queue that grows they are independent, of one that holds they undo each
other, which makes the t interval too wide, never too narrow. That it holds is shown by a slope
whose interval counts correlated blocks as fewer; it is narrower in a queue that returns to its
mean. On queues planted at 0.9 of capacity 1 % of 600-request loads were said to grow, at 1.3 of it
all (tests/unit/measurement/test_overload.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.records import Outcome, RequestRecord

Floats = NDArray[np.float64]

_BLOCKS = 16
_FIRST = 20  # requests whose stay counts as that in an engine that is not yet full
_LEAST_REQUESTS = 40
_LEAST_STAYS = 5.0  # the watched part in stays of a request, else it shows only the start
# A growth below this share of the arrivals is not acted on: 50 of 1,000 requests are left behind.
_MATTERS = 0.05
_ANSWERED = 0.95


class Growth(StrEnum):
    """What the queue of an open loop does."""

    GROWS = "grows"
    HOLDS = "holds"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGrowth:
    """The queue of one open loop.

    `growth_per_s` is how fast requests in flight rose, by their increments over blocks,
    `slope_per_s` the same by least squares, `ttft_rise` the rise of the time to first token in
    seconds per second of sending; None where the load was too short. `offered_per_s` are intended
    sends per second, `answered_share` is the share of them that succeeded.
    """

    verdict: Growth
    offered_per_s: float
    answered_share: float
    reason: str
    growth_per_s: Estimate | None = None
    slope_per_s: Estimate | None = None
    ttft_rise: Estimate | None = None

    @property
    def holds(self) -> bool | None:
        """As `capacity.Tried` has it."""
        return {Growth.GROWS: False, Growth.HOLDS: True, Growth.UNKNOWN: None}[self.verdict]


def queue_growth(records: Sequence[RequestRecord], *, least_span_s: float = 30.0) -> QueueGrowth:
    """Judge one open loop from all its records, those sent too late by the client included.

    The first stays are left out, in which any engine fills up. GROWS: growth is shown and leaves
    more than 5 % of the arrivals behind, or more than 5 % failed. HOLDS: such a growth is ruled
    out. No request, or all at one moment, raises `InvalidInput`.
    """
    if not records:
        raise InvalidInput("records", "an open loop has at least one request")
    sends = [record.intended_s for record in records]
    span_s = max(sends) - min(sends)
    if span_s <= 0:
        raise InvalidInput("records", "all requests were to be sent at one moment")
    offered = (len(records) - 1) / span_s
    answered = sum(record.outcome is Outcome.OK for record in records) / len(records)
    watched = _watched(records, least_span_s)
    if answered < _ANSWERED or isinstance(watched, str):
        lost = f"only {answered:.1%} of the requests were answered"
        return QueueGrowth(
            verdict=Growth.GROWS if answered < _ANSWERED else Growth.UNKNOWN,
            offered_per_s=offered,
            answered_share=answered,
            reason=watched if answered >= _ANSWERED and isinstance(watched, str) else lost,
        )
    growth = _growth(records, *watched)
    slope = _slope(*_in_flight(records, *watched))
    verdict, reason = _judged(growth, slope, offered)
    return QueueGrowth(
        verdict=verdict,
        offered_per_s=offered,
        answered_share=answered,
        reason=reason,
        growth_per_s=growth,
        slope_per_s=slope,
        ttft_rise=_ttft_rise(records, *watched),
    )


def _judged(growth: Estimate, slope: Estimate, offered: float) -> tuple[Growth, str]:
    share = growth.value / offered
    if growth.low > 0 and share > _MATTERS:
        return Growth.GROWS, f"requests in flight grow by {share:.1%} of the arrivals"
    most = slope.high / offered
    if most < _MATTERS:
        return Growth.HOLDS, f"requests in flight grow by at most {most:.1%} of the arrivals"
    return Growth.UNKNOWN, f"a growth of up to {most:.1%} of the arrivals is not ruled out"


def _watched(records: Sequence[RequestRecord], least_span_s: float) -> tuple[float, float] | str:
    """The part after the first stays until the last send, or why there is none."""
    early = sorted(records, key=lambda record: record.intended_s)[:_FIRST]
    stay_s = float(np.median([record.e2e_s for record in early]))
    sends = np.array([record.intended_s for record in records])
    first, last = float(sends.min()), float(sends.max())
    since = first + 2 * stay_s
    if last - first < least_span_s:
        return f"{last - first:.3g} s are too short to see a queue grow ({least_span_s:g} s)"
    if int((sends > since).sum()) < _LEAST_REQUESTS:
        return f"fewer than {_LEAST_REQUESTS} requests came after the first stays"
    if last - since < _LEAST_STAYS * stay_s:
        return "the load lasted only a few times as long as one request"
    return since, last


def _growth(records: Sequence[RequestRecord], since: float, until: float) -> Estimate:
    """Requests per second, from the increments over blocks with a t interval."""
    edges = np.linspace(since, until, _BLOCKS + 1)
    starts = np.sort([record.intended_s for record in records])
    ends = np.sort([record.end_s for record in records])
    present = starts.searchsorted(edges, side="right") - ends.searchsorted(edges, side="right")
    return _rise(np.asarray(present, dtype=float), (until - since) / _BLOCKS)


def _rise(values: Floats, apart_s: float) -> Estimate:
    """Rise per second of values so many seconds apart, from their increments."""
    increments = np.diff(values) / apart_s
    count = len(increments)
    mean = float(increments.mean())
    half = float(stdtrit(count - 1, 0.975)) * float(increments.std(ddof=1)) / math.sqrt(count)
    return Estimate(
        value=mean,
        low=mean - half,
        high=mean + half,
        source=Source.MEASURED,
        basis=f"{count} increments between blocks, t interval",
    )


def _in_flight(
    records: Sequence[RequestRecord], since: float, until: float
) -> tuple[Floats, Floats]:
    """Middle times of equal blocks and the mean number in flight in each, shape ``[blocks]``."""
    edges = np.linspace(since, until, _BLOCKS + 1)
    starts = np.array([record.intended_s for record in records])
    ends = np.array([record.end_s for record in records])
    # Request-seconds spent before each edge; the difference over a block is mean times length.
    stayed = np.clip(edges[:, None], starts, ends) - starts
    mean = np.diff(stayed.sum(axis=1)) / np.diff(edges)
    return (edges[1:] + edges[:-1]) / 2, mean


def _ttft_rise(records: Sequence[RequestRecord], since: float, until: float) -> Estimate | None:
    """Of block means over the send time; None where a block has no first token."""
    seen = [
        (record.intended_s, record.ttft_s)
        for record in records
        if record.ttft_s is not None and since <= record.intended_s <= until
    ]
    times = np.array([when for when, _ in seen])
    block = np.minimum((_BLOCKS * (times - since) / (until - since)).astype(int), _BLOCKS - 1)
    counts = np.bincount(block, minlength=_BLOCKS)
    if (counts == 0).any():
        return None
    means = np.bincount(block, weights=[ttft for _, ttft in seen], minlength=_BLOCKS) / counts
    return _rise(means, (until - since) / _BLOCKS)


def _slope(times: Floats, values: Floats) -> Estimate:
    """Least squares with a t interval that counts correlated blocks as fewer (Santer et al., 2000).

    The lag-1 correlation of residuals of a line is too small in the mean by about (1 + 4 r) / n
    (Kendall, 1954), which is added back before it counts.
    """
    count = len(times)
    centred = times - times.mean()
    slope = float(centred @ values / (centred @ centred))
    left = values - values.mean() - slope * centred
    squares = float(left @ left)
    lag = float(left[1:] @ left[:-1] / squares) if squares > 0 else 0.0
    lag = min(0.95, max(0.0, lag + (1 + 4 * lag) / count))
    worth = count * (1 - lag) / (1 + lag)
    freedom = max(1.0, worth - 2)
    error = math.sqrt(squares / freedom / float(centred @ centred))
    half = float(stdtrit(freedom, 0.975)) * error
    return Estimate(
        value=slope,
        low=slope - half,
        high=slope + half,
        source=Source.MEASURED,
        basis=f"least squares over {count} block means worth {worth:.1f}, t interval",
    )
