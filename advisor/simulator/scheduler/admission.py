"""Who waits comes in: prefix hits, the check of the whole prompt, and the first chunk.

The second half of `Scheduler.schedule` (vLLM v1/core/sched/scheduler.py).
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    ADMITTED_NOW,
    ASK,
    ASKED,
    BLOCK,
    BOUNDARY,
    CACHED,
    CACHING,
    CELL,
    CHUNKED,
    COMPUTED,
    DRAFT_SLOTS,
    DRAFTS,
    FREE,
    FREE_SEATS,
    GENERATED,
    GONE,
    GROUPS,
    HASHED,
    HELD,
    HIT,
    IN_FLIGHT,
    INPUT_LEFT,
    JUNCTION,
    KNOWN,
    LIMIT,
    LOOKAHEAD,
    MAX_LEN,
    NOW,
    ORDER,
    OUTPUT,
    PENDING,
    PREEMPTIONS,
    PROMPT,
    PROPOSED,
    REFERENCES,
    REQUEST,
    RESERVE,
    RUNNING,
    SCHEDULED,
    SEAT,
    SEATS,
    STOP,
    TIME,
    TOKENS_LEFT,
    WAITING,
    WATERMARK,
    State,
)
from advisor.simulator.scheduler.hits import find_hits
from advisor.simulator.scheduler.pool import touch_block
from advisor.simulator.scheduler.queue import head, leave_queue
from advisor.simulator.scheduler.slots import (
    behind_window,
    blocks_at_most,
    blocks_for,
    extend,
    free_blocks,
    list_of,
    register,
    rest,
    span_of,
)


@inner
def _revived(s: State, seat: int, group: int) -> int:
    """Hits that nobody holds: they leave the free blocks when they are used."""
    count = 0
    listed, hits = list_of(s, seat, group), s.counters[HIT]
    for place in range(behind_window(s, group, hits * s.rules[BLOCK]), hits):
        if s.blocks[CELL * s.tables[listed + place] + REFERENCES] == 0:
            count += 1
    return count


@inner
def _needed(s: State, seat: int, tokens: int, cap: int) -> int:
    """Free blocks that a newcomer needs for so many tokens beyond its hits; `cap`: see `CAP`."""
    hits = s.counters[HIT]
    need = 0
    for group in range(s.rules[GROUPS]):
        wanted = blocks_at_most(s, group, tokens) if cap > 0 else blocks_for(s, group, tokens)
        need += max(0, wanted - hits)
        if hits > 0:
            need += _revived(s, seat, group)
    return need


@inner
def _fits(s: State, seat: int, known: int, new: int) -> bool:
    """The whole sequence, and the first chunk with its lookahead, beside the watermark."""
    spare = free_blocks(s)
    if s.counters[RUNNING] > 0:
        spare -= s.rules[WATERMARK]
    if s.rules[RESERVE] and _needed(s, seat, min(known, s.rules[MAX_LEN]), 1) > spare:
        return False
    computed = s.counters[HIT] * s.rules[BLOCK]
    slots = min(computed + new + s.rules[LOOKAHEAD], s.rules[MAX_LEN])
    return _needed(s, seat, slots, 0) <= spare


@inner
def _hold_hits(s: State, seat: int) -> None:
    """The cached blocks inside the windows become the request's, those before them stay null."""
    hits = s.counters[HIT]
    for group in range(s.rules[GROUPS]):
        listed, span = list_of(s, seat, group), span_of(s, seat, group)
        start = behind_window(s, group, hits * s.rules[BLOCK])
        for place in range(start, hits):
            touch_block(s, s.tables[listed + place])
        s.spans[span + GONE] = start
        s.spans[span + HELD] = hits
        s.spans[span + HASHED] = hits


@inner
def _seat_request(s: State, request: int, seat: int, known: int) -> None:
    """Columns of a request that starts to run."""
    seats, requests = s.seats, s.requests
    computed = s.counters[HIT] * s.rules[BLOCK]
    seats[SEAT * seat + REQUEST] = request
    seats[SEAT * seat + COMPUTED] = computed
    seats[SEAT * seat + KNOWN] = known
    limit = requests[ASK * request + PROMPT] + requests[ASK * request + OUTPUT]
    seats[SEAT * seat + LIMIT] = limit
    seats[SEAT * seat + STOP] = min(limit, s.rules[MAX_LEN])
    seats[SEAT * seat + DRAFTS] = 0
    seats[SEAT * seat + PROPOSED] = 0
    seats[SEAT * seat + IN_FLIGHT] = 0
    seats[SEAT * seat + PENDING] = 0
    seats[SEAT * seat + ASKED] = requests[ASK * request + PROMPT]
    seats[SEAT * seat + BOUNDARY] = s.counters[JUNCTION]
    seats[SEAT * s.counters[RUNNING] + ORDER] = seat
    s.counters[RUNNING] += 1
    s.counters[FREE_SEATS] -= 1
    if requests[ASK * request + PREEMPTIONS] == 0:
        requests[ASK * request + CACHED] = computed
        s.times[TIME * request + SCHEDULED] = s.clock[NOW]


@inner
def first_chunk(s: State, left: int, cap: int) -> int:
    """Tokens of a newcomer's first chunk; 0: it must wait."""
    room = min(s.counters[TOKENS_LEFT], s.counters[INPUT_LEFT] - s.rules[DRAFT_SLOTS])
    if cap > 0:
        left = min(left, cap)
    if not s.rules[CHUNKED] and left > room:
        return 0
    return int(max(0, min(left, room)))


@inner
def admit(s: State, cap: int) -> int:
    """The head of the queue starts to run; its seat, or -1 when it must wait."""
    if s.counters[WAITING] == 0 or s.counters[RUNNING] >= s.rules[SEATS]:
        return -1
    request = head(s)
    seat = s.seats[SEAT * (s.counters[FREE_SEATS] - 1) + FREE]
    known = s.requests[ASK * request + PROMPT] + s.requests[ASK * request + GENERATED]
    find_hits(s, request, seat, known)
    new = first_chunk(s, known - s.counters[HIT] * s.rules[BLOCK], cap)
    if new == 0 or not _fits(s, seat, known, new):
        return -1
    leave_queue(s)
    if s.counters[HIT] > 0:
        _hold_hits(s, seat)
    _seat_request(s, request, seat, known)
    computed = s.seats[SEAT * seat + COMPUTED]
    extend(s, seat, min(computed + new + s.rules[LOOKAHEAD], s.rules[MAX_LEN]))
    if s.rules[CACHING]:
        register(s, seat, min(computed + new, known))
    rest(s, seat)
    s.counters[ADMITTED_NOW] += 1
    return int(seat)
