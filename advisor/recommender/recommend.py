"""From everything a study measured to one recommendation."""

import math
from collections.abc import Iterable

from advisor.errors import Unavailable
from advisor.llm import dtype_bytes
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.arms import Arms, noise_floor, throughput_arms
from advisor.recommender.confirmation import confirmation
from advisor.recommender.evidence import StudyEvidence, TrialEvidence
from advisor.recommender.pictures import measured_paging, roofline, saturation
from advisor.recommender.planner import unmeasured
from advisor.recommender.predictions import predictions
from advisor.recommender.quality import quality_verdicts
from advisor.recommender.ranking import ranked, unchanged
from advisor.recommender.recommendation import (
    Confirmation,
    MemoryPicture,
    QualityVerdict,
    RankedConfig,
    Recommendation,
    Verdict,
    VerdictKind,
)
from advisor.recommender.screening import asked_for
from advisor.recommender.verdict import verdicts
from advisor.roofline.throughput import served_dtype
from advisor.serving import EngineFacts
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES, Technique
from advisor.traffic.figures import SubsetDistance
from advisor.units import percent_text


def recommend(
    evidence: StudyEvidence,
    *,
    study_id: str,
    machine: str,
    techniques: tuple[Technique, ...] = TECHNIQUES,
    subset: SubsetDistance | None = None,
) -> Recommendation:
    """Compare, judge, rank, explain. `machine` names where it was measured, for a person.

    `subset` is the distance of the replayed requests from the upload, which the evidence has not.

    Raises `Unavailable` when the baseline was neither measured nor can be predicted.
    """
    arms = throughput_arms(evidence)
    asked = asked_for(evidence, techniques)
    judged = verdicts(evidence, asked)
    compared = ranked(evidence, asked)
    order = compared or unchanged(evidence)
    if not order:
        raise Unavailable("nothing was measured on the baseline", "read the log of its engine")
    facts = _baseline_facts(evidence)
    points = [point for trial in evidence.trials for point in trial.points]
    probed = [point for point in points if point.role is LoadRole.PROBE]
    ladder = saturation(evidence, facts)
    quality = quality_verdicts(evidence, asked)
    confirmed = confirmation(evidence, asked)
    return Recommendation(
        study_id=study_id,
        goal=evidence.goal,
        baseline=evidence.baseline,
        ranked=order,
        verdicts=judged,
        noise=noise_floor(arms),
        memory=_memory(evidence, facts, points),
        engine=facts,
        device=evidence.device,
        machine=machine,
        workload_digest=evidence.workload_digest,
        model_digest=evidence.model_digest,
        engine_version=evidence.engine_version,
        requests_measured=sum(point.succeeded for point in points),
        mean_prompt_tokens=_mean_per_request([(p.prompt_tokens, p.succeeded) for p in probed]),
        mean_output_tokens=_mean_per_request([(p.output_tokens, p.succeeded) for p in probed]),
        conclusive=bool(compared) and any(_decided(verdict) for verdict in judged),
        warnings=(
            *_study_warnings(evidence, arms, asked),
            *_best_warnings(evidence, order[0], asked, quality),
            *_confirmation_warnings(confirmed),
        ),
        saturation=ladder,
        roofline=roofline(evidence, ladder),
        paging=measured_paging(evidence, facts),
        quality=quality,
        confirmation=confirmed,
        predictions=predictions(evidence),
        baseline_notes=evidence.options.baseline_notes,
        subset=subset,
    )


def _study_warnings(
    evidence: StudyEvidence, arms: Arms, asked: tuple[Technique, ...]
) -> tuple[str, ...]:
    return (
        *_trial_warnings(evidence),
        *_drift_warnings(evidence, arms),
        *_missing_warnings(evidence, asked),
    )


def _decided(verdict: Verdict) -> bool:
    return verdict.kind not in {VerdictKind.UNKNOWN, VerdictKind.NOT_APPLICABLE}


def _baseline_trials(evidence: StudyEvidence) -> list[TrialEvidence]:
    return [trial for trial in evidence.trials if trial.plan.config == evidence.baseline]


def _baseline_facts(evidence: StudyEvidence) -> EngineFacts:
    facts = [trial.facts for trial in _baseline_trials(evidence) if trial.facts is not None]
    return facts[0] if facts else EngineFacts()


def _memory(
    evidence: StudyEvidence, facts: EngineFacts, points: Iterable[LoadPoint]
) -> MemoryPicture:
    peaks = [point.counters.peak_kv_usage for point in points]
    peak = max((peak for peak in peaks if peak is not None), default=None)
    dtype = served_dtype(evidence.model, evidence.baseline)
    return MemoryPicture(
        weight_bytes=facts.weight_bytes or evidence.model.weight_bytes(dtype),
        kv_cache_bytes=facts.kv_cache_bytes,
        kv_cache_tokens=facts.kv_cache_tokens,
        kv_bytes_per_token=evidence.model.kv_bytes_per_token(dtype_bytes(dtype)),
        kv_peak_usage=peak,
        kv_free_tokens_at_peak=(
            None
            if peak is None or facts.kv_cache_tokens is None
            else math.floor((1 - peak) * facts.kv_cache_tokens)
        ),
        headroom_bytes=facts.headroom_bytes,
        device_bytes=facts.device_memory_bytes or evidence.device.memory_bytes,
    )


def _mean_per_request(sums: Iterable[tuple[int, int]]) -> float | None:
    pairs = list(sums)
    requests = sum(count for _, count in pairs)
    return sum(tokens for tokens, _ in pairs) / requests if requests else None


def _missing_warnings(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> Iterable[str]:
    left_out = unmeasured(evidence, techniques)
    if left_out:
        yield f"not measured: {', '.join(left_out)}"


def _best_warnings(
    evidence: StudyEvidence,
    best: RankedConfig,
    techniques: tuple[Technique, ...],
    quality: tuple[QualityVerdict, ...],
) -> Iterable[str]:
    """What a reader must know of the configuration that is ranked first."""
    checked = {item.technique for item in quality if item.figures is not None}
    for technique in techniques:
        if (
            technique.changes_outputs
            and technique.key not in checked
            and _differs(evidence, best, technique)
        ):
            yield f"{technique.title} changes outputs, and their quality was not checked"
    if not best.feasible:
        yield "no configuration keeps the goal's limits; the nearest is ranked first"


def _confirmation_warnings(found: Confirmation | None) -> Iterable[str]:
    if found is None:
        return
    if found.confirmed is None:
        yield f"the gain was not confirmed on held-out requests: {found.reason}"
    elif not found.confirmed:
        yield f"held-out requests do not confirm the gain: {found.reason}"


def _trial_warnings(evidence: StudyEvidence) -> Iterable[str]:
    if evidence.hosts > 1:
        yield (
            f"its trials were measured on {evidence.hosts} hosts of one device class: the first was"
            " lost, and a difference between trials may be one between hosts"
        )
    for trial in evidence.trials:
        if trial.state is TrialState.FAILED:
            yield f"trial {trial.plan.title!r} failed: {trial.failure_kind or 'unknown'}"
        for point in trial.points:
            if point.flaws:
                where = f"{trial.plan.title!r} at {point.concurrency} in flight"
                where += "" if point.role is LoadRole.PROBE else f" ({point.role.value})"
                yield f"{where}, repeat {point.repeat}: {'; '.join(point.flaws)}"


def _drift_warnings(evidence: StudyEvidence, arms: Arms) -> Iterable[str]:
    drift = arms.drift(evidence.goal.concurrency)
    if drift is None:
        yield "the baseline was started once: noise between starts is assumed, not measured"
    elif abs(drift) > arms.within.half_width(1, 1):
        yield (
            f"the baseline's last start differs by {percent_text(math.exp(drift))} from its first:"
            " more than repeats explain"
        )


def _differs(evidence: StudyEvidence, best: RankedConfig, technique: Technique) -> bool:
    """Whether the recommended configuration moved a lever of this technique."""
    before, after = evidence.baseline.levers, best.config.levers
    return any(getattr(before, name) != getattr(after, name) for name in technique.off)
