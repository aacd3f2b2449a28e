"""`advance(study)`: take one study one step further. The study's row is the truth."""

import logging
from uuid import UUID

from advisor.errors import InvalidInput
from advisor.failures import bounds_on, known_failure
from advisor.measurement.records import LoadRole, QualityPass
from advisor.recommender.evidence import StudyEvidence, TrialPlan
from advisor.recommender.ladder import subset_size
from advisor.recommender.planner import Finished, next_step, plan_preview
from advisor.recommender.recommend import recommend
from advisor.recommender.space import BASELINE
from advisor.states import STUDY_OVER, TRIAL_OVER, FailureKind, StudyState, TrialState
from db import engine_failures, engines, recommendations, studies, targets, trials
from db.session import transaction
from db.tables import StudyRow, TargetRow, TrialRow
from probes.device import machine_text
from probes.lease import DeviceHold
from probes.samples import STATIC_ROLES, draw_samples
from probes.targets import folder_here, refuse_changed
from probes.traffic import privacy_reason
from probes.trial_run import TrialRun
from probes.workplace import Workplace

LOG = logging.getLogger(__name__)


class Advance:
    """One step of one study, under the device's lease."""

    def __init__(self, place: Workplace, hold: DeviceHold, study_id: UUID) -> None:
        self.place = place
        self.hold = hold
        self.study_id = study_id

    def step(self) -> None:
        """What the state asks for; a study that is over is left alone."""
        study = self.study()
        if study.state in STUDY_OVER:
            return
        if study.cancel_requested:
            self.move(StudyState.CANCELLED)  # its waiting trials are skipped with it
            return
        match StudyState(study.state):
            case StudyState.QUEUED:
                self.move(StudyState.PLANNING)
            case StudyState.PLANNING:
                self.plan(study)
            case StudyState.PROBING:
                self.probe(study)
            case StudyState.ANALYSING:
                self.analyse(study)
            case _:
                return

    def study(self) -> StudyRow:
        """The row as it is now."""
        with transaction(self.place.sessions) as session:
            return studies.one(session, self.study_id, None)

    def target(self, study: StudyRow) -> TargetRow:
        """The inspected target of the study, with its tokenizer."""
        with transaction(self.place.sessions) as session:
            return targets.one(session, study.target_id, None)

    def evidence(self) -> StudyEvidence:
        """All that the study knows at this moment."""
        with transaction(self.place.sessions) as session:
            return studies.evidence(session, self.study_id)

    def move(self, wanted: StudyState, **detail: str) -> None:
        """A transition, with its audit row and event."""
        with transaction(self.place.sessions) as session:
            study = studies.one(session, self.study_id, None)
            studies.transition(
                session,
                study,
                wanted,
                actor=self.place.actor,
                now=self.place.now(),
                detail=detail or None,
            )

    # ---------------------------------------------------------------------------- planning

    def plan(self, study: StudyRow) -> None:
        """Tokenise the upload once, see that something of it can be replayed, forecast."""
        target = self.target(study)
        refuse_changed(folder_here(target, self.place.settings.demo_model), target.model_digest)
        try:
            draw_samples(self.place, study, target, largest=study.requests_per_point)
        except InvalidInput as error:
            kept = privacy_reason(self.place, study.workload_id)
            self.move(StudyState.INFEASIBLE, error="; ".join(filter(None, (str(error), kept))))
            return
        self.report(self.evidence())
        self.move(StudyState.PROBING)

    # ----------------------------------------------------------------------------- probing

    def probe(self, study: StudyRow) -> None:
        """Measure one trial: an interrupted one first, else what the planner says."""
        trial = self.next_trial()
        if trial is None:
            self.move(StudyState.ANALYSING)
            return
        target = self.target(study)
        if self.known_to_fail(trial, target):
            return
        evidence = self.evidence()
        samples = draw_samples(
            self.place,
            study,
            target,
            largest=subset_size(evidence),
            gangs=gang_requests(trial.plan),
        )
        if samples.not_held_out is not None and asks_held_out(trial.plan):
            self.skip(trial, samples.not_held_out)
            return
        run = TrialRun(
            place=self.place,
            hold=self.hold,
            study=study,
            trial=trial,
            target=target,
            samples=samples,
            reference=reference_answers(evidence),
            report=lambda share, running_s: self.report(
                self.evidence(), key=trial.key, share=share, running_s=running_s
            ),
        )
        run.measure()
        self.report(self.evidence())

    def known_to_fail(self, trial: TrialRow, target: TargetRow) -> bool:
        """Whether an earlier failure settles this trial: it is left out, or lowered to a bound."""
        place, config = self.place, trial.plan.config
        with transaction(place.sessions) as session:
            engine = engines.on_host(session, target.engine_id, place.settings.host_name)
            where = engine_failures.place_of(
                engine,
                device_class=place.device.device_class,
                model_digest=str(target.model_digest),
            )
            known = engine_failures.remembered(session, where)
            bounds = bounds_on(config, known)
            for bound in bounds:
                engine_failures.lower(
                    session, self.study_id, bound, actor=place.actor, now=place.now()
                )
        failure = known_failure(config, known)
        if failure is not None:
            self.skip(trial, failure.text, FailureKind.FAILED_BEFORE)
        return failure is not None or bool(bounds)

    def skip(self, trial: TrialRow, reason: str, kind: FailureKind | None = None) -> None:
        """Leave out a trial that cannot be measured; the study goes on."""
        with transaction(self.place.sessions) as session:
            trials.transition(
                session,
                session.get_one(TrialRow, trial.id),
                TrialState.SKIPPED,
                actor=self.place.actor,
                now=self.place.now(),
                failure_kind=kind,
                reason=reason,
            )

    def next_trial(self) -> TrialRow | None:
        """The trial to run now, or None when the planner is finished."""
        with transaction(self.place.sessions) as session:
            for trial in trials.of_study(session, self.study_id):
                if trial.state == TrialState.QUEUED:
                    return trial
        step = next_step(self.evidence())
        if isinstance(step, Finished):
            return None
        with transaction(self.place.sessions) as session:
            trial = studies.ensure_trial(
                session, studies.one(session, self.study_id, None), step, now=self.place.now()
            )
        if trial.state in TRIAL_OVER:
            LOG.warning("study %s: trial %s is over, nothing to repeat", self.study_id, trial.key)
            return None
        return trial

    def report(
        self,
        evidence: StudyEvidence,
        *,
        key: str | None = None,
        share: float = 0.0,
        running_s: float = 0.0,
    ) -> None:
        """Progress and remaining time from the plan.

        `share` of trial `key` is done, whose engine runs since `running_s`.
        """
        remaining_s = remaining_time_s(evidence, key, share)
        spent_s = evidence.spent_s + running_s
        with transaction(self.place.sessions) as session:
            study = studies.one(session, self.study_id, None)
            whole_s = spent_s + remaining_s
            studies.set_progress(
                session,
                study,
                progress=max(study.progress, min(0.99, spent_s / whole_s if whole_s else 0.0)),
                remaining_s=remaining_s,
                now=self.place.now(),
            )

    # --------------------------------------------------------------------------- analysing

    def analyse(self, study: StudyRow) -> None:
        """Turn the evidence into the recommendation, or say why there is none."""
        evidence = self.evidence()
        if not any(trial.points for trial in evidence.trials):
            self.move(StudyState.FAILED, error=nothing_measured(evidence))
            return
        samples = draw_samples(
            self.place, study, self.target(study), largest=study.requests_per_point
        )
        advice = recommend(
            evidence,
            study_id=str(study.id),
            machine=machine_text(evidence.device),
            subset=samples.distance,
        )
        with transaction(self.place.sessions) as session:
            row = studies.one(session, self.study_id, None)
            now = self.place.now()
            recommendations.create(session, row, advice, now=now)
            studies.set_progress(session, row, progress=1.0, remaining_s=0.0, now=now)
            studies.transition(
                session,
                row,
                StudyState.DONE if advice.conclusive else StudyState.INCONCLUSIVE,
                actor=self.place.actor,
                now=now,
                detail={"recommendation_hash": advice.hash},
            )


def asks_held_out(plan: TrialPlan) -> bool:
    """Whether the trial needs requests that no other trial saw."""
    return any(point.role is LoadRole.HELD_OUT for point in plan.points)


def gang_requests(plan: TrialPlan) -> int:
    """How many requests the trial wants for static batching and its control; 0 for none."""
    wanted = [point.requests for point in plan.points if point.role in STATIC_ROLES]
    return max(wanted, default=0)


def reference_answers(evidence: StudyEvidence) -> QualityPass | None:
    """The baseline's first quality pass; None while there is none."""
    for trial in evidence.trials:
        if trial.plan.key == BASELINE and trial.quality is not None:
            return next(iter(trial.quality.passes), None)
    return None


def remaining_time_s(evidence: StudyEvidence, key: str | None, share: float) -> float:
    """Expected seconds of the trials that are not over; of trial `key` the open `share`."""
    over = {trial.plan.key for trial in evidence.trials if trial.state in TRIAL_OVER}
    open_plans = [plan for plan in plan_preview(evidence) if plan.key not in over]
    return sum(plan.expected_s * (1.0 - share if plan.key == key else 1.0) for plan in open_plans)


def nothing_measured(evidence: StudyEvidence) -> str:
    """Why a study has no load point: the failures of its trials."""
    failures = [
        f"{trial.plan.title}: {trial.failure_kind} ({trial.failure_detail or 'no detail'})"
        for trial in evidence.trials
        if trial.failure_kind is not None
    ]
    return "no load point could be measured; " + ("; ".join(failures) or "no trial was run")
