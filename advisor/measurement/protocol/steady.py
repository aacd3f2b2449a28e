"""The part of a load that its figures are taken from, and whether it is steady (handbook 11.1).

Left out at the front: until as many requests have ended as are in flight at most, then what MSER-5
cuts. Left out at the end: what follows the last send, when nothing replaces what ends.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from advisor.measurement.protocol.flow import flight_curve, start_s, token_curve
from advisor.measurement.protocol.intervals import lag_one
from advisor.measurement.records import RequestRecord, Window

Floats = NDArray[np.float64]

BATCH = 5
BATCHES = 20
# Fewer frames or requests than these, or requests for each slot, show no course over time.
_LEAST_FRAMES = 200
_LEAST_TURNS = 4
_LEAST_REQUESTS = 16
_LEAST_ENDS = 2
# Batches that MSER may not cut down to: of two or three any may look alike by chance.
_LEAST_LEFT = 5
# A change that decides nothing is no reason to throw a point away. What is in flight in an open
# loop wanders by itself.
_CHANGE, _OPEN_CHANGE = 0.06, 0.6
_CHANCE = 0.001
_LEAST_SIDE = 3
_MOST_WARM_UP = 0.25
_UNSTEADY = "no steady part"
_STALL_SHARE = 0.5
_STALL_DEVIATIONS = 6.0


def mser(values: Floats) -> int | None:
    """Batches to cut at the front by MSER on batch means (White, 1997); None: over n / 2.

    The d that minimises ``sum over i > d of (y_i - mean)^2 / (n - d)^2``.
    """
    found = int(np.argmin(_scores(values)))
    return None if found > len(values) / 2 else found


def _scores(values: Floats) -> list[float]:
    scores = []
    for cut in range(max(1, len(values) - _LEAST_LEFT + 1)):
        left = values[cut:]
        scores.append(float(((left - left.mean()) ** 2).sum()) / len(left) ** 2)
    return scores


def steady_window(records: Sequence[RequestRecord], *, concurrency: int | None) -> Window:
    """The steady part of a closed loop of `concurrency`, or of an open loop (None).

    Where there are too few requests to tell, or no steady part, the window is the whole load and
    `rule` says why.
    """
    begun = start_s(records)
    sent = np.sort([record.sent_s - begun for record in records])
    ended = np.sort([record.end_s - begun for record in records])
    slots = concurrency or peak_in_flight(records)
    span_s = float(ended[-1])
    if len(records) < max(_LEAST_REQUESTS, _LEAST_TURNS * slots):
        return _whole(span_s, f"too few requests to tell: {len(records)} for {slots} in flight")
    since_s, until_s = float(max(sent[slots - 1], ended[slots - 1])), float(sent[-1])
    if until_s <= since_s:
        return _whole(span_s, f"no request was sent after {slots} had ended")
    course = _course(records, since_s, until_s, closed=concurrency is not None)
    if course is None:
        rule = f"after {slots} ends until the last send; too few of them for MSER-5"
        return _cut(records, since_s, until_s, rule)
    closed = concurrency is not None
    cut = mser(course)
    if cut is None or not _warm_up(course, cut, closed=closed):
        if _changed(course, closed=closed) or (closed and _stalled(course)):
            return _whole(span_s, f"{_UNSTEADY}, MSER-5 cuts {cut or 'more than half'}")
        # Of batches about one mean any may look best to begin with: a short cut is enough.
        short = int(np.argmin(_scores(course)[: int(_MOST_WARM_UP * BATCHES) + 1]))
        cut = short if _warm_up(course, short, closed=closed) else 0
    shift_s = (until_s - since_s) / BATCHES * cut
    rule = f"after {slots} ends, {cut} of {BATCHES} batches cut by MSER-5, until the last send"
    return _cut(records, since_s + shift_s, until_s, rule)


def _warm_up(course: Floats, cut: int, *, closed: bool) -> bool:
    """Whether what MSER cuts may be a warm-up: short, and with less throughput than the rest.

    The first ends are left out already: what differs for long is none, nor is an engine that gets
    slower.
    """
    if cut < _LEAST_SIDE:
        return True
    slower = not closed or float(course[:cut].mean()) < float(course[cut:].mean())
    return cut <= _MOST_WARM_UP * BATCHES and slower


def why_unsteady(
    records: Sequence[RequestRecord], window: Window, *, concurrency: int | None
) -> str | None:
    """One phrase on how a load was not steady; None where it was, or where too little is known.

    Looked for: a part that differs from the rest by more than chance and more than matters, and a
    stall, a batch of time with less than half of what is usual.
    """
    closed = concurrency is not None
    if not window.steady:
        return f"not steady: {window.rule}" if window.rule.startswith(_UNSTEADY) else None
    course = _course(records, window.since_s, window.until_s, closed=closed)
    if course is None:
        return None
    if changed := _changed(course, closed=closed):
        what = "throughput" if closed else "requests in flight"
        before, after = changed
        return f"not steady: {what} went from {before:.4g} to {after:.4g} within the load"
    if closed and (stalled := _stalled(course)):
        return f"not steady: {stalled} of {len(course)} batches of time nearly stood still"
    return None


def peak_in_flight(records: Sequence[RequestRecord]) -> int:
    """The highest number of requests in flight at once."""
    moments = sorted(
        [(record.sent_s, 1) for record in records] + [(record.end_s, -1) for record in records]
    )
    return int(np.cumsum([change for _, change in moments]).max())


def inside(records: Sequence[RequestRecord], window: Window) -> list[RequestRecord]:
    """The requests that were sent within the window, in order of sending.

    A request that was sent in it ran under the load, also if it ended while the rest drained: to
    leave out those that ended later would leave out the long ones.
    """
    begun = start_s(records)
    since_s, until_s = begun + window.since_s, begun + window.until_s
    return sorted(
        (record for record in records if since_s <= record.sent_s <= until_s),
        key=lambda record: record.sent_s,
    )


def under_load(requests: Sequence[RequestRecord], last_send_s: float) -> list[RequestRecord]:
    """Those of `requests`, in order of sending, before the first that ended after the last send.

    From then on the load drains and answers get faster: their first tokens are those of the full
    load, the rest of their tokens are not. Cut by the time of sending, so that no answer is left
    out for its length. A load too short for that keeps all: less than half would be left.
    """
    late = [place for place, item in enumerate(requests) if item.end_s > last_send_s]
    kept = list(requests[: late[0]] if late else requests)
    return kept if 2 * len(kept) >= len(requests) else list(requests)


def _whole(span_s: float, rule: str) -> Window:
    return Window(since_s=0.0, until_s=span_s, left_out=0, steady=False, rule=rule)


def _cut(records: Sequence[RequestRecord], since_s: float, until_s: float, rule: str) -> Window:
    window = Window(since_s=since_s, until_s=until_s, left_out=0, steady=True, rule=rule)
    left_out = len(records) - len(inside(records, window))
    return Window(since_s=since_s, until_s=until_s, left_out=left_out, steady=True, rule=rule)


def _course(
    records: Sequence[RequestRecord], since_s: float, until_s: float, *, closed: bool
) -> Floats | None:
    """Means of `BATCHES` batches of `BATCH` equal slices of time: tokens per second, or in flight.

    An open loop yields what arrives: its state shows in what is in flight. None below two ends in
    a batch: it would show where a request stands, in its prompt or in its answer.
    """
    frames = sum(max(1, len(record.frame_times_s)) for record in records)
    begun = start_s(records)
    ends = sum(since_s < record.end_s - begun <= until_s for record in records)
    if frames < _LEAST_FRAMES or ends < _LEAST_ENDS * BATCHES or until_s <= since_s:
        return None
    edges = np.linspace(since_s, until_s, BATCHES * BATCH + 1)
    curve = token_curve(records) if closed else flight_curve(records)
    slices = curve.between(edges) / (edges[1] - edges[0])
    course: Floats = slices.reshape(BATCHES, BATCH).mean(axis=1)
    return course


def _changed(course: Floats, *, closed: bool) -> tuple[float, float] | None:
    """Means before and after the clearest change; None where chance explains it or it is small.

    Student's t over all places to split at, their number paid for (Bonferroni). The noise is what a
    step there and an even trend leave over, and counts for more where neighbours are alike.
    """
    places = range(_LEAST_SIDE, len(course) - _LEAST_SIDE + 1)
    time = np.arange(len(course), dtype=float)
    best, found = 0.0, (0.0, 0.0)
    for place in places:
        design = np.column_stack((np.ones_like(time), time, time >= place))
        left = course - design @ np.linalg.lstsq(design, course, rcond=None)[0]
        alike = min(0.8, max(0.0, lag_one(left)))
        variance = float(left @ left) / (len(course) - 3) * (1 + alike) / (1 - alike)
        before, after = float(course[:place].mean()), float(course[place:].mean())
        spread = variance * (1 / place + 1 / (len(course) - place))
        score = abs(after - before) / math.sqrt(spread + 1e-300)
        if score > best:
            best, found = score, (before, after)
    limit = float(stdtrit(len(course) - 3, 1 - _CHANCE / 2 / len(places)))
    relative = abs(found[1] - found[0]) / max(float(np.abs(course).mean()), 1e-300)
    matters = relative > (_CHANGE if closed else _OPEN_CHANGE)
    return found if best > limit and matters else None


def _stalled(course: Floats) -> int:
    middle = float(np.median(course))
    deviation = 1.4826 * float(np.median(np.abs(course - middle)))
    limit = min(_STALL_SHARE * middle, middle - _STALL_DEVIATIONS * deviation)
    return int(np.count_nonzero(course < limit))
