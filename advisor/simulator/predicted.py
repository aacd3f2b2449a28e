"""What a simulated load would be like: percentiles, throughput, memory, and what binds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.estimate import Prediction, Source
from advisor.roofline.step.curves import across_each, along_each
from advisor.roofline.step.steptime import StepTables
from advisor.simulator.load import Load
from advisor.simulator.outcome import Outcome
from advisor.simulator.settings import SchedulerSettings
from advisor.simulator.simulation import simulate

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
BASIS = "simulated with step time and memory at both ends of their ranges (wider than 90 %)"
PERCENTILES = (50, 90, 95, 99)
# Fewer requests than these say nothing of a percentile (handbook 11.2).
_LEAST = {99: 300}
# From this share of steps on requests are said to wait.
_OFTEN = 0.2
_FULL = 0.97
_BUSY = 0.8
# A step that takes hardly longer than that of one token reads weights and computes little.
_LIKE_ONE_TOKEN = 1.25
# The engine is filled so many times to see what it serves.
_FILLS = 5
# Requests that must go through a saturated engine before its rate is said.
_ENOUGH = 20


class Binding(StrEnum):
    """What keeps a load from being served faster."""

    ARRIVALS = "the load itself: the engine waits for requests"
    KV_CACHE = "KV cache capacity"
    MAX_NUM_SEQS = "max_num_seqs"
    TOKEN_BUDGET = "max_num_batched_tokens"  # noqa: S105  a setting
    STATIC_BATCH = "the slots of the static batch"
    WEIGHTS = "reading the weights in every step"
    ARITHMETIC = "the arithmetic of matrix products"
    CACHE_READS = "reading the KV cache in every step"
    HOST = "the host between steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulation of a load: at one end of the ranges."""

    load: Load
    settings: SchedulerSettings
    outcome: Outcome

    @property
    def served(self) -> NDArray[np.bool_]:
        """Requests that were not refused."""
        return ~self.outcome.refused


def run(load: Load, settings: SchedulerSettings, tables: StepTables, *, seed: int = 0) -> Run:
    """Simulate a load on one engine."""
    return Run(load=load, settings=settings, outcome=simulate(load, settings, tables, seed=seed))


def order_statistic(values: Floats, percentile: float) -> float:
    """The smallest value that so many percent do not exceed; NaN of too few values."""
    known = np.sort(values[~np.isnan(values)])
    if len(known) < max(1, _LEAST.get(int(percentile), 1)):
        return math.nan
    return float(known[max(0, math.ceil(percentile / 100 * len(known)) - 1)])


def predictions(ends: Sequence[Run], not_modelled: tuple[str, ...]) -> Mapping[str, Prediction]:
    """Every figure between the ends: runs on the fast, the likely and the slow engine.

    Those that a load has not (TPOT of one token) are absent, as are all without runs.
    """
    found: dict[str, Prediction] = {}
    if not ends:
        return found
    for name, figure in _figures().items():
        values = [figure(one) for one in ends]
        if any(math.isnan(value) for value in values):
            continue
        found[name] = Prediction(
            value=values[1],
            low=min(values),
            high=max(values),
            source=Source.SIMULATED,
            basis=BASIS,
            not_modelled=not_modelled,
        )
    return found


def _figures() -> Mapping[str, Callable[[Run], float]]:
    """Figures by name, units in the names."""
    found: dict[str, Callable[[Run], float]] = {}
    for name, times in _TIMES.items():
        found[f"{name}_mean_s"] = _mean(times)
        for percentile in PERCENTILES:
            found[f"{name}_p{percentile}_s"] = _at(times, percentile)
    return {**found, **_RATES}


def _mean(times: Callable[[Run], Floats]) -> Callable[[Run], float]:
    def mean(one: Run) -> float:
        values = times(one)
        known = values[~np.isnan(values)]
        return float(known.mean()) if len(known) else math.nan

    return mean


def _at(times: Callable[[Run], Floats], percentile: int) -> Callable[[Run], float]:
    return lambda one: order_statistic(times(one), percentile)


def _per_second(total: float, one: Run) -> float:
    return total / one.outcome.duration_s if one.outcome.duration_s else math.nan


def kv_usage(one: Run) -> Floats:
    """Share of the usable blocks that is held, by step."""
    return np.asarray(one.outcome.used_blocks / max(1, one.outcome.usable_blocks))


def _in_flight(one: Run, begins: Floats, ends: Floats) -> float:
    """Mean number of requests between two of their moments (Little's law)."""
    return _per_second(float(np.nansum(ends - begins)), one)


def _over_steps(values: Floats | Ints | NDArray[np.bool_]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _cached_share(one: Run) -> float:
    if one.load.block_ids is None:  # nobody knows what prompts share
        return math.nan
    prompts = one.load.prompt_tokens[one.served].sum()
    return float(one.outcome.cached_tokens[one.served].sum() / prompts) if prompts else math.nan


def _accepted_share(one: Run) -> float:
    drafted = one.outcome.drafted_tokens
    return one.outcome.accepted_tokens / drafted if drafted else math.nan


_TIMES: Mapping[str, Callable[[Run], Floats]] = {
    "ttft": lambda one: one.outcome.ttft_s,
    "tpot": lambda one: one.outcome.tpot_s(one.load.output_tokens),
    "e2e": lambda one: one.outcome.e2e_s,
}
_RATES: Mapping[str, Callable[[Run], float]] = {
    "output_tokens_per_s": lambda one: _per_second(
        float(one.load.output_tokens[one.served].sum()), one
    ),
    "requests_per_s": lambda one: _per_second(float(one.served.sum()), one),
    "kv_usage_mean": lambda one: _over_steps(kv_usage(one)),
    "kv_usage_peak": lambda one: float(kv_usage(one).max(initial=0.0)),
    "running_mean": lambda one: _in_flight(one, one.outcome.scheduled_s, one.outcome.last_token_s),
    "waiting_mean": lambda one: _in_flight(one, one.outcome.sent_s, one.outcome.scheduled_s),
    "preemptions": lambda one: float(one.outcome.preemptions.sum()),
    "cached_prompt_share": _cached_share,
    "accepted_draft_share": _accepted_share,
}


def binding(one: Run, tables: StepTables) -> Binding:
    """What keeps requests waiting, or, where none waits, what the time of a step goes to."""
    outcome, settings = one.outcome, one.settings
    waits = outcome.waiting > 0
    if _over_steps(waits) < _OFTEN:
        busy = outcome.busy_s / outcome.duration_s if outcome.duration_s else 0.0
        return largest_part(one, tables) if busy >= _BUSY else Binding.ARRIVALS
    if settings.static_batch is not None:
        return Binding.STATIC_BATCH
    full = {
        Binding.MAX_NUM_SEQS: outcome.running >= settings.max_num_seqs,
        Binding.TOKEN_BUDGET: outcome.step_tokens >= _FULL * settings.max_num_batched_tokens,
    }
    shares = {why: float((held & waits).sum() / waits.sum()) for why, held in full.items()}
    most = max(shares, key=lambda why: shares[why])
    # Whole prompts must fit: a request can wait for blocks although some are free.
    return most if shares[most] > 1 / 2 else Binding.KV_CACHE


def largest_part(one: Run, tables: StepTables) -> Binding:
    """The largest part of a step with the mean tokens and requests of the run."""
    prompts, outputs = one.load.prompt_tokens, one.load.output_tokens
    # Length-biased: long answers are met more often (handbook 4.1).
    context = float((prompts * outputs + outputs**2 / 2).sum() / outputs.sum())
    tokens, requests = float(one.outcome.step_tokens.mean()), float(one.outcome.running.mean())
    dense_s, alone_s = along_each(tables.tokens, tables.dense_s, np.array([tokens, 1.0]))
    count = np.array([requests])
    decodes = (count, np.array([context]))
    reading = dense_s < _LIKE_ONE_TOKEN * alone_s
    parts = {
        Binding.WEIGHTS if reading else Binding.ARITHMETIC: dense_s
        + along_each(tables.rows, tables.head_s, count)[0],
        Binding.CACHE_READS: across_each(
            (tables.requests, tables.contexts), tables.decode_s, decodes
        )[0],
        Binding.HOST: tables.host_s + requests * tables.host_request_s,
    }
    return max(parts, key=lambda part: parts[part])


def highest_rate_per_s(one: Run, tables: StepTables, *, seed: int = 0) -> float | None:
    """Requests per second that the engine serves where as many wait as it can run, and more.

    Counted from the first quarter of them until the last was admitted, over the load as often as it
    takes to fill the engine; each repetition has blocks of its own. None where too few go through.
    """
    load, settings = one.load, one.settings
    slots = settings.static_batch or settings.max_num_seqs
    times = max(1, math.ceil(_FILLS * slots / len(load)))
    ids, starts = _repeated_blocks(load, times)
    together = Load(
        arrival_s=np.zeros(len(load) * times),
        prompt_tokens=np.tile(load.prompt_tokens, times),
        output_tokens=np.tile(load.output_tokens, times),
        priority=None if load.priority is None else np.tile(load.priority, times),
        block_ids=ids,
        block_starts=starts,
    )
    outcome = simulate(together, settings, tables, seed=seed, record_steps=1)
    last = float(np.nanmax(outcome.scheduled_s, initial=0.0))
    ends = np.sort(outcome.last_token_s[outcome.last_token_s <= last])
    # The first ones found an empty engine.
    ends = ends[len(ends) // 4 :]
    if len(ends) < _ENOUGH or ends[-1] <= ends[0]:
        return None
    return float((len(ends) - 1) / (ends[-1] - ends[0]))


def _repeated_blocks(load: Load, times: int) -> tuple[Ints | None, Ints | None]:
    ids, starts = load.block_ids, load.block_starts
    if ids is None or starts is None:
        return None, None
    apart = int(ids.max(initial=0)) + 1
    repeated = [ids + number * apart for number in range(times)]
    ends = [starts[1:] + number * len(ids) for number in range(times)]
    return np.concatenate(repeated), np.concatenate([starts[:1], *ends])
