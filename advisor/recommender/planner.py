"""What a study measures next, within its budget; and what it will measure, before it starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.recommender.evidence import StudyEvidence, TrialEvidence, TrialPlan
from advisor.recommender.screening import asked_for
from advisor.recommender.space import (
    ANCHOR,
    BASELINE,
    COMBINATION,
    anchor_trial,
    baseline_trial,
    combination_trial,
    missing_points,
    resumed,
    technique_trial,
)
from advisor.states import TRIAL_OVER
from advisor.techniques import TECHNIQUES, Technique
from advisor.units import seconds_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Nothing more to measure, and why."""

    reason: str


def next_step(
    evidence: StudyEvidence, *, techniques: tuple[Technique, ...] = TECHNIQUES
) -> TrialPlan | Finished:
    """The next trial, or an interrupted one with the points that miss, or the end.

    Baseline, one trial per technique, the combination of what improved, and, if the budget leaves
    room, the baseline once more: the noise between starts is assumed where that is not measured.
    """
    opened = next((trial for trial in evidence.trials if _open(trial)), None)
    if opened is not None:
        return resumed(evidence, opened)
    asked = asked_for(evidence, techniques)
    baseline = _find(evidence, BASELINE)
    if baseline is None:
        return baseline_trial(evidence, asked)
    if not baseline.points:
        return Finished(reason=f"the baseline was not measured: {_failure(baseline)}")
    return _after_baseline(evidence, asked)


def _after_baseline(
    evidence: StudyEvidence, techniques: tuple[Technique, ...]
) -> TrialPlan | Finished:
    if _find(evidence, ANCHOR) is None:
        wanted = next(_wanted(evidence, techniques), None)
        if wanted and wanted.expected_s <= _left_s(evidence):
            return wanted
        anchor = anchor_trial(evidence, techniques)
        if anchor.expected_s <= _left_s(evidence) and _varied(evidence):
            return anchor
    return Finished(reason=_ending(evidence, techniques))


def plan_preview(
    evidence: StudyEvidence, *, techniques: tuple[Technique, ...] = TECHNIQUES
) -> tuple[TrialPlan, ...]:
    """The trials still to come within the budget, in order, as far as results cannot change it."""
    asked = asked_for(evidence, techniques)
    coming = [resumed(evidence, trial) for trial in evidence.trials if _open(trial)]
    if _find(evidence, BASELINE) is None:
        coming.append(baseline_trial(evidence, asked))
    if _find(evidence, ANCHOR) is not None:
        return tuple(coming)
    anchor = anchor_trial(evidence, asked)
    left_s = _left_s(evidence) - sum(trial.expected_s for trial in coming)
    for trial in _wanted(evidence, asked):
        if trial.expected_s > left_s:
            break
        coming.append(trial)
        left_s -= trial.expected_s
    if anchor.expected_s <= left_s:
        coming.append(anchor)
    return tuple(coming)


def unmeasured(
    evidence: StudyEvidence, techniques: tuple[Technique, ...] = TECHNIQUES
) -> tuple[str, ...]:
    """Titles of the trials that the budget did not reach."""
    asked = asked_for(evidence, techniques)
    return tuple(trial.title for trial in _wanted(evidence, asked))


def _wanted(evidence: StudyEvidence, techniques: Sequence[Technique]) -> Iterator[TrialPlan]:
    """Trials that have not been begun, without baseline and anchor."""
    begun = {trial.plan.key for trial in evidence.trials}
    waiting = [technique for technique in techniques if technique.key not in begun]
    plans = (technique_trial(evidence, technique) for technique in waiting)
    last = None
    for plan in plans:
        if plan is not None:
            last = plan
            yield plan
    if last is None and COMBINATION not in begun:
        combination = combination_trial(evidence, techniques)
        if combination is not None:
            yield combination


def _open(trial: TrialEvidence) -> bool:
    return trial.state not in TRIAL_OVER and bool(missing_points(trial))


def _find(evidence: StudyEvidence, key: str) -> TrialEvidence | None:
    return next((trial for trial in evidence.trials if trial.plan.key == key), None)


def _varied(evidence: StudyEvidence) -> bool:
    """Whether anything was measured that the baseline must be compared with."""
    return any(trial.points and trial.plan.config != evidence.baseline for trial in evidence.trials)


def _left_s(evidence: StudyEvidence) -> float:
    return evidence.budget_s - evidence.spent_s


def _failure(trial: TrialEvidence) -> str:
    return trial.failure_kind or f"its trial is {trial.state.value}"


def _ending(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> str:
    left_out = unmeasured(evidence, techniques)
    if not left_out:
        return "every planned trial was run"
    return (
        f"the budget of {seconds_text(evidence.budget_s)} was reached before: {', '.join(left_out)}"
    )
