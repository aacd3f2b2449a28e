"""What a deployment serves: the target's own model, or the quantized one that was measured."""

from dataclasses import dataclass
from threading import Event

from sqlalchemy.orm import Session

from advisor.errors import InvalidInput
from advisor.serving import WeightQuantization
from db import engines, purges, recommendations, runs, studies, targets, trials, workloads
from db.session import transaction
from db.tables import DeploymentRow, StudyRow, TargetRow
from probes.quantizer import Checkpoint, checkpoint_for
from probes.samples import calibration_of
from probes.targets import folder_here, refuse_changed
from probes.vllm.server import StartPlan
from probes.workplace import Workplace


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedStart:
    """A start that serves a deployment; `checkpoint_digest` names its quantized weights."""

    plan: StartPlan
    checkpoint_digest: str | None


def deployed_start(place: Workplace, row: DeploymentRow, cancelled: Event) -> DeployedStart:
    """The start of a deployment, with the files that its study measured.

    A quantized checkpoint that is not on this machine any more is made again from the study's
    workload. Raises `InvalidInput` when model or checkpoint are not the measured ones, and what
    `checkpoint_for` raises.
    """
    with transaction(place.sessions) as session:
        target = targets.one(session, row.target_id, None)
        engine = engines.on_host(session, target.engine_id, place.settings.host_name)
    folder, checkpoint = folder_here(target, place.settings.demo_model), None
    quantization = row.config.levers.quantization
    if quantization is None:
        refuse_changed(folder, target.model_digest)
    else:
        checkpoint = _measured_checkpoint(
            place, row, target, quantization=quantization, cancelled=cancelled
        )
        folder = checkpoint.path
    return DeployedStart(
        plan=place.start_plan(
            engine, row.config, model_path=str(folder), served_model_name=row.name
        ),
        checkpoint_digest=None if checkpoint is None else checkpoint.digest,
    )


def _measured_checkpoint(
    place: Workplace,
    row: DeploymentRow,
    target: TargetRow,
    *,
    quantization: WeightQuantization,
    cancelled: Event,
) -> Checkpoint:
    with transaction(place.sessions) as session:
        recommendation = recommendations.one(session, row.recommendation_id, None)
        study = studies.one(session, recommendation.study_id, None)
        workload_digest = workloads.one(session, study.workload_id, None).digest
        measured = _measured_digests(session, study, quantization)

    told: set[str] = set()

    def tell(phase: str, _elapsed_s: float | None) -> None:
        if phase not in told:
            told.add(phase)
            place.event("deployment", row.id, "progress", {"phase": phase})

    found = checkpoint_for(
        place,
        target=target,
        quantization=quantization,
        workload_digest=workload_digest,
        calibration=()
        if quantization.algorithm == purges.NEEDS_NO_DATA
        else calibration_of(place, study, target),
        seed=study.seed,
        cancelled=cancelled,
        on_progress=tell,
    )
    if measured and found.digest not in measured:
        raise InvalidInput(
            "quantization",
            "the weights made here are not the ones that the study measured; study again",
        )
    return found


def _measured_digests(
    session: Session, study: StudyRow, quantization: WeightQuantization
) -> set[str]:
    """Checkpoints that the study's engines served under this quantization."""
    return {
        run.facts.checkpoint_digest
        for trial in trials.of_study(session, study.id)
        if trial.plan.config.levers.quantization == quantization
        for run in runs.of_trial(session, trial.id)
        if run.facts is not None and run.facts.checkpoint_digest is not None
    }
