"""The trials of a study: which configurations, under which loads, how long each may take."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from advisor.measurement.records import LoadPoint
from advisor.recommender.arms import objective_arms
from advisor.recommender.evidence import PointPlan, StudyEvidence, TrialEvidence, TrialPlan
from advisor.recommender.screening import lacking, loads_of, predicted_throughput, shape_of
from advisor.recommender.verdict import MARGIN, not_applicable
from advisor.roofline.efficiency import assumed_start_s
from advisor.serving import LeverValue, ServingConfig
from advisor.techniques import Technique

BASELINE = "baseline"
ANCHOR = "anchor"
COMBINATION = "combination"
# A small load is slow per request and measures pace rather than queueing: fewer requests do.
SMALL_LOAD_SHARE = 1 / 3
LEAST_REQUESTS = 6
# No load point may eat more of the budget than this; a slow configuration is measured at a lower
# load, with as many requests as are then in flight.
POINT_SHARE = 0.18
LEAST_POINT_S = 20.0
LOWER_LOAD = 2
# Warm-up requests, cache resets and stopping, beside start and load.
TRIAL_EXTRA_S = 10.0
# Only for planning, where neither the upload nor a measurement tells.
ASSUMED_OUTPUT_TOKENS = 128.0
ASSUMED_TOKENS_PER_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A trial before it is costed.

    `loads` are (requests in flight, repeat, requests); None requests: as many as time allows.
    """

    key: str
    title: str
    technique: str | None
    config: ServingConfig
    loads: tuple[tuple[int, int, int | None], ...]


def baseline_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan:
    """The unchanged configuration: the goal's load twice, apart, and every technique's load.

    A technique too slow for those loads is measured at a lower one, and so is the baseline.
    """
    techniques = tuple(techniques)
    goal = evidence.goal.concurrency
    small = _other_loads(evidence, techniques)
    lower = {
        load: requests
        for technique in techniques
        if not (not_applicable(evidence, technique) or lacking(technique, evidence.traffic))
        for load, requests in _bearable(evidence, technique).items()
        if load not in {goal, *small}
    }
    loads = (
        (goal, 1, None),
        *((other, 1, None) for other in small),
        (goal, 2, None),
        *((load, 1, requests) for load, requests in sorted(lower.items())),
    )
    return _costed(
        evidence,
        _Wanted(
            key=BASELINE,
            title="Baseline",
            technique=None,
            config=evidence.baseline,
            loads=loads,
        ),
    )


def anchor_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan:
    """A second start of the baseline at the end: restart noise, drift, and what it still lacks.

    A configuration too slow for all requests replayed the first few; so does the baseline here.
    """
    loads = (evidence.goal.concurrency, *_other_loads(evidence, techniques))
    repeats = dict.fromkeys(loads, 1)
    fewer = []
    for load, requests in _only_elsewhere(evidence):
        repeats[load] = repeats.get(load, 0) + 1
        fewer.append((load, repeats[load], requests))
    return _costed(
        evidence,
        _Wanted(
            key=ANCHOR,
            title="Baseline, started again",
            technique=None,
            config=evidence.baseline,
            loads=(*((load, 1, None) for load in loads), *fewer),
        ),
    )


def technique_trial(evidence: StudyEvidence, technique: Technique) -> TrialPlan | None:
    """The baseline with one technique toggled; None where that could show nothing."""
    if not_applicable(evidence, technique) or lacking(technique, evidence.traffic):
        return None
    return _costed(
        evidence,
        _Wanted(
            key=technique.key,
            title=variant_title(technique, evidence.baseline),
            technique=technique.key,
            config=technique.variant(evidence.baseline),
            loads=tuple(
                (load, 1, requests) for load, requests in _bearable(evidence, technique).items()
            ),
        ),
    )


def improvements(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[Technique, ...]:
    """Techniques whose toggling improved on the baseline at the goal's load."""
    arms, goal = objective_arms(evidence), evidence.goal.concurrency
    ratios = [
        (technique, arms.ratio(technique.variant(evidence.baseline).hash, goal))
        for technique in techniques
        if not_applicable(evidence, technique) is None
    ]
    return tuple(
        technique for technique, ratio in ratios if ratio is not None and ratio.low > 1 + MARGIN
    )


def combination_trial(evidence: StudyEvidence, techniques: Iterable[Technique]) -> TrialPlan | None:
    """All improving changes together; None when fewer than two improve or nothing new arises."""
    improving = improvements(evidence, techniques)
    if len(improving) <= 1:
        return None
    changes: dict[str, LeverValue] = {}
    for technique in improving:
        changes.update(technique.toggle(evidence.baseline))
    config = evidence.baseline.changed(changes)
    if any(config == technique.variant(evidence.baseline) for technique in improving):
        return None
    return _costed(
        evidence,
        _Wanted(
            key=COMBINATION,
            title=", ".join(variant_title(item, evidence.baseline) for item in improving),
            technique=None,
            config=config,
            loads=((evidence.goal.concurrency, 1, None),),
        ),
    )


def variant_title(technique: Technique, baseline: ServingConfig) -> str:
    """How a trial that toggles the technique is called."""
    return f"{technique.title} {'off' if technique.present(baseline) else 'on'}"


def missing_points(trial: TrialEvidence) -> tuple[PointPlan, ...]:
    """Planned load points that were not measured yet; a finished one is never measured again."""
    done = {(point.concurrency, point.repeat) for point in trial.points}
    return tuple(p for p in trial.plan.points if (p.concurrency, p.repeat) not in done)


def resumed(evidence: StudyEvidence, trial: TrialEvidence) -> TrialPlan:
    """The plan of a trial that was interrupted, with the points that miss."""
    points = missing_points(trial)
    expected_s = _expected_s(evidence, trial.plan.config, points)
    return replace(trial.plan, points=points, expected_s=expected_s)


def _other_loads(evidence: StudyEvidence, techniques: Iterable[Technique]) -> list[int]:
    loads = {load for technique in techniques for load in technique.concurrencies}
    return sorted(loads - {evidence.goal.concurrency})


def _asked(evidence: StudyEvidence, concurrency: int) -> int:
    """How many requests a load point replays on a configuration that is fast enough."""
    asked = evidence.requests_per_point
    if concurrency >= evidence.goal.concurrency:
        return asked
    return min(asked, max(LEAST_REQUESTS, math.ceil(asked * SMALL_LOAD_SHARE)))


def _bearable(evidence: StudyEvidence, technique: Technique) -> dict[int, int | None]:
    """Loads of a technique's trial with their requests (None: as asked).

    Where a load would eat too much of the budget, a lower one takes its place: a few requests at
    once, which still tells whether a configuration is many times slower.
    """
    config = technique.variant(evidence.baseline)
    limit_s = max(LEAST_POINT_S, evidence.budget_s * POINT_SHARE)
    loads: dict[int, int | None] = {}
    for load in loads_of(evidence, technique):
        tokens = _asked(evidence, load) * _output_tokens(evidence)
        slow = tokens / _rate(evidence, config, load) > limit_s
        if slow and load > LOWER_LOAD and config != evidence.baseline:
            loads[LOWER_LOAD] = LOWER_LOAD
        else:
            loads.setdefault(load, None)
    return loads


def _only_elsewhere(evidence: StudyEvidence) -> list[tuple[int, int]]:
    """Loads (requests in flight, requests) measured on other configurations only."""
    mine = {(p.concurrency, p.requests) for p in _points(evidence, evidence.baseline)}
    others = {
        (point.concurrency, point.requests)
        for trial in evidence.trials
        for point in trial.points
        if point.usable
    }
    return sorted(others - mine)


def _costed(evidence: StudyEvidence, wanted: _Wanted) -> TrialPlan:
    points = tuple(
        PointPlan(
            concurrency=load,
            repeat=repeat,
            requests=requests or _asked(evidence, load),
        )
        for load, repeat, requests in wanted.loads
    )
    estimates = {
        load: predicted_throughput(evidence, wanted.config, load) for load, _, _ in wanted.loads
    }
    return TrialPlan(
        key=wanted.key,
        title=wanted.title,
        technique=wanted.technique,
        config=wanted.config,
        points=points,
        expected_s=_expected_s(evidence, wanted.config, points),
        predicted=tuple((load, item) for load, item in sorted(estimates.items()) if item),
    )


def _rate(evidence: StudyEvidence, config: ServingConfig, load: int) -> float:
    """Tokens/s to plan with: measured, else the roofline times what it missed on the baseline."""
    measured = _measured_rate(evidence, config, load)
    if measured is not None:
        return measured
    before = _measured_rate(evidence, evidence.baseline, load)
    predicted = predicted_throughput(evidence, config, load)
    baseline = predicted_throughput(evidence, evidence.baseline, load)
    if predicted is None or baseline is None:
        return before or ASSUMED_TOKENS_PER_S
    return predicted.value * (1.0 if before is None else before / baseline.value)


def _points(evidence: StudyEvidence, config: ServingConfig) -> list[LoadPoint]:
    return [p for trial in evidence.trials if trial.plan.config == config for p in trial.points]


def _measured_rate(
    evidence: StudyEvidence, config: ServingConfig, concurrency: int
) -> float | None:
    """Mean tokens/s of every finished point, usable or not: it took its time all the same."""
    rates = [
        point.output_tokens / point.duration_s
        for point in _points(evidence, config)
        if point.concurrency == concurrency and point.output_tokens
    ]
    return sum(rates) / len(rates) if rates else None


def _expected_s(
    evidence: StudyEvidence, config: ServingConfig, points: Sequence[PointPlan]
) -> float:
    tokens = _output_tokens(evidence)
    load_s = sum(
        point.requests * tokens / _rate(evidence, config, point.concurrency) for point in points
    )
    return _start_s(evidence) + TRIAL_EXTRA_S + load_s


def _start_s(evidence: StudyEvidence) -> float:
    """Mean of the starts seen; before any, what such a device is assumed to need."""
    starts = [trial.facts.start_s for trial in evidence.trials if trial.facts is not None]
    known = [start for start in starts if start is not None]
    if known:
        return sum(known) / len(known)
    return assumed_start_s(evidence.device, eager=evidence.baseline.functional.enforce_eager)


def _output_tokens(evidence: StudyEvidence) -> float:
    points = [point for trial in evidence.trials for point in trial.points]
    succeeded = sum(point.succeeded for point in points)
    if succeeded:
        return sum(point.output_tokens for point in points) / succeeded
    shape = shape_of(evidence.traffic)
    return ASSUMED_OUTPUT_TOKENS if shape is None else shape.output_tokens
