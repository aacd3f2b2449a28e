"""Every step of a simulation, for comparison with recorded ones."""

from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.step.curves import curves
from advisor.roofline.step.steptime import StepTables
from advisor.simulator.arrays import new_state
from advisor.simulator.load import Load
from advisor.simulator.scheduler import fields as f
from advisor.simulator.scheduler.kernel import advance
from advisor.simulator.settings import SchedulerSettings

_ROOM = 1 << 14
_MOST = 1 << 28
_FULL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One step: when it starts, tokens by request, who was preempted, first hits, used blocks.

    Requests by their place in the load; `cached` in tokens, of first admissions only.
    """

    start_s: float
    scheduled: dict[int, int]
    preempted: tuple[int, ...]
    cached: dict[int, int]
    used_blocks: int


def step_trace(
    load: Load, settings: SchedulerSettings, tables: StepTables, *, seed: int = 0
) -> list[TracedStep]:
    """Every step of `simulate`, in memory: for short loads. Raises `InvalidInput` as it does."""
    room = _ROOM
    while room <= _MOST:
        state = new_state(load, settings, seed=seed, samples=2, trace=room)
        code = advance(state, curves(tables), np.inf)
        if code == 0:
            return list(_steps(state))
        if code != _FULL:
            break
        room *= 8
    raise InvalidInput("load", "is too long for a trace, or no request can move any more")


def _steps(state: f.State) -> list[TracedStep]:
    steps, at, out = [], 0, state.trace
    while at < state.counters[f.TRACE_END]:
        step, used, count, gone = (int(cell) for cell in out[at : at + 4])
        at += 4
        rows = out[at : at + 3 * count].reshape(count, 3)
        at += 3 * count
        steps.append(
            TracedStep(
                start_s=float(state.trace_s[step]),
                scheduled={int(request): int(new) for request, new, _ in rows},
                preempted=tuple(int(request) for request in out[at : at + gone]),
                cached={int(request): int(hit) for request, _, hit in rows if hit},
                used_blocks=used,
            )
        )
        at += gone
    return steps
