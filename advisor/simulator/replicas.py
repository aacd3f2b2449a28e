"""Several engines behind a router, serving one load.

Round robin, random and prefix affinity route without looking at the engines, so each engine is
simulated on its part of the load. Least outstanding looks: the engines are then advanced together
from arrival to arrival, and a request in the step that runs at that moment still counts.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from advisor.errors import InvalidInput, UnknownName
from advisor.roofline.step.curves import Curves, curves
from advisor.roofline.step.steptime import StepTables
from advisor.simulator.arrays import new_state
from advisor.simulator.load import Load
from advisor.simulator.outcome import Outcome
from advisor.simulator.scheduler import fields as f
from advisor.simulator.scheduler.kernel import advance
from advisor.simulator.settings import SchedulerSettings
from advisor.simulator.simulation import outcome_of, simulate

Routing: TypeAlias = Literal["round_robin", "least_outstanding", "prefix", "random"]
ROUTINGS: tuple[Routing, ...] = ("round_robin", "least_outstanding", "prefix", "random")
_SAMPLES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutcomes:
    """`assigned` names each request's engine; `merged` is in the load's order, its queue a sum."""

    per_replica: tuple[Outcome, ...]
    assigned: f.Ints
    merged: Outcome


def simulate_replicas(
    load: Load,
    settings: SchedulerSettings,
    tables: StepTables,
    *,
    replicas: int,
    routing: Routing = "round_robin",
    seed: int = 0,
) -> ReplicaOutcomes:
    """Serves a load with equal engines.

    A closed loop is split: every engine keeps its share of the requests in flight. Raises
    `InvalidInput` for fewer requests in flight than engines, and `UnknownName` for a routing.
    """
    if routing not in ROUTINGS:
        raise UnknownName("routing", routing, ROUTINGS)
    if replicas < 1 or (load.concurrency is not None and load.concurrency < replicas):
        raise InvalidInput("replicas", f"{replicas} is below 1 or above the requests in flight")
    if routing == "least_outstanding" and load.concurrency is None:
        return _least_outstanding(load, settings, tables, replicas=replicas, seed=seed)
    assigned = _assigned(load, replicas, routing, seed)
    outcomes = []
    for engine in range(replicas):
        part = _part(load, assigned == engine, engine, replicas)
        outcomes.append(simulate(part, settings, tables, seed=seed + engine))
    return _merged(outcomes, assigned)


def _assigned(load: Load, replicas: int, routing: str, seed: int) -> f.Ints:
    """The engine of each request by a rule that does not look at the engines."""
    turn = np.arange(len(load)) % replicas
    if routing == "random":
        return np.random.default_rng(seed).integers(0, replicas, len(load))
    if routing != "prefix" or load.block_ids is None or load.block_starts is None:
        return turn
    ids, starts = load.block_ids, load.block_starts
    return np.array(
        [
            zlib.crc32(int(ids[starts[i]]).to_bytes(8, "little", signed=True)) % replicas
            if starts[i + 1] > starts[i]
            else turn[i]
            for i in range(len(load))
        ],
        dtype=np.int64,
    )


def _slices(values: f.Ints, starts: f.Ints, chosen: f.Ints) -> tuple[f.Ints, f.Ints]:
    """The stretches of some requests, one after the other, and where they start."""
    parts = [values[starts[i] : starts[i + 1]] for i in chosen]
    lengths = [len(part) for part in parts]
    joined = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return joined, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _part(
    load: Load, mine: np.ndarray[tuple[int], np.dtype[np.bool_]], engine: int, of: int
) -> Load:
    """The requests of one engine, and its share of a closed loop."""
    chosen = np.flatnonzero(mine)
    ids = starts = accepted = accepted_starts = None
    if load.block_ids is not None and load.block_starts is not None:
        ids, starts = _slices(load.block_ids, load.block_starts, chosen)
    if load.accepted is not None and load.accepted_starts is not None:
        accepted, accepted_starts = _slices(load.accepted, load.accepted_starts, chosen)
    in_flight = load.concurrency
    if in_flight is not None:
        in_flight = in_flight // of + (engine < in_flight % of)
    return replace(
        load,
        arrival_s=load.arrival_s[chosen],
        prompt_tokens=load.prompt_tokens[chosen],
        output_tokens=load.output_tokens[chosen],
        priority=None if load.priority is None else load.priority[chosen],
        concurrency=in_flight,
        block_ids=ids,
        block_starts=starts,
        accepted=accepted,
        accepted_starts=accepted_starts,
    )


def _least_outstanding(
    load: Load, settings: SchedulerSettings, tables: StepTables, *, replicas: int, seed: int
) -> ReplicaOutcomes:
    """Advances all engines to each arrival and gives it to the one with the fewest requests."""
    whole = new_state(load, settings, seed=seed, samples=1)
    engines = [new_state(load, settings, seed=seed, samples=_SAMPLES) for _ in range(replicas)]
    for engine in engines:
        engine.counters[f.TOTAL] = 0
    grids = curves(tables)
    assigned = np.zeros(len(load), np.int64)
    for request, arrival in enumerate(load.arrival_s.tolist()):
        outstanding = [_outstanding(engine, grids, arrival) for engine in engines]
        chosen = engines[outstanding.index(min(outstanding))]
        assigned[request] = outstanding.index(min(outstanding))
        row = chosen.counters[f.TOTAL]
        chosen.requests[row] = whole.requests[request]
        chosen.times[row] = whole.times[request]
        chosen.counters[f.TOTAL] += 1
    outcomes = []
    for engine in engines:
        _run(engine, grids, np.inf)
        outcomes.append(outcome_of(_cut(engine)))
    return _merged(outcomes, assigned)


def _run(engine: f.State, grids: Curves, until_s: float) -> None:
    if advance(engine, grids, until_s) > 0:
        raise InvalidInput("settings", "no request can move any more: the pool is too small")


def _outstanding(engine: f.State, grids: Curves, now_s: float) -> int:
    """Requests that an engine has not finished by a time."""
    _run(engine, grids, now_s)
    late = engine.clock[f.NOW] > now_s
    done = engine.counters[f.DONE_BEFORE] if late else engine.counters[f.DONE]
    return int(engine.counters[f.TOTAL] - done)


def _cut(engine: f.State) -> f.State:
    """Without the columns of requests that went elsewhere."""
    count = int(engine.counters[f.TOTAL])
    return engine._replace(requests=engine.requests[:count], times=engine.times[:count])


def _merged(outcomes: list[Outcome], assigned: f.Ints) -> ReplicaOutcomes:
    places = [np.flatnonzero(assigned == engine) for engine in range(len(outcomes))]
    ends = np.unique(np.concatenate([outcome.step_end_s for outcome in outcomes]))

    def gathered(name: str) -> np.ndarray[Any, Any]:
        values = np.empty(len(assigned), getattr(outcomes[0], name).dtype)
        for outcome, mine in zip(outcomes, places, strict=True):
            values[mine] = getattr(outcome, name)
        return values

    def over_time(name: str) -> f.Ints:
        total = np.zeros(len(ends), np.int64)
        for outcome in outcomes:
            values = np.append(getattr(outcome, name), 0)
            total += values[np.searchsorted(outcome.step_end_s, ends)]
        return total

    merged = Outcome(
        sent_s=gathered("sent_s"),
        scheduled_s=gathered("scheduled_s"),
        first_token_s=gathered("first_token_s"),
        last_token_s=gathered("last_token_s"),
        cached_tokens=gathered("cached_tokens"),
        preemptions=gathered("preemptions"),
        refused=gathered("refused"),
        steps=sum(outcome.steps for outcome in outcomes),
        step_end_s=ends,
        step_tokens=over_time("step_tokens"),
        running=over_time("running"),
        waiting=over_time("waiting"),
        used_blocks=over_time("used_blocks"),
        usable_blocks=sum(outcome.usable_blocks for outcome in outcomes),
        busy_s=sum(outcome.busy_s for outcome in outcomes),
        drafted_tokens=sum(outcome.drafted_tokens for outcome in outcomes),
        accepted_tokens=sum(outcome.accepted_tokens for outcome in outcomes),
    )
    return ReplicaOutcomes(per_replica=tuple(outcomes), assigned=assigned, merged=merged)
