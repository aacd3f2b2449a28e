"""Static batching: one batch after the other, each as long as its longest request."""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ARRIVAL,
    ARRIVED,
    BATCHED,
    CONCURRENCY,
    FLYING,
    NOW,
    PATIENCE,
    RETURNED,
    RUNNING,
    SEATS,
    SENT,
    STATIC,
    TIME,
    TOTAL,
    WAITING,
    State,
)
from advisor.simulator.scheduler.queue import head


@inner
def _patience_ends(s: State) -> float:
    return float(s.times[TIME * head(s) + SENT] + s.clock[PATIENCE])


@inner
def open_batch(s: State) -> bool:
    """Whether requests may be admitted; begins a batch when nobody runs and it is time."""
    if s.counters[BATCHED] > 0 or s.counters[RETURNED] > 0:
        return True
    if s.counters[RUNNING] > 0 or s.counters[WAITING] == 0:
        return False
    size = min(s.rules[STATIC], s.rules[SEATS])
    more = s.counters[ARRIVED] < s.counters[TOTAL] and s.rules[CONCURRENCY] == 0
    if s.counters[WAITING] < size and more and _patience_ends(s) > s.clock[NOW]:
        return False
    s.counters[BATCHED] = min(size, s.counters[WAITING])
    return True


@inner
def wait_for_batch(s: State, until_s: float) -> bool:
    """With nobody running and a batch that is not full: on to when that may change."""
    if s.counters[RUNNING] + s.counters[FLYING] > 0 or open_batch(s):
        return False
    event_s = min(s.times[TIME * s.counters[ARRIVED] + ARRIVAL], _patience_ends(s))
    s.clock[NOW] = min(event_s, until_s)
    return True


@inner
def note_admission(s: State, seat: int) -> None:
    """One place of the batch is taken; one that finds no room closes the batch."""
    if seat >= 0:
        s.counters[BATCHED] = max(0, s.counters[BATCHED] - 1)
    elif s.counters[RUNNING] > 0:
        s.counters[BATCHED] = 0
