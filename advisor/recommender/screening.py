"""What a technique is expected to do, from the upload and the roofline alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from advisor.conflicts import combination_of, conflicts
from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate
from advisor.measurement.protocol.pairs import NEUTRAL_BAND
from advisor.recommender.evidence import StudyEvidence, TrialEvidence
from advisor.recommender.served_share import cache_words, cached_share
from advisor.roofline.throughput import TrafficShape, predict_gain, predict_throughput
from advisor.serving import NgramSpeculation, ServingConfig
from advisor.techniques import Need, Technique
from advisor.traffic.figures import LookupAcceptance, TrafficSummary
from advisor.units import percent_text

_LACKING: Mapping[Need, str] = {
    Need.TEXT: "the upload holds no request text, only lengths",
}
_FEATURES: Mapping[str, str] = {
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX-VNNI",
    "amx_int8": "AMX",
}


class Worth(StrEnum):
    """Whether engine time should be spent on a technique."""

    TEST = "worth testing"
    SKIP = "not worth testing"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected gain of having a technique at one load, and what to make of it.

    None where nobody can say; `reason` says why, or why the gain is not worth testing for.
    """

    technique: str
    concurrency: int
    predicted: Estimate | None
    reason: str | None = None
    worth: Worth = Worth.UNKNOWN


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


def _told(technique: Technique, traffic: TrafficSummary) -> bool:
    """Whether the upload says without text what the text would: replays made before it went."""
    return traffic.overall.lookup is not None and technique.on.keys() == {"speculative_config"}


def not_applicable(evidence: StudyEvidence, technique: Technique) -> str | None:
    """Why the technique has nothing to do on this device or at the goal's load; None: it has.

    Nor has one that the engine would refuse, or drop, beside the baseline's settings.
    """
    least, wanted = technique.least_concurrency, technique.cpu_features
    if evidence.goal.concurrency < least:
        return f"it needs at least {least} requests in flight to do anything"
    device = evidence.device
    if device.kind == "cpu" and wanted and not set(wanted) & set(device.cpu_features):
        *names, last = (_FEATURES.get(name, name) for name in wanted)
        lacks = f"neither {', '.join(names)} nor {last}" if names else f"no {last}"
        return f"this processor has {lacks}"
    variant = technique.variant(evidence.baseline)
    excluded = conflicts(combination_of(variant, device.kind, model=evidence.model))
    return excluded[0].text if excluded else None


def testable(evidence: StudyEvidence, technique: Technique) -> bool:
    """Whether engine time spent on the technique could show anything."""
    return not (not_applicable(evidence, technique) or lacking(technique, evidence.traffic))


def trial_of(evidence: StudyEvidence, technique: Technique) -> TrialEvidence | None:
    """The trial that toggled this technique, or another with the same levers."""
    if technique.static_slots is not None:
        return next((t for t in evidence.trials if t.plan.config == evidence.baseline), None)
    toggling = [trial for trial in evidence.trials if trial.plan.technique is not None]
    named = (trial for trial in toggling if trial.plan.technique == technique.key)
    variant = technique.variant(evidence.baseline)
    same = (trial for trial in toggling if trial.plan.config == variant)
    return next(named, next(same, None))


def _lookup_of(traffic: TrafficSummary, draft_length: int | None) -> LookupAcceptance | None:
    """The replay with drafts of that length, else the main one."""
    overall = traffic.overall
    found = (overall.lookup, *overall.other_lookups)
    fitting = (item for item in found if item and item.num_speculative_tokens == draft_length)
    return next(fitting, overall.lookup)


def _draft_length(*configs: ServingConfig) -> int | None:
    found = (config.levers.speculative_config for config in configs)
    return next((item.num_speculative_tokens for item in found if item is not None), None)


def shape_of(traffic: TrafficSummary, draft_length: int | None = None) -> TrafficShape | None:
    """Mean request of the sample; None when its lengths are unknown.

    What its text allows is that of drafts of `draft_length`, where they were replayed, and of an
    unlimited prefix cache.
    """
    sharing = traffic.overall.prefix_sharing
    lookup = _lookup_of(traffic, draft_length)
    return _shape(traffic, lookup, sharing.hit_share if sharing else None)


def _shape(
    traffic: TrafficSummary, lookup: LookupAcceptance | None, cached: Estimate | None
) -> TrafficShape | None:
    overall = traffic.overall
    if overall.prompt_tokens is None or overall.output_tokens is None:
        return None
    stepped = lookup is not None and lookup.decode_steps > 0
    return TrafficShape(
        prompt_tokens=max(1.0, overall.prompt_tokens.mean),
        output_tokens=max(1.0, overall.output_tokens.mean),
        cached_share=cached,
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
    useless = not_applicable(evidence, technique)
    if useless is not None:
        return Forecast(
            technique=technique.key,
            concurrency=concurrency,
            predicted=None,
            reason=useless,
            worth=Worth.NOT_APPLICABLE,
        )
    missing = lacking(technique, evidence.traffic)
    if missing is not None and not _told(technique, evidence.traffic):
        return _unknown(technique, concurrency, missing)
    if technique.static_slots is not None:
        bound = evidence.traffic.static_speedup
        if bound is None:
            return _unknown(technique, concurrency, "the upload does not say how long outputs are")
        return judged(technique, concurrency, bound)
    return _by_roofline(evidence, technique, concurrency)


def _by_roofline(evidence: StudyEvidence, technique: Technique, concurrency: int) -> Forecast:
    configs = (evidence.baseline, technique.variant(evidence.baseline))
    shape = _served_shape(evidence, configs, concurrency)
    if shape is None:
        return _unknown(technique, concurrency, "the upload does not say how long requests are")
    try:
        ratio = predict_gain(
            evidence.model, evidence.device, configs, shape=shape, concurrency=concurrency
        )
    except (InvalidInput, UnknownName) as error:
        return _unknown(technique, concurrency, f"the roofline cannot say: {error}")
    found = judged(technique, concurrency, effect_of(evidence, technique, ratio))
    words = _cache_words(evidence, configs, concurrency) or _draft_words(
        evidence, configs, concurrency
    )
    return replace(found, reason="; ".join(filter(None, (found.reason, words))) or None)


def _served_shape(
    evidence: StudyEvidence, configs: Sequence[ServingConfig], concurrency: int
) -> TrafficShape | None:
    """The mean request, with what the cache of the baseline serves of its prompt."""
    lookup = _lookup_of(evidence.traffic, _draft_length(*configs))
    return _shape(evidence.traffic, lookup, cached_share(evidence, configs[0], concurrency))


def _cache_words(
    evidence: StudyEvidence, configs: tuple[ServingConfig, ServingConfig], concurrency: int
) -> str | None:
    """Where sharing blocks is what changes: that the cache is too small for all of it."""
    before, after = (config.shares_blocks for config in configs)
    return None if before is after else cache_words(evidence, configs[0], concurrency)


def _draft_words(
    evidence: StudyEvidence, configs: tuple[ServingConfig, ServingConfig], concurrency: int
) -> str | None:
    """For drafting: the setting of the replayed ones with which the roofline serves fastest."""
    config = next((item for item in configs if item.levers.speculative_config is not None), None)
    sweep = evidence.traffic.lookup_sweep
    if (
        config is None
        or configs[0].levers.speculative_config is configs[1].levers.speculative_config
    ):
        return None
    served = [(_drafting(evidence, config, item, concurrency), item) for item in sweep]
    rates = [(rate, item) for rate, item in served if rate is not None]
    if not rates:
        return None
    _, best = max(rates, key=lambda pair: pair[0])
    return (
        f"of {len(rates)} replayed settings the roofline likes best drafts of"
        f" {best.num_speculative_tokens} after n-grams of {best.prompt_lookup_min} to"
        f" {best.prompt_lookup_max} tokens ({best.tokens_per_step.value:.2f} tokens per step)"
    )


def _drafting(
    evidence: StudyEvidence, config: ServingConfig, lookup: LookupAcceptance, concurrency: int
) -> float | None:
    """Output tokens/s with the drafts of one replay; None where the roofline cannot say."""
    setting = NgramSpeculation(
        num_speculative_tokens=lookup.num_speculative_tokens,
        prompt_lookup_min=lookup.prompt_lookup_min,
        prompt_lookup_max=lookup.prompt_lookup_max,
    )
    drafting = replace(config, levers=replace(config.levers, speculative_config=setting))
    shape = _shape(evidence.traffic, lookup, cached_share(evidence, config, concurrency))
    if shape is None:
        return None
    try:
        return predict_throughput(
            evidence.model, evidence.device, drafting, shape=shape, concurrency=concurrency
        ).value
    except (InvalidInput, UnknownName):
        return None


def judged(technique: Technique, concurrency: int, gain: Estimate) -> Forecast:
    """Worth testing where a gain worth having is likely enough, not where it is ruled out."""
    reason = None
    if gain.high <= 1 + NEUTRAL_BAND:
        worth, reason = Worth.SKIP, f"at most {percent_text(gain.high)} is to be expected"
    elif gain.value < 1 and gain.high * gain.low < 1:
        worth, reason = Worth.UNKNOWN, "a gain is possible, a loss more likely"
    else:
        worth = Worth.TEST
    return Forecast(
        technique=technique.key,
        concurrency=concurrency,
        predicted=gain,
        reason=reason,
        worth=worth,
    )


def forecasts(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> tuple[Forecast, ...]:
    """One per technique and load that is worth probing for it."""
    return tuple(
        forecast(evidence, technique, concurrency)
        for technique in techniques
        for concurrency in loads_of(evidence, technique)
    )


def loads_of(evidence: StudyEvidence, technique: Technique) -> tuple[int, ...]:
    """The goal's load first, then the technique's own; a submission's is the number of slots."""
    if technique.static_slots is not None:
        return (technique.static_slots,)
    goal = evidence.goal.concurrency
    return (goal, *(other for other in technique.concurrencies if other != goal))


def predicted_throughput(
    evidence: StudyEvidence, config: ServingConfig, concurrency: int
) -> Estimate | None:
    """Output tokens/s by the roofline; None where the traffic or the device cannot say."""
    shape = _served_shape(evidence, (config,), concurrency)
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
