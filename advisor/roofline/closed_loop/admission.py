"""Who runs in a step: preemption, the prompt that is half read, and prompts that are admitted.

Decisions are those of handbook 5.3 with one group of full attention and tokens for blocks: a prompt
is admitted when all of it fits, at most one is half read, and it is the last admitted. Requests
that were preempted keep their tokens and read them again.
"""

from advisor.roofline.closed_loop.endings import take_youngest
from advisor.roofline.closed_loop.fields import (
    ASK,
    BEGAN,
    BOOKED,
    BUDGET,
    CHUNK_TOKENS,
    CHUNKS,
    CHUNKS_S,
    COMPLETED,
    COUNT,
    CRAMPED,
    DECODING,
    END,
    HEAD,
    HELD,
    LEFT,
    MADE,
    NOW,
    PARTIAL,
    PARTIAL_READ,
    PREEMPTIONS,
    PROMPT,
    READY_S,
    READY_STEP,
    SEATS,
    SPACE,
    STEP,
    TAIL,
    TIME,
    State,
)
from advisor.roofline.step.compiled import inner
from advisor.roofline.step.curves import Curves, chunk_seconds


@inner
def first_waiting(s: State) -> int:
    """The request whose turn it is."""
    return int(s.waiting[s.counters[HEAD] % s.rules[COUNT]])


@inner
def to_read(s: State, index: int) -> int:
    """Tokens that a request reads before it decodes: its prompt and what it answered before."""
    return int(s.requests[ASK * index + PROMPT] + s.requests[ASK * index + MADE])


@inner
def _stop_decoding(s: State) -> int:
    """The request admitted last keeps the tokens it has answered and no cache."""
    victim = take_youngest(s)
    steps = s.counters[STEP] - s.requests[ASK * victim + BEGAN]
    s.requests[ASK * victim + MADE] += steps
    s.counters[HELD] -= to_read(s, victim) - 1
    s.requests[ASK * victim + END] = -1
    s.counters[DECODING] -= 1
    return victim


@inner
def _preempt(s: State) -> None:
    """Whoever was admitted last waits at the head of the queue."""
    victim = s.counters[PARTIAL]
    if victim >= 0:
        s.counters[PARTIAL] = -1
        s.counters[PARTIAL_READ] = 0
    else:
        victim = _stop_decoding(s)
    s.counters[HEAD] -= 1
    s.waiting[s.counters[HEAD] % s.rules[COUNT]] = victim
    s.counters[PREEMPTIONS] += 1


@inner
def make_room(s: State) -> None:
    """Preempts until the cache holds one token more of all that decode."""
    counters = s.counters
    counters[CRAMPED] = 0
    while (
        counters[HELD] + counters[PARTIAL_READ] + counters[DECODING] > s.rules[SPACE]
        and counters[DECODING] + (counters[PARTIAL] >= 0) > 1
    ):
        _preempt(s)
        counters[CRAMPED] = 1


@inner
def open_step(s: State) -> None:
    """A step in which nothing but decodes is booked."""
    counters = s.counters
    counters[LEFT] = s.rules[BUDGET] - counters[DECODING]
    counters[BOOKED] = counters[HELD] + counters[PARTIAL_READ] + counters[DECODING]
    counters[CHUNKS] = counters[CHUNK_TOKENS] = counters[COMPLETED] = 0
    s.clock[CHUNKS_S] = 0.0


@inner
def _read(s: State, curves: Curves, index: int, done: int) -> None:
    """Books what is left of a request's tokens after the first `done`, up to the budget."""
    counters = s.counters
    left = to_read(s, index) - done
    take = min(left, counters[LEFT])
    s.clock[CHUNKS_S] += chunk_seconds(curves, float(take), float(done))
    counters[LEFT] -= take
    counters[CHUNKS] += 1
    counters[CHUNK_TOKENS] += take
    if take == left:
        s.completed[counters[COMPLETED]] = index
        counters[COMPLETED] += 1
    else:
        counters[PARTIAL] = index
    if counters[PARTIAL] == index:
        counters[PARTIAL_READ] = done + take


@inner
def _admissible(s: State, index: int) -> bool:
    """It has arrived, a seat is free, and the cache holds all it reads (or nothing else runs)."""
    running = s.counters[DECODING] + s.counters[CHUNKS]
    arrived = (
        s.times[TIME * index + READY_S] <= s.clock[NOW]
        and s.requests[ASK * index + READY_STEP] <= s.counters[STEP]
    )
    held = s.counters[BOOKED] + s.counters[CHUNK_TOKENS] + to_read(s, index)
    fits = held <= s.rules[SPACE] or running == 0
    return bool(arrived and running < s.rules[SEATS] and fits)


@inner
def read_prompts(s: State, curves: Curves) -> None:
    """The prompt that is half read goes on; then waiting ones are admitted, unless cache is short.

    A budget that a prompt does not fit into is used up by it, so at most one stays half read.
    """
    counters = s.counters
    if counters[PARTIAL] >= 0:
        _read(s, curves, counters[PARTIAL], counters[PARTIAL_READ])
    while counters[CRAMPED] == 0 and counters[LEFT] > 0 and counters[HEAD] < counters[TAIL]:
        index = first_waiting(s)
        if not _admissible(s, index):
            break
        counters[HEAD] += 1
        _read(s, curves, index, 0)
