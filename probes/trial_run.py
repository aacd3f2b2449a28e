"""One trial in the database: its engine run, its load points, how it ended."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlalchemy.orm import Session

from advisor.errors import EngineFailed, InvalidInput, StateConflict
from advisor.failures import TREATMENTS, explained, lever_bound, retries, to_remember
from advisor.measurement.records import LoadPoint, QualityPass
from advisor.recommender.evidence import PointPlan
from advisor.recommender.ladder import open_points
from advisor.recommender.space import BASELINE
from advisor.serving import EngineFacts
from advisor.states import FailureKind, RunState, TrialState
from db import devices, engine_failures, engines, runs, trials
from db.session import transaction
from db.tables import EngineRunRow, StudyRow, TargetRow, TrialRow
from probes.device_memory import memory_reader, refuse_held
from probes.engine_log import packed_log
from probes.lease import DeviceHold
from probes.quality import QualityWork, quality_sample
from probes.quantizer import Checkpoint, checkpoint_for
from probes.samples import Samples, calibration_of
from probes.targets import folder_here
from probes.trial import TrialListener, TrialWork, next_point, run_trial
from probes.vllm.server import Spawned, StartProgress
from probes.workplace import Workplace, weight_file_bytes

REPORT_EVERY_S = 2.0
LOG = logging.getLogger(__name__)


class TrialRun:
    """One start of the engine for one trial, recorded under the fencing token of the lease."""

    def __init__(
        self,
        *,
        place: Workplace,
        hold: DeviceHold,
        study: StudyRow,
        trial: TrialRow,
        target: TargetRow,
        samples: Samples,
        reference: QualityPass | None,
        report: Callable[[float, float], None],
    ) -> None:
        self.place = place
        self.hold = hold
        self.study = study
        self.trial = trial
        self.target = target
        self.report = report
        self.began_s = time.monotonic()
        self.reported_s = 0.0
        with transaction(place.sessions) as session:
            points = trials.points(session, study.id).get(trial.id, [])
            engine = engines.on_host(session, target.engine_id, place.settings.host_name)
        self.memory = engine_failures.place_of(
            engine,
            device_class=place.device.device_class,
            model_digest=str(target.model_digest),
        )
        settings = place.settings
        self.work = TrialWork(
            plan=trial.plan,
            start=place.start_plan(
                engine,
                trial.plan.config,
                model_path=str(folder_here(target, settings.demo_model)),
            ),
            samples=samples,
            recorded=tuple(row.point for row in points),
            quality=quality_work(trial, samples, reference),
            check_neighbours=settings.check_neighbours,
            ours=place.own_processes,
        )
        self.points = list(self.work.recorded)
        self.passes = 0 if self.work.quality is None else self.work.quality.missing
        self.checkpoint: Checkpoint | None = None
        self.run: EngineRunRow | None = None
        self.spawned = False  # until then a refusal is ours, not the engine's

    def measure(self) -> None:
        """Run the trial and record how it ended. A lost lease records nothing."""
        if next_point(self.work.plan, self.points) is None and not self.passes:
            self._resumed_complete()
            return
        self.run = self._begin()
        listener = TrialListener(
            spawned=self._spawned,
            starting=self._starting,
            ready=self._ready,
            point=self._point,
            load=self._load,
            answered=self._answered,
            quality=self._quality,
            quality_ended=self._quality_ended,
        )
        try:
            self._fetch_checkpoint()
            self._refuse_held()
            run_trial(self.work, listener, self.hold.interruption.event)
        except (EngineFailed, InvalidInput) as error:
            self._failed(as_engine_failure(error))
            return
        self._ended(RunState.STOPPED, TrialState.DONE)

    def _resumed_complete(self) -> None:
        """The agent was lost after the last point and before the trial was closed."""
        with transaction(self.place.sessions) as session:
            trial = self._trial_row(session)
            for wanted in (TrialState.MEASURING, TrialState.DONE):
                trials.transition(
                    session, trial, wanted, actor=self.place.actor, now=self.place.now()
                )

    def _fetch_checkpoint(self) -> None:
        """Serve the quantized weights where the configuration asks for them."""
        quantization = self.trial.plan.config.levers.quantization
        if quantization is None:
            return
        self.checkpoint = checkpoint_for(
            self.place,
            target=self.target,
            quantization=quantization,
            workload_digest=self.work.samples.probe.workload_digest,
            calibration=calibration_of(self.place, self.study, self.target),
            seed=self.study.seed,
            cancelled=self.hold.interruption.event,
            on_progress=self._quantizing,
        )
        start = replace(
            self.work.start,
            model_path=str(self.checkpoint.path),
            model_bytes=weight_file_bytes(self.checkpoint.path),
        )
        self.work = replace(self.work, start=start)

    def _refuse_held(self) -> None:
        """Memory that others hold is told before the start, not blamed on the configuration."""
        settings = self.place.settings
        refuse_held(
            memory_reader(settings.device_kind, settings.device_name),
            self.work.plan.config,
            non_kv_bytes=self.work.start.model_bytes,
            ours=self.work.ours,
            cancelled=self.hold.interruption.event,
        )

    def _quantizing(self, phase: str, elapsed_s: float | None) -> None:
        if self._due():
            shown_s = None if elapsed_s is None else round(elapsed_s, 1)
            self._tell("starting", {"phase": phase, "elapsed_s": shown_s})

    def _begin(self) -> EngineRunRow:
        with transaction(self.place.sessions) as session:
            return trials.start(
                session,
                self._trial_row(session),
                device_id=self.place.device.id,
                fencing_token=self.hold.token,
                token=self.work.start.token,
                now=self.place.now(),
                actor=self.place.actor,
            )

    def _spawned(self, spawned: Spawned) -> None:
        self.spawned = True
        with transaction(self.place.sessions) as session:
            runs.started(
                session,
                self._run(session),
                pid=spawned.pid,
                pid_started_at=spawned.pid_started_at,
                port=spawned.port,
            )

    def _starting(self, progress: StartProgress) -> None:
        if self._due():
            elapsed_s = round(progress.elapsed_s, 1)
            self._tell("starting", {"phase": progress.phase, "elapsed_s": elapsed_s})

    def _ready(self, facts: EngineFacts) -> None:
        if self.checkpoint is not None:
            facts = replace(facts, checkpoint_digest=self.checkpoint.digest)
        with transaction(self.place.sessions) as session:
            runs.ready(session, self._run(session), facts, now=self.place.now())
        self._tell("ready", {"start_s": facts.start_s})

    def _point(self, point: LoadPoint, records: bytes) -> None:
        with transaction(self.place.sessions) as session:
            trials.record_point(
                session,
                trial=self._trial_row(session),
                run=self._run(session),
                point=point,
                records=records,
                now=self.place.now(),
            )
        self.points.append(point)
        self.report(self._share(0.0), self._running_s())

    def _load(self, planned: PointPlan, done: int, total: int) -> None:
        if not self._due():
            return
        body = {
            "role": planned.role.value,
            "concurrency": planned.concurrency,
            "repeat": planned.repeat,
            "done": done,
            "total": total,
        }
        self._tell("load", body)
        self.report(self._share(done / total), self._running_s())

    def _answered(self, number: int, done: int, total: int) -> None:
        if done < total and not self._due():
            return
        self._tell("quality", {"pass": number, "done": done, "total": total})
        self.report(self._share(done / total), self._running_s())

    def _quality(self, passed: QualityPass) -> None:
        with transaction(self.place.sessions) as session:
            trials.record_quality(
                session, trial=self._trial_row(session), run=self._run(session), passed=passed
            )
        self.passes -= 1
        self.report(self._share(0.0), self._running_s())

    def _quality_ended(self, reason: str) -> None:
        LOG.warning("study %s: no quality of %s: %s", self.study.id, self.trial.key, reason)
        self._tell("quality", {"given_up": reason})

    def _share(self, part: float) -> float:
        """Share of the trial that is done, `part` of the running point or pass included.

        A quality pass counts as one point; a load that the early stop left out does not count.
        """
        done = len(self.points) + self._passes_done()
        left = len(open_points(self.work.plan, self.points)) + self.passes
        return min(1.0, (done + part) / max(1, done + left))

    def _passes_done(self) -> int:
        quality = self.work.quality
        return 0 if quality is None else quality.passes - self.passes

    def _running_s(self) -> float:
        return time.monotonic() - self.began_s

    def _due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self.reported_s < REPORT_EVERY_S:
            return False
        self.reported_s = now_s
        return True

    def _tell(self, kind: str, body: Mapping[str, object]) -> None:
        self.place.event("study", self.study.id, kind, {"trial": self.trial.key, **body})

    def _failed(self, error: EngineFailed) -> None:
        if self.hold.lost:
            # Nothing may be written under an outdated token; whoever holds the device now, or
            # this agent when it holds it again, sweeps the run and queues the trial again.
            return
        if error.kind == FailureKind.CANCELLED:
            self._ended(RunState.STOPPED, TrialState.QUEUED, reason=self.hold.interruption.reason)
            return
        lowered = self._remembered(error)
        failed = self._failures() + 1
        retry = lowered or retries(error.kind, failed)
        self._ended(RunState.FAILED, TrialState.QUEUED if retry else TrialState.FAILED, error=error)
        if retry:
            self.hold.interruption.event.wait(TREATMENTS[FailureKind(error.kind)].wait_s)

    def _remembered(self, error: EngineFailed) -> bool:
        """Keep what the next start would meet again; whether a lever was lowered to try once more.

        What was refused before the engine was spawned costs no start and is not kept.
        The bound holds for the whole study: its baseline is lowered with the trial, as all trials
        are compared with it (case E-12).
        """
        config = self.trial.plan.config
        now = self.place.now()
        found = (
            None
            if not self.spawned
            else to_remember(
                config, error.kind, error.detail, setting=error.setting, bound=error.bound, now=now
            )
        )
        bound = lever_bound(config, error.setting, error.bound)
        with transaction(self.place.sessions) as session:
            devices.check_lease(session, self.place.device.id, self.hold.token)
            if found is not None:
                engine_failures.remember(session, self.memory, found)
            earlier = runs.of_trial(session, self.trial.id)
            again = bound is not None and all(run.failure_kind != error.kind for run in earlier)
            if again and found is not None:
                engine_failures.lower(
                    session, self.study.id, found, actor=self.place.actor, now=now
                )
        return again and found is not None

    def _failures(self) -> int:
        """Earlier starts of this trial that failed in a way that may pass."""
        with transaction(self.place.sessions) as session:
            earlier = runs.of_trial(session, self.trial.id)
        kinds = [FailureKind(run.failure_kind) for run in earlier if run.failure_kind is not None]
        return sum(TREATMENTS[kind].starts > 1 for kind in kinds)

    def _ended(
        self,
        run_state: RunState,
        trial_state: TrialState,
        *,
        error: EngineFailed | None = None,
        reason: str | None = None,
    ) -> None:
        place = self.place
        log = packed_log(self.work.start.log_path, place.settings.log_limit_bytes)
        kind = None if error is None else error.kind
        detail = reason if error is None else explained(error.kind, error.detail)
        with transaction(place.sessions) as session:
            now = place.now()
            runs.ended(
                session,
                self._run(session),
                run_state,
                now=now,
                failure_kind=kind,
                failure_detail=detail,
                log=log,
            )
            trials.transition(
                session,
                self._trial_row(session),
                trial_state,
                actor=place.actor,
                now=now,
                failure_kind=kind if trial_state is TrialState.FAILED else None,
                reason=detail,
            )
            devices.check_lease(session, place.device.id, self.hold.token)

    def _trial_row(self, session: Session) -> TrialRow:
        return session.get_one(TrialRow, self.trial.id)

    def _run(self, session: Session) -> EngineRunRow:
        if self.run is None:
            raise StateConflict("engine run", "not begun", "recorded")
        return session.get_one(EngineRunRow, self.run.id)


def quality_work(
    trial: TrialRow, samples: Samples, reference: QualityPass | None
) -> QualityWork | None:
    """The quality passes that the trial still needs, or None.

    `reference` is the baseline's first pass; without it there is nothing that a variant could be
    compared with.
    """
    plan = trial.plan.quality
    finished = () if trial.quality is None else trial.quality.passes
    if plan is None or len(finished) >= plan.passes:
        return None
    if reference is None and trial.key != BASELINE:
        LOG.warning("no quality of %s: the baseline has no reference", trial.key)
        return None
    return QualityWork(
        sample=quality_sample(samples.probe, plan),
        passes=plan.passes,
        finished=finished,
        reference=reference,
    )


def as_engine_failure(error: EngineFailed | InvalidInput) -> EngineFailed:
    """A setting that this engine's flags do not have fails the trial, not the study."""
    if isinstance(error, EngineFailed):
        return error
    return EngineFailed(FailureKind.INVALID_SETTING, str(error))
