"""Tokens and requests over time, from request records: what windows and batches are cut from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.measurement.records import Outcome, RequestRecord

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A quantity that grew evenly between `times_s`, in seconds after the first send."""

    times_s: Floats
    total: Floats

    def between(self, edges_s: Floats) -> Floats:
        """How much it grew between neighbouring edges, shape ``[edges - 1]``."""
        return np.diff(np.interp(edges_s, self.times_s, self.total))


def start_s(records: Sequence[RequestRecord]) -> float:
    """The first send, on the records' clock."""
    if not records:
        raise InvalidInput("records", "a load point has at least one request")
    return min(record.sent_s for record in records)


def token_curve(records: Sequence[RequestRecord]) -> Curve:
    """Output tokens of the successes, each frame's made evenly since the frame before it.

    All requests of a step get their frames at one instant: counted there, equal slices of time
    would hold a step more or less. What a frame carries is known from token ids, else the
    request's tokens are spread evenly over its frames.
    """
    begun = start_s(records)
    since: list[float] = []
    until: list[float] = []
    tokens: list[float] = []
    for record in records:
        if record.outcome is Outcome.OK and record.output_tokens:
            times = record.frame_times_s or (record.last_token_s or record.end_s,)
            since += [record.sent_s - begun, *(time - begun for time in times[:-1])]
            until += [time - begun for time in times]
            tokens += frame_weights(record, len(times))
    return _curve(np.asarray(since), np.asarray(until), np.asarray(tokens))


def flight_curve(records: Sequence[RequestRecord]) -> Curve:
    """Seconds that requests spent in flight, over time: its slope is the number in flight."""
    begun = start_s(records)
    since = np.array([record.sent_s - begun for record in records])
    until = np.array([record.end_s - begun for record in records])
    return _curve(since, until, until - since)


def frame_weights(record: RequestRecord, frames: int) -> list[float]:
    """Output tokens by frame."""
    known = record.frame_tokens
    if known is not None and len(known) == frames and sum(known) == record.output_tokens:
        return [float(count) for count in known]
    return [(record.output_tokens or 0) / frames] * frames


def _curve(since: Floats, until: Floats, amounts: Floats) -> Curve:
    """Each amount grows evenly over its span; one without a span has the shortest one there is."""
    if len(amounts) == 0:
        return Curve(times_s=np.zeros(1), total=np.zeros(1))
    until = np.maximum(until, np.nextafter(since, np.inf) + 1e-9)
    slopes = amounts / (until - since)
    times = np.concatenate((since, until))
    changes = np.concatenate((slopes, -slopes))
    order = np.argsort(times, kind="stable")
    times, changes = times[order], changes[order]
    grown = np.cumsum(changes)[:-1] * np.diff(times)
    return Curve(times_s=times, total=np.concatenate(([0.0], np.cumsum(grown))))
