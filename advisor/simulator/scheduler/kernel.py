"""The loop over steps, compiled once and kept on disk."""

from collections.abc import Callable

from advisor.roofline.step import curves, joint
from advisor.roofline.step.compiled import address, fingerprint, inner, kept
from advisor.roofline.step.curves import Curves
from advisor.simulator.scheduler import (
    admission,
    ahead,
    batches,
    draws,
    hits,
    measure,
    pool,
    queue,
    schedule,
    seconds,
    slots,
    steps,
)
from advisor.simulator.scheduler import settle as settling
from advisor.simulator.scheduler.fields import (
    AHEAD,
    DONE,
    DONE_BEFORE,
    NOW,
    RUNNING,
    WAITING,
    State,
)
from advisor.simulator.scheduler.schedule import admit_waiting, continue_running, open_step
from advisor.simulator.scheduler.settle import settle
from advisor.simulator.scheduler.steps import land, note_step, prepare, stuck, take_off

STUCK = 1
FULL = 2
_MODULES = (
    admission,
    ahead,
    batches,
    curves,
    draws,
    hits,
    joint,
    measure,
    pool,
    queue,
    schedule,
    seconds,
    settling,
    slots,
    steps,
)


@inner
def _addresses(s: State) -> State:
    """The same state by addresses."""
    return State(
        address(s.rules),
        address(s.counters),
        address(s.clock),
        address(s.requests),
        address(s.times),
        address(s.seats),
        address(s.spans),
        address(s.groups),
        address(s.tables),
        address(s.blocks),
        address(s.hashes),
        address(s.hashed_at),
        address(s.ids),
        address(s.chain),
        address(s.survival),
        address(s.depths),
        address(s.heap),
        address(s.samples),
        address(s.sample_s),
        address(s.trace),
        address(s.trace_s),
    )


def _kept(code: int) -> Callable[[State, Curves, float], int]:
    """The loop, once per code of the functions it calls."""

    @kept
    def advance(arrays: State, curves: Curves, until_s: float) -> int:
        s = _addresses(arrays)
        while prepare(s, until_s):
            end_s = 0.0 * code
            if s.counters[RUNNING] + s.counters[WAITING] > 0:
                cap = open_step(s)
                continue_running(s, cap)
                admit_waiting(s, cap)
                end_s = note_step(s, curves)
                if end_s < 0.0:
                    return FULL
                if s.rules[AHEAD] == 0:
                    s.clock[NOW] = end_s
                    s.counters[DONE_BEFORE] = s.counters[DONE]
                    settle(s)
                elif not take_off(s, end_s):
                    continue
            land(s)
            if stuck(s):
                return STUCK
        return 0

    return advance


advance = _kept(fingerprint(_MODULES))
"""Runs a state until no request is left, or until a step ends at a time or later.

Returns 0, `STUCK` when nothing can move any more, or `FULL` when a trace has no room left.
"""
