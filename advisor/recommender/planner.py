"""What a study measures next, within its budget; and what it will measure, before it starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.measurement.protocol.pairs import NEUTRAL_BAND
from advisor.recommender.confirmation import (
    CONFIRMATION,
    FINALIST,
    FIRST,
    again_trials,
    broken_off,
    confirmation_trials,
    finalist,
)
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
    missing_quality,
    resumed,
    technique_trial,
)
from advisor.serving import ServingConfig
from advisor.states import TRIAL_OVER
from advisor.techniques import TECHNIQUES, Technique
from advisor.units import seconds_text

_CLOSING = (*CONFIRMATION, ANCHOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Nothing more to measure, and why."""

    reason: str


def next_step(
    evidence: StudyEvidence, *, techniques: tuple[Technique, ...] = TECHNIQUES
) -> TrialPlan | Finished:
    """The next trial, or an interrupted one with the points that miss, or the end.

    Baseline, one trial per technique, the combination of what improved, second starts of what is
    undecided; and at the end the finalist against the baseline on held-out requests, or the
    baseline once more: the noise between starts is assumed where that is not measured.
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
    step = next(_affordable(evidence, asked), None)
    return step or Finished(reason=_ending(evidence, asked))


def plan_preview(
    evidence: StudyEvidence, *, techniques: tuple[Technique, ...] = TECHNIQUES
) -> tuple[TrialPlan, ...]:
    """The trials still to come within the budget, in order, as far as can be said now.

    Which configuration will be the finalist follows from the measurements, else the forecast.
    """
    asked = asked_for(evidence, techniques)
    coming = [resumed(evidence, trial) for trial in evidence.trials if _open(trial)]
    if _find(evidence, BASELINE) is None:
        coming.append(baseline_trial(evidence, asked))
    return (*coming, *_affordable(evidence, asked, tuple(coming)))


def unmeasured(
    evidence: StudyEvidence, techniques: tuple[Technique, ...] = TECHNIQUES
) -> tuple[str, ...]:
    """Titles of the trials that the budget did not reach."""
    asked = asked_for(evidence, techniques)
    return tuple(trial.title for trial in _wanted(evidence, asked))


def _affordable(
    evidence: StudyEvidence,
    techniques: tuple[Technique, ...],
    coming: tuple[TrialPlan, ...] = (),
) -> Iterator[TrialPlan]:
    """Trials not begun that fit into what the trials `coming` first leave of the budget.

    A technique that is too slow for what is left does not keep the next one from its trial.
    """
    left_s = evidence.budget_s - evidence.spent_s - sum(trial.expected_s for trial in coming)
    tried = list(coming)
    closing_begun = any(_find(evidence, key) for key in _CLOSING)
    for trial in () if closing_begun else _wanted(evidence, techniques):
        if trial.expected_s > left_s:
            continue
        yield trial
        tried.append(trial)
        left_s -= trial.expected_s
    closing = _closing(evidence, techniques, tried, left_s)
    closing_s = sum(trial.expected_s for trial in closing)
    for trial in () if closing_begun else again_trials(evidence, techniques):
        if trial.expected_s + closing_s > left_s:
            break
        yield trial
        left_s -= trial.expected_s
    for trial in closing:
        if trial.expected_s > left_s:
            break
        yield trial
        left_s -= trial.expected_s


def _wanted(evidence: StudyEvidence, techniques: Sequence[Technique]) -> Iterator[TrialPlan]:
    """Trials that have not been begun: one per variant, then the combination."""
    begun = {trial.plan.key for trial in evidence.trials}
    known = {trial.plan.config.hash for trial in evidence.trials if trial.plan.technique}
    waiting = False
    for technique in techniques:
        plan = None if technique.key in begun else technique_trial(evidence, technique)
        if plan is not None and plan.config.hash not in known:
            known.add(plan.config.hash)
            waiting = True
            yield plan
    if waiting or COMBINATION in begun:
        return
    combination = combination_trial(evidence, techniques)
    if combination is not None:
        yield combination


def _closing(
    evidence: StudyEvidence,
    techniques: tuple[Technique, ...],
    coming: Sequence[TrialPlan],
    left_s: float,
) -> tuple[TrialPlan, ...]:
    """The end of the study: the confirmation where it fits as a whole, else the anchor."""
    if _find(evidence, ANCHOR) is not None:
        return ()
    first = _find(evidence, FIRST)
    config = _finalist(evidence, techniques, coming)
    if evidence.options.confirm and config is not None and broken_off(evidence) is None:
        trials = confirmation_trials(evidence, config)
        rest = tuple(trial for trial in trials if _find(evidence, trial.key) is None)
        if first is not None or sum(trial.expected_s for trial in rest) <= left_s:
            return rest
    varied = any(plan.config != evidence.baseline for plan in coming) or _varied(evidence)
    if varied and (first is None or not first.points):
        return (anchor_trial(evidence, techniques),)
    return ()


def _finalist(
    evidence: StudyEvidence, techniques: tuple[Technique, ...], coming: Sequence[TrialPlan]
) -> ServingConfig | None:
    """The configuration to confirm: fixed once begun, measured, or expected of trials to come."""
    begun = _find(evidence, FINALIST)
    if begun is not None:
        return begun.plan.config
    best = finalist(evidence, techniques)
    if best is not None:
        return best.config
    goal = evidence.goal.concurrency
    rates = {plan.config: dict(plan.predicted).get(goal) for plan in coming}
    baseline = _find(evidence, BASELINE)
    known = dict(baseline.plan.predicted).get(goal) if baseline else rates.get(evidence.baseline)
    if known is None:
        return None
    gains = {config: rate.value / known.value for config, rate in rates.items() if rate}
    likely = max(gains, key=lambda config: gains[config], default=None)
    return likely if likely is not None and gains[likely] > 1 + NEUTRAL_BAND else None


def _open(trial: TrialEvidence) -> bool:
    if trial.state in TRIAL_OVER:
        return False
    return bool(missing_points(trial)) or missing_quality(trial) is not None


def _find(evidence: StudyEvidence, key: str) -> TrialEvidence | None:
    return next((trial for trial in evidence.trials if trial.plan.key == key), None)


def _varied(evidence: StudyEvidence) -> bool:
    """Whether anything was measured that the baseline must be compared with."""
    return any(trial.points and trial.plan.config != evidence.baseline for trial in evidence.trials)


def _failure(trial: TrialEvidence) -> str:
    return trial.failure_kind or f"its trial is {trial.state.value}"


def _ending(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> str:
    left_out = unmeasured(evidence, techniques)
    if not left_out:
        return "every planned trial was run"
    return (
        f"the budget of {seconds_text(evidence.budget_s)} was reached before: {', '.join(left_out)}"
    )
