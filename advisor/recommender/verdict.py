"""What each technique does on this traffic: a ratio with its interval, and its kind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from advisor.estimate import Estimate
from advisor.measurement.records import AcceptanceFigures
from advisor.recommender.arms import Arms, class_arms, objective_arms, usable_points
from advisor.recommender.evidence import StudyEvidence, TrialEvidence
from advisor.recommender.explain import sentence
from advisor.recommender.recommendation import Effect, Verdict, VerdictKind
from advisor.recommender.screening import effect_of, forecast, lacking, loads_of
from advisor.states import TrialState
from advisor.techniques import Technique

# An interval must clear 1 by this much: a bias common to all points of one start, such as where
# the operating system placed its memory, is not seen by repeats within the start.
MARGIN = 0.015
# Less than this either way is not worth an override to anybody who must keep it.
NEUTRAL_BAND = 0.05
ALL_REQUESTS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measurements of a study, read once for all techniques."""

    evidence: StudyEvidence
    objective: Arms
    classes: Mapping[str, Arms]


def comparison(evidence: StudyEvidence) -> Comparison:
    """The study's usable points, by the goal's objective and by request class."""
    return Comparison(
        evidence=evidence, objective=objective_arms(evidence), classes=class_arms(evidence)
    )


def kind_of(gain: Estimate) -> VerdictKind:
    """Helps or hurts when the interval clears 1 by the margin, neutral inside the band."""
    if gain.low > 1 + MARGIN:
        return VerdictKind.HELPS
    if gain.high < 1 - MARGIN:
        return VerdictKind.HURTS
    if gain.low >= 1 - NEUTRAL_BAND and gain.high <= 1 + NEUTRAL_BAND:
        return VerdictKind.NEUTRAL
    return VerdictKind.UNKNOWN


def verdicts(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[Verdict, ...]:
    """One verdict per technique, in the order of the table."""
    compared = comparison(evidence)
    return tuple(verdict(compared, technique) for technique in techniques)


def verdict(compared: Comparison, technique: Technique) -> Verdict:
    """The technique's effect at every load it was meant to be measured at, the deciding first."""
    evidence = compared.evidence
    wanted = loads_of(evidence, technique)
    trial = trial_of(evidence, technique)
    planned = () if trial is None else tuple(point.concurrency for point in trial.plan.points)
    loads = (*wanted, *dict.fromkeys(load for load in planned if load not in wanted))
    if planned and evidence.goal.concurrency not in planned:
        loads = tuple(sorted(loads, key=lambda load: load not in planned))
    effects = tuple(effect(compared, technique, concurrency) for concurrency in loads)
    acceptance = _acceptance(evidence, technique)
    idle = [figures.reason for figures in acceptance.values() if figures.reason is not None]
    return Verdict(
        technique=technique.key,
        title=technique.title,
        kind=effects[0].kind,
        sentence=sentence(
            technique,
            effects,
            objective=evidence.goal.objective,
            idle=f"it never engaged: {idle[0]}" if idle else None,
        ),
        effects=effects,
        acceptance=acceptance,
    )


def not_applicable(evidence: StudyEvidence, technique: Technique) -> str | None:
    """Why the technique has nothing to do at the goal's load; None when it has."""
    least = technique.least_concurrency
    if evidence.goal.concurrency < least:
        return f"it needs at least {least} requests in flight to do anything"
    return None


def effect(compared: Comparison, technique: Technique, concurrency: int) -> Effect:
    """Forecast beside measurement at one load; without a measurement, the reason."""
    evidence = compared.evidence
    beforehand = forecast(evidence, technique, concurrency)
    useless = not_applicable(evidence, technique)
    if useless is not None:
        return Effect(
            concurrency=concurrency,
            kind=VerdictKind.NOT_APPLICABLE,
            predicted=None,
            measured=None,
            reason=useless,
        )
    variant = technique.variant(evidence.baseline).hash
    ratio = compared.objective.ratio(variant, concurrency)
    missing = lacking(technique, evidence.traffic)
    if ratio is None or missing is not None:
        return Effect(
            concurrency=concurrency,
            kind=VerdictKind.UNKNOWN,
            predicted=beforehand.predicted,
            measured=None,
            reason=missing or _why_unmeasured(evidence, technique, concurrency),
        )
    gain = effect_of(evidence, technique, ratio)
    kind = kind_of(gain)
    return Effect(
        concurrency=concurrency,
        kind=kind,
        predicted=beforehand.predicted,
        measured=gain,
        by_class=_by_class(compared, technique, variant, concurrency),
        reason=_why_open(gain) if kind is VerdictKind.UNKNOWN else None,
    )


def _why_open(gain: Estimate) -> str:
    return (
        f"the interval {gain.low:.3f} to {gain.high:.3f} holds both no effect and one"
        " worth acting on; more repeats would narrow it"
    )


def _by_class(
    compared: Comparison, technique: Technique, variant: str, concurrency: int
) -> dict[str, Estimate]:
    ratios = {label: arms.ratio(variant, concurrency) for label, arms in compared.classes.items()}
    return {
        label: effect_of(compared.evidence, technique, ratio)
        for label, ratio in ratios.items()
        if ratio is not None
    }


def trial_of(evidence: StudyEvidence, technique: Technique) -> TrialEvidence | None:
    """The trial that toggled this technique, if one was planned."""
    for trial in evidence.trials:
        if trial.plan.technique == technique.key:
            return trial
    return None


def _why_unmeasured(evidence: StudyEvidence, technique: Technique, concurrency: int) -> str:
    """The first thing that is missing for a ratio at this load."""
    trial = trial_of(evidence, technique)
    if trial is None:
        return "no trial of it was run within the budget"
    if trial.state in {TrialState.FAILED, TrialState.SKIPPED}:
        detail = f" ({trial.failure_kind})" if trial.failure_kind else ""
        return f"its trial {trial.state.value}{detail}"
    if all(point.concurrency != concurrency for point in trial.plan.points):
        return "it is too slow there for the budget and was measured at a lower load"
    for side, found in (
        ("its", [trial]),
        ("the baseline's", [t for t in evidence.trials if t.plan.config == evidence.baseline]),
    ):
        points = [p for item in found for p in item.points if p.concurrency == concurrency]
        if not points:
            return f"{side} load point at {concurrency} in flight was not measured"
        if not any(point.usable for point in points):
            flaws = sorted({flaw for point in points for flaw in point.flaws})
            return f"{side} load points are unusable: {'; '.join(flaws)}"
    return "its load points hold no figure that can be compared"


def _acceptance(evidence: StudyEvidence, technique: Technique) -> dict[str, AcceptanceFigures]:
    """Acceptance over all requests, from the usable point that drafted most."""
    found = [
        point.acceptance
        for trial, point in usable_points(evidence)
        if trial.plan.technique == technique.key and point.acceptance is not None
    ]
    return {ALL_REQUESTS: max(found, key=lambda figures: figures.drafts)} if found else {}
