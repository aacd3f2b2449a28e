"""One step after the other in virtual time, with samples of the queue and a trace for tests."""

from advisor.roofline.step.compiled import inner
from advisor.roofline.step.curves import Curves
from advisor.simulator.scheduler.ahead import commit, settle_oldest
from advisor.simulator.scheduler.batches import wait_for_batch
from advisor.simulator.scheduler.fields import (
    ADMITTED_NOW,
    AHEAD,
    ARRIVAL,
    ARRIVED,
    ASK,
    BOOKED,
    BOOKINGS,
    BUSY,
    CACHED,
    CACHED_FREE,
    CONCURRENCY,
    DONE,
    DONE_BEFORE,
    ENDS_AT,
    FLYING,
    IDLE_STEPS,
    LAST_END,
    NEW,
    NOW,
    PARITY,
    POSITIONS,
    PREEMPTED_NOW,
    PREEMPTIONS,
    REQUEST,
    RUNNING,
    SAMPLE,
    SAMPLE_ROOM,
    SAMPLE_RUNNING,
    SAMPLE_TOKENS,
    SAMPLE_USED,
    SAMPLE_WAITING,
    SAMPLES,
    SEAT,
    STATIC,
    STEPS,
    STRIDE,
    TIME,
    TOTAL,
    TRACE_END,
    TRACE_ROOM,
    TRACED,
    UNHASHED,
    USABLE,
    VICTIMS,
    WAITING,
    State,
)
from advisor.simulator.scheduler.measure import measure
from advisor.simulator.scheduler.queue import receive
from advisor.simulator.scheduler.seconds import step_seconds

_STUCK_AFTER = 3
_DEPTH = 2


@inner
def _used(s: State) -> int:
    return int(s.rules[USABLE] - s.counters[UNHASHED] - s.counters[CACHED_FREE])


@inner
def _thin_out(s: State) -> None:
    """Keeps every second sample and takes half as many from now on."""
    half = s.rules[SAMPLE_ROOM] // 2
    for place in range(half):
        s.sample_s[place] = s.sample_s[2 * place + 1]
        for row in range(SAMPLE):
            s.samples[SAMPLE * place + row] = s.samples[SAMPLE * (2 * place + 1) + row]
    s.counters[SAMPLES] = half
    s.counters[STRIDE] *= 2


@inner
def _sample(s: State, used: int, end_s: float) -> None:
    """Every `STRIDE`-th step, at its end: positions, who ran and waited in it, blocks."""
    if s.counters[STEPS] % s.counters[STRIDE] != 0:
        return
    if s.counters[SAMPLES] == s.rules[SAMPLE_ROOM]:
        _thin_out(s)
        if s.counters[STEPS] % s.counters[STRIDE] != 0:
            return
    place = s.counters[SAMPLES]
    s.sample_s[place] = end_s
    s.samples[SAMPLE * place + SAMPLE_TOKENS] = int(s.clock[POSITIONS])
    s.samples[SAMPLE * place + SAMPLE_RUNNING] = s.counters[RUNNING]
    s.samples[SAMPLE * place + SAMPLE_WAITING] = s.counters[WAITING]
    s.samples[SAMPLE * place + SAMPLE_USED] = used
    s.counters[SAMPLES] += 1


@inner
def _trace(s: State, used: int, start_s: float) -> int:
    """Appends a step: used, counts, then (request, tokens, new hits) and preempted requests."""
    counters, out = s.counters, s.trace
    at, count, gone = counters[TRACE_END], counters[BOOKED], counters[PREEMPTED_NOW]
    if at + 5 + 3 * count + gone > s.rules[TRACE_ROOM]:
        return 1
    out[at], out[at + 1], out[at + 2] = counters[STEPS], used, count
    out[at + 3] = gone
    at += 4
    fresh = count - counters[ADMITTED_NOW]
    for place in range(count):
        seat = s.seats[SEAT * place + BOOKINGS]
        request = s.seats[SEAT * seat + REQUEST]
        first = place >= fresh and s.requests[ASK * request + PREEMPTIONS] == 0
        out[at], out[at + 1] = request, s.seats[SEAT * seat + NEW]
        out[at + 2] = s.requests[ASK * request + CACHED] if first else 0
        at += 3
    for place in range(gone):
        out[at] = s.seats[SEAT * place + VICTIMS]
        at += 1
    s.trace_s[counters[STEPS]] = start_s
    counters[TRACE_END] = at
    return 0


@inner
def _jump(s: State, until_s: float) -> int:
    """Nobody is here: on to the next arrival; 1 when there is none before `until_s`."""
    request = s.counters[ARRIVED]
    if request >= s.counters[TOTAL] or s.rules[CONCURRENCY] > 0:
        return 1
    arrival = s.times[TIME * request + ARRIVAL]
    if arrival >= until_s:
        return 1
    s.clock[NOW] = max(s.clock[NOW], arrival)
    return 0


@inner
def prepare(s: State, until_s: float) -> bool:
    """Receives arrivals and passes idle time; False: nothing is left to do before `until_s`."""
    while True:
        receive(s)
        if s.counters[RUNNING] + s.counters[WAITING] + s.counters[FLYING] == 0:
            if _jump(s, until_s) > 0:
                return False
            continue
        if s.clock[NOW] >= until_s:
            return False
        if s.rules[STATIC] and wait_for_batch(s, until_s):
            continue
        return True


@inner
def note_step(s: State, curves: Curves) -> float:
    """Times, samples and traces what was booked; when the step ends, -1: no room in the trace."""
    start_s = max(s.clock[NOW], s.clock[LAST_END]) if s.rules[AHEAD] else s.clock[NOW]
    measure(s, curves)
    used = _used(s)
    if s.rules[TRACED] and _trace(s, used, start_s) > 0:
        return -1.0
    spent = step_seconds(curves, s.clock, s.counters[BOOKED])
    s.clock[BUSY] += spent
    s.counters[STEPS] += 1
    _sample(s, used, start_s + spent)
    s.counters[IDLE_STEPS] = 0 if s.counters[BOOKED] > 0 else s.counters[IDLE_STEPS] + 1
    return float(start_s + spent)


@inner
def take_off(s: State, end_s: float) -> bool:
    """The booked step is in flight; False: one more can be decided beside it."""
    if s.counters[BOOKED] == 0:
        return True
    parity = s.counters[PARITY]
    commit(s)
    s.clock[ENDS_AT + parity] = end_s
    s.clock[LAST_END] = end_s
    s.counters[PARITY] = 1 - parity
    s.counters[FLYING] += 1
    return bool(s.counters[FLYING] == _DEPTH)


@inner
def land(s: State) -> None:
    """The oldest step in flight ends, if there is one."""
    if s.counters[FLYING] == 0:
        return
    oldest = s.counters[PARITY] if s.counters[FLYING] == _DEPTH else 1 - s.counters[PARITY]
    s.clock[NOW] = max(s.clock[NOW], s.clock[ENDS_AT + oldest])
    s.counters[FLYING] -= 1
    s.counters[DONE_BEFORE] = s.counters[DONE]
    settle_oldest(s, oldest)


@inner
def stuck(s: State) -> bool:
    """Whether nothing moves any more."""
    return bool(s.counters[IDLE_STEPS] > _STUCK_AFTER)
