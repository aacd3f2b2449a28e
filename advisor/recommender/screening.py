"""What a technique is expected to do, from the upload and the roofline alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate
from advisor.recommender.evidence import StudyEvidence
from advisor.roofline.throughput import TrafficShape, predict_gain, predict_throughput
from advisor.serving import ServingConfig
from advisor.techniques import Need, Technique
from advisor.traffic.trace import TrafficSummary

_LACKING: Mapping[Need, str] = {
    Need.TEXT: "the upload holds no request text, only lengths",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected gain of having a technique at one load; None with `reason` where nobody can say."""

    technique: str
    concurrency: int
    predicted: Estimate | None
    reason: str | None = None


def asked_for(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> tuple[Technique, ...]:
    """The techniques that the study is about."""
    if evidence.techniques is None:
        return techniques
    return tuple(technique for technique in techniques if technique.key in evidence.techniques)


def lacking(technique: Technique, traffic: TrafficSummary) -> str | None:
    """What the upload would have to hold for the technique to be judged; None: nothing."""
    absent = {Need.TEXT} if traffic.with_text == 0 else set()
    for need in Need:
        if need in technique.needs & absent:
            return _LACKING[need]
    return None


def shape_of(traffic: TrafficSummary) -> TrafficShape | None:
    """Mean request of the sample; None when its lengths are unknown."""
    overall = traffic.overall
    if overall.prompt_tokens is None or overall.output_tokens is None:
        return None
    lookup = overall.lookup
    stepped = lookup is not None and lookup.decode_steps > 0
    return TrafficShape(
        prompt_tokens=max(1.0, overall.prompt_tokens.mean),
        output_tokens=max(1.0, overall.output_tokens.mean),
        cached_share=overall.prefix_sharing.hit_share if overall.prefix_sharing else None,
        tokens_per_step=lookup.tokens_per_step if lookup is not None and stepped else None,
        draft_length=lookup.num_speculative_tokens if lookup is not None else None,
        draft_tokens_per_step=(
            lookup.draft_tokens / lookup.decode_steps if lookup is not None and stepped else None
        ),
    )


def effect_of(evidence: StudyEvidence, technique: Technique, ratio: Estimate) -> Estimate:
    """Gain of having the technique, from the throughput ratio of variant over baseline."""
    value, *ends = (
        technique.gain(end, baseline=evidence.baseline)
        for end in (ratio.value, ratio.low, ratio.high)
    )
    return Estimate(
        value=value, low=min(ends), high=max(ends), source=ratio.source, basis=ratio.basis
    )


def forecast(evidence: StudyEvidence, technique: Technique, concurrency: int) -> Forecast:
    """Expected gain of `technique` with `concurrency` requests in flight."""
    missing = lacking(technique, evidence.traffic)
    if missing is not None:
        return _unknown(technique, concurrency, missing)
    shape = shape_of(evidence.traffic)
    if shape is None:
        return _unknown(technique, concurrency, "the upload does not say how long requests are")
    try:
        ratio = predict_gain(
            evidence.model,
            evidence.device,
            (evidence.baseline, technique.variant(evidence.baseline)),
            shape=shape,
            concurrency=concurrency,
        )
    except (InvalidInput, UnknownName) as error:
        return _unknown(technique, concurrency, f"the roofline cannot say: {error}")
    return Forecast(
        technique=technique.key,
        concurrency=concurrency,
        predicted=effect_of(evidence, technique, ratio),
    )


def forecasts(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> tuple[Forecast, ...]:
    """One per technique and load that is worth probing for it."""
    return tuple(
        forecast(evidence, technique, concurrency)
        for technique in techniques
        for concurrency in loads_of(evidence, technique)
    )


def loads_of(evidence: StudyEvidence, technique: Technique) -> tuple[int, ...]:
    """The goal's load first, then the technique's own."""
    goal = evidence.goal.concurrency
    return (goal, *(other for other in technique.concurrencies if other != goal))


def predicted_throughput(
    evidence: StudyEvidence, config: ServingConfig, concurrency: int
) -> Estimate | None:
    """Output tokens/s by the roofline; None where the traffic or the device cannot say."""
    shape = shape_of(evidence.traffic)
    if shape is None:
        return None
    try:
        return predict_throughput(
            evidence.model, evidence.device, config, shape=shape, concurrency=concurrency
        )
    except (InvalidInput, UnknownName):
        return None


def _unknown(technique: Technique, concurrency: int, reason: str) -> Forecast:
    return Forecast(technique=technique.key, concurrency=concurrency, predicted=None, reason=reason)
