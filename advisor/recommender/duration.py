"""How long starts, load points and quality passes take: from what was seen, else as assumed."""

from collections.abc import Iterable

from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.evidence import PointPlan, QualityPlan, StudyEvidence
from advisor.recommender.screening import predicted_throughput, shape_of
from advisor.roofline.step.efficiency import assumed_start_s
from advisor.serving import ServingConfig

# Warm-up requests, cache resets and stopping, beside start and load.
TRIAL_EXTRA_S = 10.0
# No load point may eat more of the budget than this.
POINT_SHARE = 0.1
LEAST_POINT_S = 20.0
# Nor may the quality passes of one trial eat more than this share of what a load point may.
QUALITY_SHARE = 0.2
# Only for planning, where neither the upload nor a measurement tells.
ASSUMED_OUTPUT_TOKENS = 128.0
ASSUMED_TOKENS_PER_S = 20.0
ASSUMED_STATIC_SPEEDUP = 2.0
# Output tokens of a request of a gang at most: the agent's own cap for them by default.
GANG_TOKENS = 160.0
# A prompt of a quality pass is answered and then read once more with the reference's answer.
QUALITY_FACTOR = 1.5
QUALITY_IN_FLIGHT = 8


def point_limit_s(evidence: StudyEvidence) -> float:
    """Seconds that one load point may take."""
    return max(LEAST_POINT_S, evidence.budget_s * POINT_SHARE)


def quality_limit_s(evidence: StudyEvidence) -> float:
    """Seconds that one quality pass may take."""
    return max(LEAST_POINT_S, QUALITY_SHARE * point_limit_s(evidence))


def probe_points(evidence: StudyEvidence, config: ServingConfig) -> list[LoadPoint]:
    """Finished points of a configuration on the study's usual requests."""
    return [
        point
        for trial in evidence.trials
        if trial.plan.config == config
        for point in trial.points
        if point.role is LoadRole.PROBE
    ]


def rate(evidence: StudyEvidence, config: ServingConfig, load: int) -> float:
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


def _measured_rate(
    evidence: StudyEvidence, config: ServingConfig, concurrency: int
) -> float | None:
    """Mean tokens/s of every finished point, usable or not: it took its time all the same."""
    rates = [
        point.output_tokens / point.duration_s
        for point in probe_points(evidence, config)
        if point.concurrency == concurrency and point.output_tokens
    ]
    return sum(rates) / len(rates) if rates else None


def point_s(evidence: StudyEvidence, config: ServingConfig, point: PointPlan) -> float:
    """Seconds of one load point on a started engine."""
    pace = rate(evidence, config, point.concurrency)
    match point.role:
        case LoadRole.CONTROL:
            return point.requests * gang_tokens(evidence) / pace
        case LoadRole.STATIC:
            return point.requests * gang_tokens(evidence) / pace * gang_slowdown(evidence)
        case _:
            return point.requests * output_tokens(evidence) / pace


def quality_s(evidence: StudyEvidence, config: ServingConfig, plan: QualityPlan | None) -> float:
    """Seconds of all quality passes; prompts are answered some at a time."""
    if plan is None:
        return 0.0
    tokens = plan.requests * plan.max_tokens * plan.passes
    return QUALITY_FACTOR * tokens / rate(evidence, config, min(plan.requests, QUALITY_IN_FLIGHT))


def trial_s(
    evidence: StudyEvidence,
    config: ServingConfig,
    points: Iterable[PointPlan],
    quality: QualityPlan | None = None,
) -> float:
    """Seconds of one start with its load points and quality passes."""
    load_s = sum(point_s(evidence, config, point) for point in points)
    return start_s(evidence) + TRIAL_EXTRA_S + load_s + quality_s(evidence, config, quality)


def start_s(evidence: StudyEvidence) -> float:
    """Mean of the starts seen; before any, what such a device is assumed to need."""
    starts = [trial.facts.start_s for trial in evidence.trials if trial.facts is not None]
    known = [start for start in starts if start is not None]
    if known:
        return sum(known) / len(known)
    return assumed_start_s(evidence.device, eager=evidence.baseline.functional.enforce_eager)


def output_tokens(evidence: StudyEvidence) -> float:
    """Mean answer of the study's usual requests."""
    points = [
        point for trial in evidence.trials for point in trial.points if point.role is LoadRole.PROBE
    ]
    succeeded = sum(point.succeeded for point in points)
    if succeeded:
        return sum(point.output_tokens for point in points) / succeeded
    return _stated_tokens(evidence)


def gang_tokens(evidence: StudyEvidence) -> float:
    """Mean answer of the requests that gangs replay, which keep their own, larger limit."""
    return min(GANG_TOKENS, _stated_tokens(evidence))


def gang_slowdown(evidence: StudyEvidence) -> float:
    """How much longer gangs take than a closed loop over the same requests, at most."""
    bound = evidence.traffic.static_speedup
    return ASSUMED_STATIC_SPEEDUP if bound is None else bound.value


def _stated_tokens(evidence: StudyEvidence) -> float:
    shape = shape_of(evidence.traffic)
    return ASSUMED_OUTPUT_TOKENS if shape is None else shape.output_tokens
