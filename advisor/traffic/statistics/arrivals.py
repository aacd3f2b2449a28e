"""Rate and burstiness of arrivals."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.figures import Arrivals, Burstiness, PeakWindow, Timeline

WINDOWS = 60
HOUR_S = 3_600.0
DAY_HOURS = 24
# Windows that people think in, from a second to a day.
NICE_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400)
FANO_S = (1.0, 10.0, 60.0, 600.0, 3_600.0)
PEAK_S = (1.0, 10.0, 60.0, 600.0, 3_600.0)
_MIN_FOR_VARIATION = 3
_MOST_POINTS = 120
# Below this many windows the variance of their counts says little.
_FANO_WINDOWS = 10
_FANO_MOST = 4_000_000
_SLOTS = 16
# A clock ticks where most neighbours share a time and the others lie whole ticks apart.
_SHARING = 0.5
_ON_TICK = 0.9
_TICK_SLACK = 0.1
_TICK_GAPS = 10
_DIURNAL_SPAN_S = 20 * HOUR_S

Times = NDArray[np.float64]


def arrivals(offsets_s: Sequence[float] | Times) -> Arrivals | None:
    """Figures of arrival offsets (any order); None below two arrivals or when all are at once.

    The rate is gaps over span. The peak rate is that of the busiest of 60 equal windows. The
    variation of the gaps is their standard deviation over their mean (handbook 5.2).
    """
    times = np.sort(np.asarray(offsets_s, dtype=np.float64))
    span_s = float(times[-1] - times[0]) if len(times) else 0.0
    if span_s <= 0:
        return None
    gaps = np.diff(times)
    places = np.minimum((times - times[0]) * WINDOWS // span_s, WINDOWS - 1).astype(int)
    busiest = int(np.bincount(places).max())
    changes = np.flatnonzero(gaps > 0)
    return Arrivals(
        span_s=span_s,
        rate_per_s=len(gaps) / span_s,
        interarrival_cv=(
            float(gaps.std() / gaps.mean()) if len(times) >= _MIN_FOR_VARIATION else None
        ),
        peak_rate_per_s=busiest * WINDOWS / span_s,
        burstiness_ratio=busiest * WINDOWS / len(times),
        peak_simultaneous=int(np.diff(changes, prepend=-1, append=len(times) - 1).max()),
    )


def nice_window(span_s: float) -> float:
    """A window for a picture of `span_s` seconds with at most 120 points."""
    for window_s in NICE_S:
        if span_s / window_s <= _MOST_POINTS:
            return float(window_s)
    return float(np.ceil(span_s / _MOST_POINTS / NICE_S[-1]) * NICE_S[-1])


def rate_timeline(times: Times) -> Timeline:
    """Requests per second over time; `times` ascend from 0. The last window may be cut short."""
    window_s = nice_window(float(times[-1]))
    found = np.bincount((times // window_s).astype(np.int64))
    return Timeline(window_s=window_s, values=tuple((found / window_s).tolist()))


def fano(times: Times, window_s: float) -> float | None:
    """Variance over mean of the counts of whole windows; None with fewer than ten of them."""
    if times[-1] // window_s > _FANO_MOST:
        return None
    return _fano_of(np.bincount((times // window_s).astype(np.int64)), times[-1] / window_s, 1)


def _fano_of(counts: NDArray[np.int64], span: float, merged: float) -> float | None:
    """Of the counts of unit windows, `merged` of them taken together; `span` is in units."""
    step = int(merged)
    whole = int(span // step)
    if whole < _FANO_WINDOWS:
        return None
    found = counts[: whole * step].reshape(whole, step).sum(axis=1)
    mean = found.mean()
    return float(found.var(ddof=1) / mean) if mean > 0 else None


def tick(times: Times) -> float | None:
    """Seconds between the ticks of a coarse clock, None where the times do not look like one.

    At least half of the neighbours share a time, and the rest lie whole ticks apart, give or take
    a tenth of one.
    """
    gaps = np.diff(times)
    apart = gaps[gaps > 0]
    if len(apart) < _TICK_GAPS or len(apart) > (1 - _SHARING) * len(gaps):
        return None
    tick_s = float(np.percentile(apart, 10))
    tick_s = float(np.median(apart[apart < tick_s * 1.5]))
    ticks = apart / tick_s
    near = np.abs(ticks - np.round(ticks)) <= _TICK_SLACK
    return tick_s if near.mean() >= _ON_TICK else None


def burstiness(times: Times) -> Burstiness | None:
    """Fano factors by window and the clock's tick; `times` ascend from 0."""
    # A request's second says its minute: longer windows add up counts of the first.
    seconds = times[-1] <= _FANO_MOST
    per_second = np.bincount(times.astype(np.int64)) if seconds else None
    found = {
        f"{window_s:g}": fano(times, window_s)
        if per_second is None
        else _fano_of(per_second, times[-1], window_s)
        for window_s in FANO_S
    }
    known = {window: value for window, value in found.items() if value is not None}
    tick_s = tick(times)
    if not known and tick_s is None:
        return None
    return Burstiness(fano_by_window=known, tick_s=tick_s)


def peaks(times: Times) -> tuple[PeakWindow, ...]:
    """The busiest stretch of each length that the upload spans; `times` ascend from 0."""
    return tuple(_peak(times, window_s) for window_s in PEAK_S if times[-1] >= window_s)


def _peak(times: Times, window_s: float) -> PeakWindow:
    # A busiest window can be moved until it starts with a request.
    places = _crowded(times, window_s)
    held = np.searchsorted(times, times[places] + window_s, side="left") - places
    at = int(held.argmax())
    return PeakWindow(
        window_s=window_s,
        start_s=float(times[places[at]]),
        requests=int(held[at]),
        rate_per_s=float(held[at] / window_s),
    )


def _crowded(times: Times, window_s: float) -> NDArray[np.int64]:
    """Places of the requests that may begin the busiest window.

    In slots of a sixteenth of it, a window that begins in a slot holds no more than the next 18
    (one for its end, one for rounding), and one of 16 whole slots can be had.
    """
    slot_s = window_s / _SLOTS
    if times[-1] / slot_s > _FANO_MOST:
        return np.arange(len(times))
    slots = (times / slot_s).astype(np.int64)
    counts = np.bincount(slots, minlength=int(slots[-1]) + _SLOTS + 3)
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    had = (before[_SLOTS:] - before[:-_SLOTS]).max()
    reach = np.minimum(np.arange(len(counts)) + _SLOTS + 2, len(counts))
    most = before[reach] - before[:-1]
    return np.flatnonzero((most >= had)[slots])


def diurnal(times: Times, started_epoch_s: float | None) -> tuple[int, ...] | None:
    """Requests by hour of the day (UTC); None for less than 20 hours or an unknown start."""
    if started_epoch_s is None or times[-1] - times[0] < _DIURNAL_SPAN_S:
        return None
    hours = ((times + started_epoch_s) // HOUR_S).astype(np.int64) % DAY_HOURS
    return tuple(np.bincount(hours, minlength=DAY_HOURS).tolist())
