"""Running a load through a simulated engine."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.step.curves import curves
from advisor.roofline.step.steptime import StepTables
from advisor.simulator.arrays import new_state
from advisor.simulator.load import Load
from advisor.simulator.outcome import Outcome
from advisor.simulator.scheduler import fields as f
from advisor.simulator.scheduler.kernel import advance
from advisor.simulator.settings import SchedulerSettings


def simulate(
    load: Load,
    settings: SchedulerSettings,
    tables: StepTables,
    *,
    seed: int = 0,
    record_steps: int = 4096,
) -> Outcome:
    """Serves a load in virtual time, step by step as vLLM's V1 scheduler does (handbook 5.3).

    Same inputs, same bytes. `record_steps` bounds the samples of the queue over time: every step
    where there are so many or fewer, evenly spaced steps else. Raises `InvalidInput` where nothing
    can move any more.
    """
    state = new_state(load, settings, seed=seed, samples=record_steps)
    if advance(state, curves(tables), np.inf) > 0:
        raise InvalidInput("settings", "no request can move any more: the pool is too small")
    return outcome_of(state)


def simulate_many(
    load: Load,
    cases: Sequence[tuple[SchedulerSettings, StepTables]],
    *,
    seed: int = 0,
    record_steps: int = 64,
    threads: int = 2,
) -> list[Outcome]:
    """One load under several configurations, in their order, on some threads."""

    def one(case: tuple[SchedulerSettings, StepTables]) -> Outcome:
        return simulate(load, case[0], case[1], seed=seed, record_steps=record_steps)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, cases))


def outcome_of(state: f.State) -> Outcome:
    """What stands in the arrays of a simulation that ended."""
    counters, requests, times = state.counters, state.requests, state.times
    taken = int(counters[f.SAMPLES])
    samples = state.samples[:taken].T.copy()
    return Outcome(
        sent_s=times[:, f.SENT].copy(),
        scheduled_s=times[:, f.SCHEDULED].copy(),
        first_token_s=times[:, f.FIRST].copy(),
        last_token_s=times[:, f.LAST].copy(),
        cached_tokens=requests[:, f.CACHED].copy(),
        preemptions=requests[:, f.PREEMPTIONS].copy(),
        refused=requests[:, f.REFUSED].astype(np.bool_),
        steps=int(counters[f.STEPS]),
        step_end_s=state.sample_s[:taken].copy(),
        step_tokens=samples[f.SAMPLE_TOKENS],
        running=samples[f.SAMPLE_RUNNING],
        waiting=samples[f.SAMPLE_WAITING],
        used_blocks=samples[f.SAMPLE_USED],
        usable_blocks=int(state.rules[f.USABLE]),
        busy_s=float(state.clock[f.BUSY]),
        drafted_tokens=int(counters[f.DRAFTED]),
        accepted_tokens=int(counters[f.ACCEPTED]),
    )
