"""The finalist against the baseline on held-out requests, and further starts of undecided ones."""

import math
from collections.abc import Iterable
from dataclasses import replace

from advisor.estimate import Estimate, Source
from advisor.measurement.protocol.pairs import NEUTRAL_BAND
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.arms import matched_ratio, objective_arms, objective_figure
from advisor.recommender.evidence import StudyEvidence, TrialEvidence, TrialPlan
from advisor.recommender.ranking import ranked
from advisor.recommender.recommendation import Confirmation, RankedConfig, VerdictKind
from advisor.recommender.screening import effect_of, testable
from advisor.recommender.space import (
    Wanted,
    again_trial,
    costed,
    goal_point,
    owed_points,
)
from advisor.recommender.verdict import kind_of
from advisor.serving import ServingConfig
from advisor.states import TRIAL_OVER
from advisor.techniques import Technique
from advisor.units import percent_text

FIRST, FINALIST, SECOND = "confirm-a1", "confirm-b", "confirm-a2"
CONFIRMATION = (FIRST, FINALIST, SECOND)
_SIDES = {FIRST: "A", FINALIST: "B", SECOND: "A"}


def finalist(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> RankedConfig | None:
    """The best measured change that keeps all limits; None where every one is decided to hurt.

    Where the baseline itself leads the ranking this is its nearest rival, as long as the rival
    may still be as good. What the confirmation itself measured does not move it.
    """
    before = tuple(trial for trial in evidence.trials if trial.plan.key not in CONFIRMATION)
    for item in ranked(replace(evidence, trials=before), techniques):
        measured = item.throughput_tokens_per_s.source is Source.MEASURED
        if item.feasible and measured and item.config != evidence.baseline:
            return item if kind_of(item.gain) is not VerdictKind.HURTS else None
    return None


def confirmation_trials(evidence: StudyEvidence, config: ServingConfig) -> tuple[TrialPlan, ...]:
    """Three starts: baseline, finalist twice, baseline. The first stands in for the anchor."""
    held_out = goal_point(evidence, 1, LoadRole.HELD_OUT)
    again = goal_point(evidence, 2, LoadRole.HELD_OUT)
    probe = goal_point(evidence, 1)
    owed = owed_points(evidence, {probe.concurrency: 1})
    wanted = (
        (FIRST, "baseline", evidence.baseline, (probe, *owed, held_out)),
        (FINALIST, "finalist", config, (held_out, again)),
        (SECOND, "baseline again", evidence.baseline, (held_out,)),
    )
    return tuple(
        costed(
            evidence,
            Wanted(
                key=key,
                title=f"Confirmation: {side}",
                technique=None,
                config=chosen,
                points=points,
            ),
        )
        for key, side, chosen, points in wanted
    )


def broken_off(evidence: StudyEvidence) -> TrialEvidence | None:
    """The trial of the confirmation that ended without a held-out point, if one did."""
    for trial in _trials(evidence).values():
        if trial.state in TRIAL_OVER and not _held_out([trial]):
            return trial
    return None


def again_trials(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[TrialPlan, ...]:
    """A second start of each variant whose effect is open for want of points, the widest first."""
    arms, goal = objective_arms(evidence), evidence.goal.concurrency
    started = {trial.plan.key for trial in evidence.trials}
    found: dict[str, tuple[float, TrialPlan]] = {}
    for technique in techniques:
        config = technique.variant(evidence.baseline)
        if config == evidence.baseline or not testable(evidence, technique):
            continue
        ratio = arms.ratio(config.hash, goal)
        if ratio is None or config.hash in found:
            continue
        gain = effect_of(evidence, technique, ratio)
        if kind_of(gain) is VerdictKind.UNKNOWN:
            found[config.hash] = (gain.high / gain.low, again_trial(evidence, technique))
    ordered = sorted(found.values(), key=lambda item: -item[0])
    return tuple(plan for _, plan in ordered if plan.key not in started)


def confirmation(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> Confirmation | None:
    """What the held-out requests say; None where no finalist was to be confirmed."""
    trials = _trials(evidence)
    config = _confirmed(evidence, techniques)
    if not evidence.options.confirm or config is None:
        return None
    sides = {
        side: _held_out([trial for key, trial in trials.items() if _SIDES[key] == side])
        for side in ("A", "B")
    }
    arms = objective_arms(evidence)
    gain = matched_ratio(sides["A"], sides["B"], objective_figure(evidence), arms.noise)
    study = arms.ratio(config.hash, evidence.goal.concurrency)
    replayed = [point.requests for points in sides.values() for point in points]
    return Confirmation(
        config_hash=config.hash,
        concurrency=evidence.goal.concurrency,
        requests=max(replayed, default=0),
        order=tuple(_SIDES[key] for key, trial in trials.items() for _ in _held_out([trial])),
        gain=gain,
        kind=VerdictKind.UNKNOWN if gain is None else kind_of(gain),
        confirmed=None if gain is None or study is None else agrees(gain, study),
        reason=_why_not(evidence) if gain is None else _summary(gain, study),
    )


def _confirmed(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> ServingConfig | None:
    begun = _trials(evidence).get(FINALIST)
    if begun is not None:
        return begun.plan.config
    best = finalist(evidence, techniques)
    return None if best is None else best.config


def agrees(gain: Estimate, study: Estimate) -> bool:
    """Whether both point the same way, or neither is worth acting on."""
    if abs(gain.value - 1) <= NEUTRAL_BAND and abs(study.value - 1) <= NEUTRAL_BAND:
        return True
    return math.log(gain.value) * math.log(study.value) > 0


def _trials(evidence: StudyEvidence) -> dict[str, TrialEvidence]:
    """The trials of the confirmation by key, in the order in which they ran."""
    found = {trial.plan.key: trial for trial in evidence.trials}
    return {key: found[key] for key in CONFIRMATION if key in found}


def _held_out(trials: Iterable[TrialEvidence]) -> list[LoadPoint]:
    return [
        point
        for trial in trials
        for point in trial.points
        if point.role is LoadRole.HELD_OUT and point.usable
    ]


def _summary(gain: Estimate, study: Estimate | None) -> str:
    seen = "" if study is None else f"; the study itself saw {percent_text(study.value)}"
    return f"{percent_text(gain.value)} on requests that no other load replayed{seen}"


def _why_not(evidence: StudyEvidence) -> str:
    stopped = broken_off(evidence)
    if stopped is None:
        return "its starts did not fit into the budget"
    flaws = sorted({flaw for point in stopped.points for flaw in point.flaws})
    said = stopped.failure_detail or stopped.failure_kind or "; ".join(flaws) or "no point"
    return f"{stopped.plan.title!r} {stopped.state.value}: {said}"
