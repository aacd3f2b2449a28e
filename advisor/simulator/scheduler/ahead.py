"""Async scheduling: a step is decided while the one before it runs.

vLLM's `AsyncScheduler` (v1/core/sched/async_scheduler.py) counts a token that is still computed as
a placeholder and schedules on; `step_with_batch_queue` (v1/engine/core.py) keeps two steps in
flight. So a step is decided when the step two before it ends, and a finished request keeps its
seat and blocks for one decision longer.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ASK,
    ASKED,
    BACK,
    BOOKED,
    BOOKINGS,
    CACHING,
    COMPUTED,
    DEEPEST,
    DONE,
    DRAFT,
    DRAFTS,
    FIRST,
    GENERATED,
    IN_FLIGHT,
    KNOWN,
    LAST,
    MAX_LEN,
    NEW,
    NOW,
    OUTPUT,
    OVER,
    PARITY,
    PENDING,
    PRIORITY,
    PROMPT,
    PROPOSED,
    RECORD,
    RECORD_DRAFTS,
    RECORD_GAIN,
    RECORD_NEW,
    RECORD_REQUEST,
    RECORD_SEAT,
    RECORDED,
    RECORDS,
    REQUEST,
    RETURNED,
    SEAT,
    STOP,
    TIME,
    WAITING,
    State,
)
from advisor.simulator.scheduler.queue import rebuild
from advisor.simulator.scheduler.settle import finish, remove_ended, yielded
from advisor.simulator.scheduler.slots import register, rest


@inner
def _record(place: int, parity: int) -> int:
    return SEAT * place + RECORDS + RECORD * parity


@inner
def _commit_request(s: State, seat: int, depth: int, record: int) -> None:
    """Counts what the step will have computed, with placeholders for what it will sample."""
    seats, at = s.seats, SEAT * seat
    computed = seats[at + COMPUTED] + seats[at + NEW]
    drafts = max(0, computed - seats[at + KNOWN] - seats[at + PENDING])
    whole = computed >= seats[at + KNOWN] + seats[at + PENDING]
    seats[at + COMPUTED] = computed
    seats[at + IN_FLIGHT] += seats[at + NEW]
    seats[at + DRAFTS] = 0
    seats[record + RECORD_SEAT] = seat
    seats[record + RECORD_REQUEST] = seats[at + REQUEST]
    seats[record + RECORD_NEW] = seats[at + NEW]
    seats[record + RECORD_DRAFTS] = drafts
    seats[record + RECORD_GAIN] = yielded(s, seat, drafts) if whole else 0
    seats[at + PROPOSED] = 1 if whole else 0
    if whole:
        seats[at + PENDING] += 1 + drafts
        if s.rules[DRAFT]:
            seats[at + DRAFTS] = depth


@inner
def commit(s: State) -> None:
    """The booked step is in flight."""
    count, parity = s.counters[BOOKED], s.counters[PARITY]
    depth = s.depths[min(count, s.rules[DEEPEST])]
    for place in range(count):
        seat = s.seats[SEAT * place + BOOKINGS]
        _commit_request(s, seat, depth, _record(place, parity))
    s.counters[RECORDED + parity] = count


@inner
def _room(s: State, request: int) -> int:
    """Tokens that a request can generate before it is as long as the model."""
    return int(s.rules[MAX_LEN] - s.requests[ASK * request + PROMPT])


@inner
def _leave_waiting(s: State, request: int) -> None:
    """A request that waits again turns out to be done."""
    if s.rules[PRIORITY]:
        rebuild(s, request)
    else:
        kept = 0
        for place in range(s.counters[RETURNED]):
            other = s.seats[SEAT * place + BACK]
            if other != request:
                s.seats[SEAT * kept + BACK] = other
                kept += 1
        s.counters[RETURNED] = kept
    s.counters[WAITING] -= 1


@inner
def _settle_preempted(s: State, request: int, gain: int, stop: int) -> None:
    """The output of a request that was preempted meanwhile is still delivered."""
    if gain == 0 or s.requests[ASK * request + OVER]:
        return
    at = ASK * request
    if s.requests[at + GENERATED] == 0:
        s.times[TIME * request + FIRST] = s.clock[NOW]
    s.requests[at + GENERATED] = min(s.requests[at + GENERATED] + gain, stop)
    if s.requests[at + GENERATED] >= stop:
        s.times[TIME * request + LAST] = s.clock[NOW]
        s.requests[at + OVER] = 1
        s.counters[DONE] += 1
        _leave_waiting(s, request)


@inner
def _settle_running(s: State, seat: int, record: int) -> int:
    """Applies a step to a request that still runs; 1 when it is done."""
    seats, at = s.seats, SEAT * seat
    seats[at + IN_FLIGHT] -= seats[record + RECORD_NEW]
    gain = seats[record + RECORD_GAIN]
    if gain == 0:
        return 0
    rejected = seats[record + RECORD_DRAFTS] - (gain - 1)
    seats[at + COMPUTED] -= rejected
    if seats[at + KNOWN] == seats[at + ASKED]:
        s.times[TIME * seats[at + REQUEST] + FIRST] = s.clock[NOW]
    taken = min(gain, seats[at + STOP] - seats[at + KNOWN])
    seats[at + KNOWN] += taken
    seats[at + PENDING] -= rejected + taken
    if s.rules[CACHING]:
        register(s, seat, seats[at + COMPUTED] - seats[at + PENDING])
    if seats[at + KNOWN] >= seats[at + STOP]:
        finish(s, seat)
        return 1
    rest(s, seat)
    return 0


@inner
def settle_oldest(s: State, parity: int) -> None:
    """Applies the step in flight that ends first."""
    ended = 0
    for place in range(s.counters[RECORDED + parity]):
        record = _record(place, parity)
        seat, request = s.seats[record + RECORD_SEAT], s.seats[record + RECORD_REQUEST]
        if s.seats[SEAT * seat + REQUEST] == request:
            ended += _settle_running(s, seat, record)
        else:
            stop = min(s.requests[ASK * request + OUTPUT], _room(s, request))
            _settle_preempted(s, request, s.seats[record + RECORD_GAIN], stop)
    if ended > 0:
        remove_ended(s)
