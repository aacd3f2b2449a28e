"""The trials of a study: which configurations, under which loads, how long each may take."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from advisor.measurement.protocol.pairs import MARGIN
from advisor.measurement.records import LoadRole
from advisor.recommender.arms import objective_arms, usable_points
from advisor.recommender.duration import (
    QUALITY_FACTOR,
    QUALITY_IN_FLIGHT,
    output_tokens,
    point_limit_s,
    probe_points,
    quality_limit_s,
    rate,
    trial_s,
)
from advisor.recommender.evidence import (
    PointPlan,
    QualityPlan,
    StudyEvidence,
    TrialEvidence,
    TrialPlan,
)
from advisor.recommender.ladder import gang_points, ladder_points, open_points, requests_at
from advisor.recommender.quality import spoiled
from advisor.recommender.screening import loads_of, predicted_throughput, testable
from advisor.serving import LeverValue, ServingConfig
from advisor.techniques import Technique

BASELINE = "baseline"
ANCHOR = "anchor"
COMBINATION = "combination"
AGAIN = "again-"
# A slow configuration is measured at a lower load, with as many requests as are then in flight.
LOWER_LOAD = 2
# The baseline gives up rungs of its ladder that nobody needs rather than take more of the budget.
BASELINE_SHARE = 0.6
MOST_PROMPTS = 16
LEAST_PROMPTS = 3
ANSWER_TOKENS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A trial before it is costed."""

    key: str
    title: str
    technique: str | None
    config: ServingConfig
    points: tuple[PointPlan, ...]
    quality: QualityPlan | None = None


def baseline_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan:
    """The unchanged configuration: the goal's load twice, apart, and between them the ladder.

    Then what only some techniques need: lower loads of those that are too slow, gangs, and answers
    to compare with, given twice.
    """
    asked = [technique for technique in techniques if testable(evidence, technique)]
    bearable = [_bearable(evidence, technique) for technique in asked if technique.on]
    needed = {load for loads in bearable for load, requests in loads.items() if requests is None}
    lower = {
        load: requests
        for loads in bearable
        for load, requests in loads.items()
        if requests is not None
    }
    rungs = ladder_points(evidence, needed)
    repeats = {point.concurrency: point.repeat for point in rungs}
    return _affordable(
        evidence,
        Wanted(
            key=BASELINE,
            title="Baseline",
            technique=None,
            config=evidence.baseline,
            points=(
                goal_point(evidence, 1),
                *rungs,
                goal_point(evidence, 2),
                *(
                    PointPlan(
                        concurrency=load, repeat=repeats.get(load, 0) + 1, requests=lower[load]
                    )
                    for load in sorted(lower)
                ),
                *gang_points(evidence, asked),
            ),
            quality=_quality(evidence, evidence.baseline, asked, passes=2),
        ),
    )


def _affordable(evidence: StudyEvidence, wanted: Wanted) -> TrialPlan:
    """The trial without its dearest optional points, as far as it takes too much otherwise."""
    plan = costed(evidence, wanted)
    while plan.expected_s > evidence.budget_s * BASELINE_SHARE:
        optional = [point for point in wanted.points if point.optional]
        if not optional:
            break
        dearest = max(
            optional, key=lambda p: p.requests / rate(evidence, wanted.config, p.concurrency)
        )
        wanted = replace(wanted, points=tuple(p for p in wanted.points if p is not dearest))
        plan = costed(evidence, wanted)
    return plan


def anchor_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan:
    """A second start of the baseline at the end: restart noise, drift, and what it still lacks."""
    goal = evidence.goal.concurrency
    small = {
        load
        for technique in techniques
        if technique.on and testable(evidence, technique)
        for load in loads_of(evidence, technique)
    }
    loads = (goal, *sorted(small - {goal}))
    points = tuple(
        PointPlan(concurrency=load, repeat=1, requests=requests_at(evidence, load))
        for load in loads
    )
    return costed(
        evidence,
        Wanted(
            key=ANCHOR,
            title="Baseline, started again",
            technique=None,
            config=evidence.baseline,
            points=(*points, *owed_points(evidence, dict.fromkeys(loads, 1))),
        ),
    )


def owed_points(evidence: StudyEvidence, repeats: dict[int, int]) -> tuple[PointPlan, ...]:
    """Loads measured on other configurations only, after so many repeats of some loads.

    A configuration too slow for all requests replayed the first few; so must the baseline.
    """
    mine = {(p.concurrency, p.requests) for p in probe_points(evidence, evidence.baseline)}
    others = {(point.concurrency, point.requests) for _, point in usable_points(evidence)}
    taken = dict(repeats)
    points = []
    for load, requests in sorted(others - mine):
        taken[load] = taken.get(load, 0) + 1
        points.append(PointPlan(concurrency=load, repeat=taken[load], requests=requests))
    return tuple(points)


def technique_trial(evidence: StudyEvidence, technique: Technique) -> TrialPlan | None:
    """The baseline with one technique toggled; None where that could show nothing new."""
    config = technique.variant(evidence.baseline)
    if config == evidence.baseline or not testable(evidence, technique):
        return None
    return costed(
        evidence,
        Wanted(
            key=technique.key,
            title=variant_title(technique, evidence.baseline),
            technique=technique.key,
            config=config,
            points=tuple(
                PointPlan(
                    concurrency=load, repeat=1, requests=requests or requests_at(evidence, load)
                )
                for load, requests in _bearable(evidence, technique).items()
            ),
            quality=_quality(evidence, config, [technique], passes=1),
        ),
    )


def again_trial(evidence: StudyEvidence, technique: Technique) -> TrialPlan:
    """A second start of a technique's variant, twice at the goal's load."""
    return costed(
        evidence,
        Wanted(
            key=f"{AGAIN}{technique.key}",
            title=f"{variant_title(technique, evidence.baseline)}, started again",
            technique=technique.key,
            config=technique.variant(evidence.baseline),
            points=(goal_point(evidence, 1), goal_point(evidence, 2)),
        ),
    )


def improvements(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[Technique, ...]:
    """Techniques to combine: their toggling improved on the baseline at the goal's load.

    The best first; of those that set the same lever only the best.
    """
    arms, goal = objective_arms(evidence), evidence.goal.concurrency
    levered = [item for item in techniques if item.on and testable(evidence, item)]
    ratios = [
        (ratio.value, technique)
        for technique in levered
        if (ratio := arms.ratio(technique.variant(evidence.baseline).hash, goal)) is not None
        and ratio.low > 1 + MARGIN
        and spoiled(evidence, technique.variant(evidence.baseline), levered) is None
    ]
    chosen: list[Technique] = []
    for _, technique in sorted(ratios, key=lambda item: -item[0]):
        if all(technique.on.keys().isdisjoint(other.on) for other in chosen):
            chosen.append(technique)
    return tuple(item for item in levered if item in chosen)


def combination_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan | None:
    """All improving changes together; None when fewer than two improve or nothing new arises."""
    improving = improvements(evidence, techniques)
    if len(improving) <= 1:
        return None
    changes: dict[str, LeverValue] = {}
    for technique in improving:
        changes.update(technique.toggle(evidence.baseline))
    return costed(
        evidence,
        Wanted(
            key=COMBINATION,
            title=", ".join(variant_title(item, evidence.baseline) for item in improving),
            technique=None,
            config=evidence.baseline.changed(changes),
            points=(goal_point(evidence, 1),),
        ),
    )


def variant_title(technique: Technique, baseline: ServingConfig) -> str:
    """How a trial that toggles the technique is called."""
    return f"{technique.title} {'off' if technique.present(baseline) else 'on'}"


def goal_point(evidence: StudyEvidence, repeat: int, role: LoadRole = LoadRole.PROBE) -> PointPlan:
    """The goal's load."""
    goal = evidence.goal.concurrency
    return PointPlan(
        concurrency=goal, repeat=repeat, requests=requests_at(evidence, goal), role=role
    )


def missing_points(trial: TrialEvidence) -> tuple[PointPlan, ...]:
    """Planned load points that were not measured yet; a finished one is never measured again."""
    return open_points(trial.plan, trial.points)


def missing_quality(trial: TrialEvidence) -> QualityPlan | None:
    """The quality passes that were not made yet."""
    plan = trial.plan.quality
    made = 0 if trial.quality is None else len(trial.quality.passes)
    if plan is None or made >= plan.passes:
        return None
    return replace(plan, passes=plan.passes - made)


def resumed(evidence: StudyEvidence, trial: TrialEvidence) -> TrialPlan:
    """The plan of a trial that was interrupted, with the points and passes that miss."""
    points, quality = missing_points(trial), missing_quality(trial)
    expected_s = trial_s(evidence, trial.plan.config, points, quality)
    return replace(trial.plan, points=points, quality=quality, expected_s=expected_s)


def costed(evidence: StudyEvidence, wanted: Wanted) -> TrialPlan:
    """The plan with what it is expected to take and to show."""
    loads = sorted({p.concurrency for p in wanted.points if p.role is LoadRole.PROBE})
    estimates = ((load, predicted_throughput(evidence, wanted.config, load)) for load in loads)
    return TrialPlan(
        key=wanted.key,
        title=wanted.title,
        technique=wanted.technique,
        config=wanted.config,
        points=wanted.points,
        expected_s=trial_s(evidence, wanted.config, wanted.points, wanted.quality),
        predicted=tuple((load, item) for load, item in estimates if item is not None),
        quality=wanted.quality,
    )


def _bearable(evidence: StudyEvidence, technique: Technique) -> dict[int, int | None]:
    """Loads of a technique's trial with their requests (None: as asked).

    Where a load would eat too much of the budget, a lower one takes its place: a few requests at
    once, which still tells whether a configuration is many times slower.
    """
    config = technique.variant(evidence.baseline)
    loads: dict[int, int | None] = {}
    for load in loads_of(evidence, technique):
        tokens = requests_at(evidence, load) * output_tokens(evidence)
        slow = tokens / rate(evidence, config, load) > point_limit_s(evidence)
        if slow and load > LOWER_LOAD and config != evidence.baseline:
            loads[LOWER_LOAD] = LOWER_LOAD
        else:
            loads.setdefault(load, None)
    return loads


def _quality(
    evidence: StudyEvidence,
    config: ServingConfig,
    techniques: Sequence[Technique],
    *,
    passes: int,
) -> QualityPlan | None:
    """Prompts to answer where a technique changes outputs; a slow configuration answers fewer."""
    if not any(technique.changes_outputs for technique in techniques):
        return None
    pace = rate(evidence, config, QUALITY_IN_FLIGHT)
    prompt_s = QUALITY_FACTOR * ANSWER_TOKENS / pace
    affordable = math.floor(quality_limit_s(evidence) / prompt_s)
    most = min(MOST_PROMPTS, evidence.requests_per_point)
    return QualityPlan(
        requests=max(LEAST_PROMPTS, min(most, affordable)),
        max_tokens=ANSWER_TOKENS,
        passes=passes,
    )
