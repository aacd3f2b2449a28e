"""Who waits: arrivals, returned requests, and the order in which the policy serves them.

First come, first served: preempted requests stand before all others, the last one first
(`prepend_request`), then arrivals in order. By priority: a heap by (priority, arrival), as
v1/core/sched/request_queue.py; a request's rank holds both.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ARRIVAL,
    ARRIVED,
    ASK,
    BACK,
    CONCURRENCY,
    DONE,
    NEXT,
    NOW,
    PRIORITY,
    RANK,
    REFUSED,
    RETURNED,
    SEAT,
    SENT,
    TIME,
    TOTAL,
    WAITING,
    State,
)


@inner
def _push(s: State, request: int) -> None:
    """Into the heap, sift up."""
    heap, requests = s.heap, s.requests
    place = s.counters[WAITING]
    rank = requests[ASK * request + RANK]
    while place > 0:
        parent = (place - 1) >> 1
        if requests[ASK * heap[parent] + RANK] <= rank:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = request


@inner
def _pop(s: State) -> None:
    """Out of the heap, sift down; the counter of waiting requests is already one lower."""
    heap, requests = s.heap, s.requests
    count = s.counters[WAITING]
    moved = heap[count]
    rank = requests[ASK * moved + RANK]
    place = 0
    while 2 * place + 1 < count:
        child = 2 * place + 1
        if (
            child + 1 < count
            and requests[ASK * heap[child + 1] + RANK] < requests[ASK * heap[child] + RANK]
        ):
            child += 1
        if requests[ASK * heap[child] + RANK] >= rank:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved


@inner
def rebuild(s: State, leaver: int) -> None:
    """The heap without one of its requests; the counter of waiting ones is still one higher."""
    count = s.counters[WAITING]
    for place in range(count):
        if s.heap[place] == leaver:
            s.heap[place] = s.heap[count - 1]
            break
    s.counters[WAITING] = 0
    for place in range(count - 1):
        _push(s, s.heap[place])
        s.counters[WAITING] += 1
    s.counters[WAITING] = count


@inner
def give_back(s: State, request: int) -> None:
    """A preempted request waits again."""
    if s.rules[PRIORITY]:
        _push(s, request)
    else:
        s.seats[SEAT * s.counters[RETURNED] + BACK] = request
        s.counters[RETURNED] += 1
    s.counters[WAITING] += 1


@inner
def head(s: State) -> int:
    """The request that is served next; somebody must wait."""
    if s.rules[PRIORITY]:
        return int(s.heap[0])
    if s.counters[RETURNED] > 0:
        return int(s.seats[SEAT * (s.counters[RETURNED] - 1) + BACK])
    while s.requests[ASK * s.counters[NEXT] + REFUSED]:
        s.counters[NEXT] += 1
    return int(s.counters[NEXT])


@inner
def leave_queue(s: State) -> None:
    """The head leaves."""
    s.counters[WAITING] -= 1
    if s.rules[PRIORITY]:
        _pop(s)
    elif s.counters[RETURNED] > 0:
        s.counters[RETURNED] -= 1
    else:
        s.counters[NEXT] += 1


@inner
def receive(s: State) -> None:
    """Everything sent until now arrives; a closed loop sends one for each that is done."""
    now, limit = s.clock[NOW], s.rules[CONCURRENCY]
    while s.counters[ARRIVED] < s.counters[TOTAL]:
        request = s.counters[ARRIVED]
        if limit > 0:
            if request >= limit + s.counters[DONE]:
                break
            s.times[TIME * request + SENT] = now
        else:
            if s.times[TIME * request + ARRIVAL] > now:
                break
            s.times[TIME * request + SENT] = s.times[TIME * request + ARRIVAL]
        s.counters[ARRIVED] += 1
        if s.requests[ASK * request + REFUSED]:
            s.counters[DONE] += 1
            continue
        if s.rules[PRIORITY]:
            _push(s, request)
        s.counters[WAITING] += 1
