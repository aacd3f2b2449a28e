"""One trial in the database: its engine run, its load points, how it ended."""

import os
import time
from collections.abc import Callable, Mapping

from sqlalchemy.orm import Session

from advisor.errors import EngineFailed, InvalidInput, StateConflict
from advisor.measurement.records import LoadPoint
from advisor.recommender.evidence import PointPlan
from advisor.serving import EngineFacts
from advisor.states import FailureKind, RunState, TrialState
from db import devices, runs, trials
from db.session import transaction
from db.tables import EngineRow, EngineRunRow, StudyRow, TargetRow, TrialRow
from probes.engine_log import packed_log
from probes.lease import DeviceHold
from probes.trial import Sample, TrialListener, TrialWork, next_point, run_trial
from probes.vllm.server import Spawned, StartProgress
from probes.workplace import Workplace

MAX_ATTEMPTS = 2
# Failures of a running engine, or of the port it wanted: another start may go better. A setting or
# a memory limit that the engine refused would be refused again.
PASSING = frozenset(
    {
        FailureKind.DIED,
        FailureKind.LOAD_FAILED,
        FailureKind.PORT_IN_USE,
        FailureKind.WRONG_SERVER,
    }
)
REPORT_EVERY_S = 2.0


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
        engine: EngineRow,
        sample: Sample,
        report: Callable[[float, float], None],
    ) -> None:
        self.place = place
        self.hold = hold
        self.study = study
        self.trial = trial
        self.report = report
        self.began_s = time.monotonic()
        self.reported_s = 0.0
        with transaction(place.sessions) as session:
            points = trials.points(session, study.id).get(trial.id, [])
        settings = place.settings
        self.work = TrialWork(
            plan=trial.plan,
            start=place.start_plan(engine, trial.plan.config, model_path=str(target.model_path)),
            sample=sample,
            recorded=tuple(row.point for row in points),
            check_neighbours=settings.check_neighbours,
            ours=(os.getpid(), *([settings.service_pid] if settings.service_pid else [])),
        )
        self.done = len(self.work.recorded)
        self.run: EngineRunRow | None = None

    def measure(self) -> None:
        """Run the trial and record how it ended. A lost lease records nothing."""
        if next_point(self.work.plan, self.work.recorded) is None:
            self._resumed_complete()
            return
        self.run = self._begin()
        listener = TrialListener(
            spawned=self._spawned,
            starting=self._starting,
            ready=self._ready,
            point=self._point,
            load=self._load,
        )
        try:
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
        self.done += 1
        self.report(self._share(0.0), self._running_s())

    def _load(self, planned: PointPlan, done: int, total: int) -> None:
        if not self._due():
            return
        body = {
            "concurrency": planned.concurrency,
            "repeat": planned.repeat,
            "done": done,
            "total": total,
        }
        self._tell("load", body)
        self.report(self._share(done / total), self._running_s())

    def _share(self, part: float) -> float:
        """Share of the trial that is done, `part` of the running point included."""
        return min(1.0, (self.done + part) / len(self.work.plan.points))

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
        retry = error.kind in PASSING and self._failures() + 1 < MAX_ATTEMPTS
        self._ended(RunState.FAILED, TrialState.QUEUED if retry else TrialState.FAILED, error=error)

    def _failures(self) -> int:
        """Earlier starts of this trial that failed by themselves."""
        with transaction(self.place.sessions) as session:
            earlier = runs.of_trial(session, self.trial.id)
        return sum(run.failure_kind in PASSING for run in earlier)

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
        detail = reason if error is None else error.detail
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


def as_engine_failure(error: EngineFailed | InvalidInput) -> EngineFailed:
    """A setting that this engine's flags do not have fails the trial, not the study."""
    if isinstance(error, EngineFailed):
        return error
    return EngineFailed(FailureKind.INVALID_SETTING, str(error))
