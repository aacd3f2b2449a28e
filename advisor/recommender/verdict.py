"""What each technique does on this traffic: a ratio with its interval, and its kind."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from advisor.estimate import Estimate
from advisor.goal import Objective
from advisor.measurement.effect import TookEffect, took_effect
from advisor.measurement.protocol.pairs import change_of
from advisor.measurement.records import AcceptanceFigures, LoadRole
from advisor.recommender.arms import (
    Arms,
    class_arms,
    full_throughput,
    matched_ratio,
    objective_arms,
    throughput_arms,
    usable_points,
)
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.explain import sentence
from advisor.recommender.quality import quality_verdict
from advisor.recommender.recommendation import Effect, Verdict, VerdictKind
from advisor.recommender.screening import (
    Worth,
    effect_of,
    forecast,
    lacking,
    loads_of,
    not_applicable,
    testable,
    trial_of,
)
from advisor.states import TrialState
from advisor.techniques import Technique

ALL_REQUESTS = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The measurements of a study, read once for all techniques."""

    evidence: StudyEvidence
    objective: Arms
    throughput: Arms
    classes: Mapping[str, Arms]


def comparison(evidence: StudyEvidence) -> Comparison:
    """The study's usable points, by the goal's objective and by request class."""
    return Comparison(
        evidence=evidence,
        objective=objective_arms(evidence),
        throughput=throughput_arms(evidence),
        classes=class_arms(evidence),
    )


def kind_of(gain: Estimate) -> VerdictKind:
    """Helps, hurts, neutral or unknown: the protocol's own rule (`pairs.change_of`)."""
    return VerdictKind(change_of(gain).value)


def verdicts(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[Verdict, ...]:
    """One verdict per technique, in the order of the table."""
    compared = comparison(evidence)
    return tuple(verdict(compared, technique) for technique in techniques)


def verdict(compared: Comparison, technique: Technique) -> Verdict:
    """The technique's effect at every load it was meant to be measured at, the deciding first."""
    evidence = compared.evidence
    effects = tuple(effect(compared, technique, load) for load in _loads(evidence, technique))
    acceptance = _acceptance(evidence, technique)
    idle = [figures.reason for figures in acceptance.values() if figures.reason is not None]
    submitted = technique.static_slots is not None
    return Verdict(
        technique=technique.key,
        title=technique.title,
        kind=effects[0].kind,
        sentence=sentence(
            technique,
            effects,
            objective=Objective.THROUGHPUT if submitted else evidence.goal.objective,
            idle=f"it never engaged: {idle[0]}" if idle else None,
            quality=_quality_text(evidence, technique),
        ),
        effects=effects,
        acceptance=acceptance,
    )


def _loads(evidence: StudyEvidence, technique: Technique) -> tuple[int, ...]:
    """Wanted loads and those measured instead; first the goal's, or what was measured for it."""
    wanted = loads_of(evidence, technique)
    trial = trial_of(evidence, technique)
    if trial is None or technique.static_slots is not None:
        return wanted
    planned = [p.concurrency for p in trial.plan.points if p.role is LoadRole.PROBE]
    loads = (*wanted, *dict.fromkeys(load for load in planned if load not in wanted))
    if planned and evidence.goal.concurrency not in planned:
        return tuple(sorted(loads, key=lambda load: load not in planned))
    return loads


def _quality_text(evidence: StudyEvidence, technique: Technique) -> str | None:
    if not technique.changes_outputs or not testable(evidence, technique):
        return None
    found = quality_verdict(evidence, technique)
    return None if found.figures is None else found.reason


def effect(compared: Comparison, technique: Technique, concurrency: int) -> Effect:
    """Forecast beside measurement at one load; without a measurement, the reason."""
    evidence = compared.evidence
    beforehand = forecast(evidence, technique, concurrency)
    if beforehand.worth is Worth.NOT_APPLICABLE:
        return Effect(
            concurrency=concurrency,
            kind=VerdictKind.NOT_APPLICABLE,
            predicted=None,
            measured=None,
            reason=not_applicable(evidence, technique),
        )
    ratio = _ratio(compared, technique, concurrency)
    if ratio is None or not testable(evidence, technique):
        return Effect(
            concurrency=concurrency,
            kind=VerdictKind.UNKNOWN,
            predicted=beforehand.predicted,
            measured=None,
            reason=lacking(technique, evidence.traffic)
            or _why_unmeasured(evidence, technique, concurrency),
        )
    gain = effect_of(evidence, technique, ratio)
    idle = _without_effect(evidence, technique, gain)
    if idle is not None:
        return Effect(
            concurrency=concurrency,
            kind=VerdictKind.NOT_APPLICABLE,
            predicted=beforehand.predicted,
            measured=None,
            reason=idle,
        )
    kind = kind_of(gain)
    return Effect(
        concurrency=concurrency,
        kind=kind,
        predicted=beforehand.predicted,
        measured=gain,
        by_class=_by_class(compared, technique, concurrency),
        reason=_why_open(gain) if kind is VerdictKind.UNKNOWN else None,
    )


def _without_effect(evidence: StudyEvidence, technique: Technique, gain: Estimate) -> str | None:
    """That the engine took the setting and ran as before; None where it did not, or cannot tell."""
    baselines = [t for t in evidence.trials if t.plan.config == evidence.baseline]
    before = next((trial.facts for trial in baselines if trial.facts is not None), None)
    trial = trial_of(evidence, technique)
    if not technique.shows_in or before is None or trial is None or trial.facts is None:
        return None
    found = took_effect(technique.shows_in, before=before, after=trial.facts, gain=gain)
    return f"it {found.took}: {found.reason}" if found.took is TookEffect.NO else None


def _ratio(compared: Comparison, technique: Technique, concurrency: int) -> Estimate | None:
    """The variant over the baseline; for a submission, the closed loop over the gangs."""
    evidence = compared.evidence
    if technique.static_slots is None:
        variant = technique.variant(evidence.baseline)
        return compared.objective.ratio(variant.hash, concurrency)
    gangs, loop = (
        [
            point
            for trial, point in usable_points(evidence, role)
            if trial.plan.config == evidence.baseline and point.concurrency == concurrency
        ]
        for role in (LoadRole.STATIC, LoadRole.CONTROL)
    )
    return matched_ratio(gangs, loop, full_throughput, compared.throughput.noise)


def _why_open(gain: Estimate) -> str:
    return (
        f"the interval {gain.low:.3f} to {gain.high:.3f} holds both no effect and one"
        " worth acting on; more repeats would narrow it"
    )


def _by_class(compared: Comparison, technique: Technique, concurrency: int) -> dict[str, Estimate]:
    if technique.static_slots is not None:
        return {}
    variant = technique.variant(compared.evidence.baseline).hash
    ratios = {label: arms.ratio(variant, concurrency) for label, arms in compared.classes.items()}
    return {
        label: effect_of(compared.evidence, technique, ratio)
        for label, ratio in ratios.items()
        if ratio is not None
    }


def _why_unmeasured(evidence: StudyEvidence, technique: Technique, concurrency: int) -> str:
    """The first thing that is missing for a ratio at this load."""
    trial = trial_of(evidence, technique)
    if trial is None:
        return "no trial of it was run within the budget"
    if trial.state in {TrialState.FAILED, TrialState.SKIPPED}:
        detail = f" ({trial.failure_kind})" if trial.failure_kind else ""
        return f"its trial {trial.state.value}{detail}"
    if technique.static_slots is not None:
        sides = [("its", [trial], LoadRole.STATIC), ("its", [trial], LoadRole.CONTROL)]
    else:
        baselines = [t for t in evidence.trials if t.plan.config == evidence.baseline]
        sides = [
            ("its", [trial], LoadRole.PROBE),
            ("the baseline's", baselines, LoadRole.PROBE),
        ]
        if all(point.concurrency != concurrency for point in trial.plan.points):
            return "it is too slow there for the budget and was measured at a lower load"
    for side, trials, role in sides:
        points = [
            point
            for found in trials
            for point in found.points
            if point.role is role and point.concurrency == concurrency
        ]
        if not points:
            return f"{side} load point at {concurrency} in flight was not measured"
        if not any(point.usable for point in points):
            flaws = sorted({flaw for point in points for flaw in point.flaws})
            return f"{side} load points are unusable: {'; '.join(flaws)}"
    return "its load points hold no figure that can be compared"


def _acceptance(evidence: StudyEvidence, technique: Technique) -> dict[str, AcceptanceFigures]:
    """Acceptance over all requests, from the usable point that drafted most."""
    variant = technique.variant(evidence.baseline)
    found = [
        point.acceptance
        for trial, point in usable_points(evidence)
        if trial.plan.technique is not None
        and trial.plan.config == variant
        and point.acceptance is not None
    ]
    return {ALL_REQUESTS: max(found, key=lambda figures: figures.drafts)} if found else {}
