"""One trial: start its engine, warm it up, measure the load points that are still missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from advisor.errors import EngineFailed, InvalidInput
from advisor.measurement.points import summarise_point
from advisor.measurement.records import (
    EngineCounters,
    HostLoad,
    LoadPoint,
    LoadRole,
    QualityPass,
)
from advisor.measurement.request_acceptance import acceptance_by
from advisor.recommender.evidence import PointPlan, TrialPlan
from advisor.recommender.ladder import key_of, open_points
from advisor.serving import EngineFacts
from advisor.states import FailureKind
from probes.host import HostWatch
from probes.load.plan import load_plan
from probes.load.records import records_to_parquet
from probes.load.runner import Loaded, run_load
from probes.power import PowerFigures, meter_of, power_remarks
from probes.quality import QualityGivenUp, QualityWork, quality_pass
from probes.samples import STATIC_ROLES, Sample, Samples
from probes.vllm.engine import RunningEngine
from probes.vllm.metrics import GaugeSampler, UnusableCounters, difference
from probes.vllm.server import Spawned, StartPlan, StartProgress, start_engine
from probes.vllm.watchdog import watched

WARM_REQUESTS_EAGER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialWork:
    """A trial as the engine side needs it. `recorded` are its finished load points.

    `quality` are the quality passes to make after them, None for no more. `ours` are the root
    processes whose work does not count as a neighbour's.
    """

    plan: TrialPlan
    start: StartPlan
    samples: Samples
    recorded: tuple[LoadPoint, ...]
    quality: QualityWork | None
    check_neighbours: bool
    ours: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialListener:
    """Who is told what happens; each callback writes in a transaction of its own.

    `load` and `answered` get how many of how many requests are done: of a load point, of a quality
    pass by its number. `quality_ended` gets why the quality passes were given up.
    """

    spawned: Callable[[Spawned], None]
    starting: Callable[[StartProgress], None]
    ready: Callable[[EngineFacts], None]
    point: Callable[[LoadPoint, bytes], None]
    load: Callable[[PointPlan, int, int], None]
    answered: Callable[[int, int, int], None]
    quality: Callable[[QualityPass], None]
    quality_ended: Callable[[str], None]


def next_point(plan: TrialPlan, recorded: Sequence[LoadPoint]) -> PointPlan | None:
    """The load point to measure now: a planned one, else one more try for a useless one.

    A finished point is never planned again. Each planned point that was disturbed or did not
    reach its load gets one extra repeat with a number of its own; None when nothing is left.
    """
    missing = open_points(plan, recorded)
    if missing:
        return missing[0]
    planned = {key_of(point): point for point in plan.points}
    for load in dict.fromkeys((point.role, point.concurrency) for point in plan.points):
        mine = [point for point in recorded if (point.role, point.concurrency) == load]
        useless = [p for p in mine if key_of(p) in planned and not p.usable]
        extras = [p for p in mine if key_of(p) not in planned]
        if len(extras) < len(useless):
            repeat = 1 + max(point.repeat for point in mine)
            return replace(planned[key_of(useless[0])], repeat=repeat)
    return None


def run_trial(work: TrialWork, listener: TrialListener, cancelled: Event) -> str:
    """Measure what is missing and return the engine's log; the engine is gone afterwards.

    Raises `EngineFailed` (`CANCELLED` when the event was set); the log file stays for the caller.
    """
    with start_engine(
        work.start,
        on_progress=listener.starting,
        cancelled=cancelled,
        on_spawned=listener.spawned,
    ) as engine:
        listener.ready(engine.facts)
        recorded = list(work.recorded)
        if next_point(work.plan, recorded) is not None:
            warm_up(engine, work, cancelled)
        while (planned := next_point(work.plan, recorded)) is not None:
            point, records = measure(engine, work, planned, listener=listener, cancelled=cancelled)
            listener.point(point, records)
            recorded.append(point)
        if work.quality is not None:
            answer_prompts(engine, work.quality, listener, cancelled)
        return engine.read_log()


def answer_prompts(
    engine: RunningEngine, quality: QualityWork, listener: TrialListener, cancelled: Event
) -> None:
    """The quality passes that miss. One that cannot be had is given up: the loads count alone."""
    finished = list(quality.finished)
    try:
        while len(finished) < quality.passes:
            number = len(finished) + 1
            engine.reset_prefix_cache()
            found = quality_pass(
                engine,
                replace(quality, finished=tuple(finished)),
                cancelled=cancelled,
                on_progress=partial(listener.answered, number),
            )
            listener.quality(found)
            finished.append(found)
    except QualityGivenUp as error:
        listener.quality_ended(str(error))
    except EngineFailed as error:
        if error.kind == FailureKind.CANCELLED:
            raise
        listener.quality_ended(error.kind)


def replayed(samples: Samples, planned: PointPlan) -> Sample:
    """What a load point sends; gangs, and the loop that they are compared with, are all full."""
    sample = samples.of(planned.role).first(planned.requests)
    if planned.role not in STATIC_ROLES:
        return sample
    count = len(sample.requests)
    return sample.first(count - count % planned.concurrency or count)


def warm_up(engine: RunningEngine, work: TrialWork, cancelled: Event) -> None:
    """Run the batch sizes of the plan once on short requests; nothing of it is recorded.

    An eager engine captures and compiles nothing per batch size: a few requests are enough there.
    """
    config = work.plan.config
    largest = max(point.concurrency for point in work.plan.points)
    if config.functional.enforce_eager:
        largest = min(largest, WARM_REQUESTS_EAGER)
    sample = work.samples.probe.warming(min(largest, config.levers.max_num_seqs or largest))
    _load(engine, sample, len(sample.requests), cancelled=cancelled, on_progress=None)


def measure(
    engine: RunningEngine,
    work: TrialWork,
    planned: PointPlan,
    *,
    listener: TrialListener,
    cancelled: Event,
) -> tuple[LoadPoint, bytes]:
    """One load point from an empty prefix cache, and its per-request records as Parquet."""
    sample = replayed(work.samples, planned)
    watch = HostWatch(ours=lambda: work.ours, tokens=(engine.token,))
    meter = meter_of(work.start.engine.schema.build, work.start.base_env)
    try:
        engine.reset_prefix_cache()
        before = engine.snapshot()
        watch.start()
        with GaugeSampler(engine.snapshot) as gauges, meter:
            loaded = _load(
                engine,
                sample,
                planned.concurrency,
                gang=planned.role is LoadRole.STATIC,
                cancelled=cancelled,
                on_progress=lambda done, total: listener.load(planned, done, total),
            )
        host = watch.stop()
        engine.check_alive()
        counters = difference(before, engine.snapshot(), gauges.peaks)
    except UnusableCounters as error:
        engine.check_alive()
        raise EngineFailed(FailureKind.LOAD_FAILED, str(error)) from error
    point = _summary(
        work,
        planned,
        sample,
        loaded=loaded,
        counters=counters,
        host=host,
        power=meter.figures,
    )
    return point, records_to_parquet(list(loaded.records))


def _load(
    engine: RunningEngine,
    sample: Sample,
    concurrency: int,
    *,
    gang: bool = False,
    cancelled: Event,
    on_progress: Callable[[int, int], None] | None,
) -> Loaded:
    plan = load_plan(
        sample.requests,
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        concurrency=concurrency,
        rule=sample.rule,
        output_tokens=sample.output_tokens,
        gang=gang,
    )
    with watched(engine, cancelled) as ended:
        return run_load(plan, on_progress=on_progress, cancelled=ended)


def _summary(
    work: TrialWork,
    planned: PointPlan,
    sample: Sample,
    *,
    loaded: Loaded,
    counters: EngineCounters,
    host: HostLoad,
    power: PowerFigures,
) -> LoadPoint:
    speculation = work.plan.config.levers.speculative_config
    try:
        point = summarise_point(
            concurrency=planned.concurrency,
            repeat=planned.repeat,
            role=planned.role,
            subset_digest=sample.digest,
            records=loaded.records,
            counters=counters,
            host=host,
            shared_machine=not work.check_neighbours,
            num_speculative_tokens=(
                None if speculation is None else speculation.num_speculative_tokens
            ),
            client=loaded.health,
            not_fitting=work.samples.not_fitting,
            energy_j=power.energy_j,
        )
    except InvalidInput as error:
        raise EngineFailed(FailureKind.LOAD_FAILED, str(error)) from error
    point = replace(point, flaws=(*point.flaws, *power_remarks(power)))
    if speculation is None:
        return point
    drafted = speculation.num_speculative_tokens
    return replace(
        point, acceptance_by=acceptance_by(loaded.records, num_speculative_tokens=drafted)
    )
