"""The compiled loop behind `run_closed_loop`: steps with a prompt one by one, others in one leap.

Between two events (a prompt to read, an answer that ends, a full cache) all steps decode the same
requests, and their contexts grow by one token a step: their times add up in closed form.
"""

from collections.abc import Callable

import numpy as np

from advisor.roofline.closed_loop import admission, endings, fields, seconds
from advisor.roofline.closed_loop.admission import (
    first_waiting,
    make_room,
    open_step,
    read_prompts,
    to_read,
)
from advisor.roofline.closed_loop.endings import drop_first, enlist, next_end, stands
from advisor.roofline.closed_loop.fields import (
    ASK,
    ASKED,
    BEGAN,
    CHUNK_TOKENS,
    CHUNKS,
    CHUNKS_S,
    COMPLETED,
    COUNT,
    CRAMPED,
    DECODING,
    DELAY_S,
    DONE,
    END,
    FIRST,
    HEAD,
    HEAPED,
    HELD,
    LAG,
    LAST,
    MADE,
    NOW,
    OUTPUT,
    PARTIAL,
    PARTIAL_READ,
    PREEMPTIONS,
    PROMPT,
    READY_S,
    READY_STEP,
    SEATS,
    SENT,
    SPACE,
    STEP,
    TAIL,
    TIME,
    Floats,
    Ints,
    State,
    new_state,
)
from advisor.roofline.closed_loop.seconds import decode_seconds, leap_seconds, step_seconds
from advisor.roofline.step import curves as tables
from advisor.roofline.step.compiled import address, fingerprint, inner, kept
from advisor.roofline.step.curves import Curves


@inner
def _wake(s: State) -> None:
    """Where nothing runs, time goes on to the next arrival."""
    if s.counters[DECODING] == 0 and s.counters[PARTIAL] < 0:
        upcoming = first_waiting(s)
        s.clock[NOW] = max(s.clock[NOW], s.times[TIME * upcoming + READY_S])
        s.counters[STEP] = max(s.counters[STEP], s.requests[ASK * upcoming + READY_STEP])


@inner
def _until_arrival(s: State, curves: Curves, decodes: tuple[float, float], most: int) -> int:
    """Steps, `most` of them at most, until the first that waits has arrived."""
    upcoming = first_waiting(s)
    step = s.requests[ASK * upcoming + READY_STEP]
    if step > s.counters[STEP]:
        return int(min(most, step - s.counters[STEP]))
    ahead_s = s.times[TIME * upcoming + READY_S] - s.clock[NOW]
    step_s = decode_seconds(curves, decodes[0], decodes[1])
    if ahead_s > 0.0 and step_s > 0.0:
        return int(min(most, max(1, int(np.ceil(ahead_s / step_s)))))
    return most


@inner
def _until_event(s: State, curves: Curves, decodes: tuple[float, float]) -> int:
    """Steps that decode the same requests."""
    counters = s.counters
    decoding = counters[DECODING]
    steps = next_end(s) - counters[STEP]
    if counters[HELD] + steps * decoding > s.rules[SPACE] and decoding > 1:
        steps = max(1, (s.rules[SPACE] - counters[HELD]) // decoding)
    waits = counters[HEAD] < counters[TAIL] and counters[CRAMPED] == 0
    if waits and decoding < s.rules[SEATS]:
        return _until_arrival(s, curves, decodes, steps)
    return int(steps)


@inner
def _advance(s: State, curves: Curves) -> None:
    """Time passes: one step that reads prompts, or all steps up to the next event."""
    counters = s.counters
    decoding, leap = counters[DECODING], 1
    context = (counters[HELD] + decoding) / decoding if decoding else 0.0
    decodes = (float(decoding), context)
    if counters[CHUNKS] == 0:
        leap = _until_event(s, curves, decodes)
        s.clock[NOW] += leap_seconds(curves, decodes, leap)
    else:
        prompts = (float(counters[CHUNK_TOKENS]), float(counters[CHUNKS]), s.clock[CHUNKS_S])
        s.clock[NOW] += step_seconds(curves, decodes, prompts)
    counters[STEP] += leap
    counters[HELD] += decoding * leap


@inner
def _begin_decoding(s: State) -> None:
    """Prompts that the step finished reading have a token more."""
    counters = s.counters
    for place in range(counters[COMPLETED]):
        index = s.completed[place]
        if index == counters[PARTIAL]:
            counters[PARTIAL] = -1
            counters[PARTIAL_READ] = 0
        if np.isnan(s.times[TIME * index + FIRST]):
            s.times[TIME * index + FIRST] = s.clock[NOW]
        counters[HELD] += to_read(s, index)
        s.requests[ASK * index + MADE] += 1
        rest = s.requests[ASK * index + OUTPUT] - s.requests[ASK * index + MADE]
        s.requests[ASK * index + BEGAN] = counters[STEP]
        s.requests[ASK * index + END] = counters[STEP] + rest
        enlist(s, index)


@inner
def _ask(s: State) -> None:
    """The client sends its next request, if it has one."""
    index = s.counters[ASKED]
    if index == s.rules[COUNT]:
        return
    s.times[TIME * index + SENT] = s.clock[NOW]
    s.times[TIME * index + READY_S] = s.clock[NOW] + s.clock[DELAY_S]
    s.requests[ASK * index + READY_STEP] = s.counters[STEP] + s.rules[LAG]
    s.waiting[s.counters[TAIL] % s.rules[COUNT]] = index
    s.counters[TAIL] += 1
    s.counters[ASKED] += 1


@inner
def _finish(s: State) -> None:
    """Answers that are complete leave, and others are asked for."""
    counters, count = s.counters, s.rules[COUNT]
    while counters[HEAPED] > 0 and s.heap[0] // count <= counters[STEP]:
        key = s.heap[0]
        drop_first(s)
        if stands(s, key):
            index = key % count
            s.requests[ASK * index + END] = -1
            s.times[TIME * index + LAST] = s.clock[NOW]
            held = s.requests[ASK * index + PROMPT] + s.requests[ASK * index + OUTPUT] - 1
            counters[HELD] -= held
            counters[DECODING] -= 1
            counters[DONE] += 1
            _ask(s)


@inner
def _addresses(s: State) -> State:
    """The same state by addresses."""
    return State(
        address(s.rules),
        address(s.counters),
        address(s.clock),
        address(s.requests),
        address(s.times),
        address(s.waiting),
        address(s.order),
        address(s.heap),
        address(s.completed),
    )


def _kept(code: int) -> Callable[[State, Curves], int]:
    """The loop, once per code of the functions it calls."""

    @kept
    def play(arrays: State, curves: Curves) -> int:
        s = _addresses(arrays)
        while s.counters[DONE] < s.rules[COUNT]:
            _wake(s)
            make_room(s)
            open_step(s)
            read_prompts(s, curves)
            _advance(s, curves)
            _begin_decoding(s)
            _finish(s)
        return code

    return play


_play = _kept(fingerprint((admission, endings, fields, seconds, tables)))


def serve(
    lengths: tuple[Ints, Ints],
    limits: tuple[int, int, int, int],
    timing: tuple[float, int],
    curves: Curves,
) -> tuple[Floats, Floats, Floats, Ints]:
    """(sent, first token, last token, counts) of every request; counts: steps, preemptions.

    `lengths`: prompt and output tokens of each.
    `limits`: requests in flight, max_num_seqs, max_num_batched_tokens (no fewer than the smaller
    of the two before), tokens of the cache. `timing`: seconds from sending to the scheduler's
    queue, whole steps that pass besides.
    """
    state = new_state(lengths, limits, timing)
    _play(state, curves)
    sent, first, last = (state.times[:, column].copy() for column in (SENT, FIRST, LAST))
    return sent, first, last, state.counters[[STEP, PREEMPTIONS]]
