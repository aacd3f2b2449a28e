"""Which requests decode, in the order of their admission and of their ends.

A request that decodes is known by the step at which it ends. Ends that a preemption undid stay in
the heap, and requests that no longer decode in the list, until they come up or room is short.
"""

from advisor.roofline.closed_loop.fields import (
    ASK,
    COUNT,
    DECODING,
    END,
    HEAPED,
    LISTED,
    ROOM,
    Ints,
    State,
)
from advisor.roofline.step.compiled import inner


@inner
def push(heap: Ints, size: int, key: int) -> None:
    """Put `key` into a binary heap of `size` keys, the least first."""
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if heap[above] <= key:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = key


@inner
def drop_first(s: State) -> None:
    """Take the earliest end out of the heap."""
    heap = s.heap
    size = s.counters[HEAPED] - 1
    s.counters[HEAPED] = size
    key, place = heap[size], 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= key:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = key


@inner
def stands(s: State, key: int) -> bool:
    """No preemption has undone this end."""
    count = s.rules[COUNT]
    return bool(s.requests[ASK * (key % count) + END] == key // count)


@inner
def _drop_undone(s: State) -> None:
    """Keep of a full heap the ends that stand."""
    kept = 0
    for place in range(s.rules[ROOM]):
        key = s.heap[place]
        if stands(s, key):
            push(s.heap, kept, key)
            kept += 1
    s.counters[HEAPED] = kept


@inner
def _listed_later(s: State, place: int) -> bool:
    other = place + 1
    while other < s.rules[ROOM] and s.order[other] != s.order[place]:
        other += 1
    return bool(other < s.rules[ROOM])


@inner
def _drop_ended(s: State) -> None:
    """Keep of a full list the requests that decode, each once."""
    kept = 0
    for place in range(s.rules[ROOM]):
        index = s.order[place]
        if s.requests[ASK * index + END] >= 0 and not _listed_later(s, place):
            s.order[kept] = index
            kept += 1
    s.counters[LISTED] = kept


@inner
def enlist(s: State, index: int) -> None:
    """A request begins to decode; its end is known."""
    if s.counters[LISTED] == s.rules[ROOM]:
        _drop_ended(s)
    s.order[s.counters[LISTED]] = index
    s.counters[LISTED] += 1
    if s.counters[HEAPED] == s.rules[ROOM]:
        _drop_undone(s)
    push(s.heap, s.counters[HEAPED], s.requests[ASK * index + END] * s.rules[COUNT] + index)
    s.counters[HEAPED] += 1
    s.counters[DECODING] += 1


@inner
def take_youngest(s: State) -> int:
    """The decoding request that was admitted last, taken off the list."""
    last = s.counters[LISTED] - 1
    while s.requests[ASK * s.order[last] + END] < 0:
        last -= 1
    s.counters[LISTED] = last
    return int(s.order[last])


@inner
def next_end(s: State) -> int:
    """The step after which a decoding request is done first."""
    while not stands(s, s.heap[0]):
        drop_first(s)
    return int(s.heap[0] // s.rules[COUNT])
