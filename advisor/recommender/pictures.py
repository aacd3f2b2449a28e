"""What the baseline's measurements show: saturation, cache, its place on the roofline."""

from dataclasses import replace

from advisor.errors import InvalidInput, UnknownName
from advisor.measurement.saturation import Saturation, fit_saturation
from advisor.recommender.duration import probe_points
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.recommendation import PagingPicture
from advisor.recommender.screening import shape_of
from advisor.roofline.calibration import cache_read_share
from advisor.roofline.memory import occupancy
from advisor.roofline.picture import RooflinePoint, roofline_points
from advisor.roofline.throughput import TrafficShape
from advisor.serving import EngineFacts
from advisor.traffic.figures import TrafficSummary


def saturation(evidence: StudyEvidence, facts: EngineFacts) -> Saturation | None:
    """The fit of the baseline's ladder; None where too few loads were measured."""
    return fit_saturation(
        probe_points(evidence, evidence.baseline),
        max_num_seqs=facts.max_num_seqs or evidence.baseline.levers.max_num_seqs,
        cache_read_share=_cache_share(evidence),
    )


def measured_paging(evidence: StudyEvidence, facts: EngineFacts) -> PagingPicture | None:
    """The picture on the cache that the engine said it has."""
    return paging_picture(
        evidence.traffic,
        reserved_tokens=facts.max_model_len
        or evidence.baseline.functional.max_model_len
        or evidence.model.max_position_embeddings,
        cache_tokens=facts.kv_cache_tokens,
    )


def paging_picture(
    traffic: TrafficSummary, *, reserved_tokens: int | None, cache_tokens: int | None
) -> PagingPicture | None:
    """Paged blocks against contiguous reservation of `reserved_tokens` per request.

    None where the upload does not say how long requests are, or one is longer than that. Without
    `cache_tokens` nobody knows how many requests fit.
    """
    total, paged, block = traffic.total_tokens, traffic.paged_share, traffic.block_size
    if total is None or paged is None or block is None or reserved_tokens is None:
        return None
    if total.max > reserved_tokens:
        return None
    found = occupancy(
        mean_tokens=total.mean,
        paged_share=paged,
        block_size=block,
        reserved_tokens=reserved_tokens,
        kv_tokens=cache_tokens,
    )
    return PagingPicture(
        block_size=block,
        reserved_tokens=reserved_tokens,
        paged_share=found.paged_share,
        contiguous_share=found.contiguous_share,
        paged_requests=found.paged_requests,
        contiguous_requests=found.contiguous_requests,
    )


def roofline(evidence: StudyEvidence, ladder: Saturation | None) -> tuple[RooflinePoint, ...]:
    """Prefill of one request alone and decoding at each rung; empty where nobody can place them."""
    shape = _replayed(evidence)
    if shape is None or ladder is None:
        return ()
    alone = [rung.ttft_p50_s for rung in ladder.rungs if rung.concurrency == 1]
    try:
        return roofline_points(
            evidence.model,
            evidence.device,
            evidence.baseline,
            shape=shape,
            prefill_s=next(iter(alone), None),
            rungs=[(rung.concurrency, rung.tpot_p50_s) for rung in ladder.rungs],
        )
    except (InvalidInput, UnknownName):
        return ()


def _cache_share(evidence: StudyEvidence) -> float | None:
    shape = _replayed(evidence)
    if shape is None:
        return None
    try:
        return cache_read_share(evidence.model, evidence.device, evidence.baseline, shape=shape)
    except UnknownName:
        return None


def _replayed(evidence: StudyEvidence) -> TrafficShape | None:
    """The mean request as it was replayed: outputs may have been limited."""
    shape = shape_of(evidence.traffic)
    points = [p for p in probe_points(evidence, evidence.baseline) if p.succeeded]
    count = sum(point.succeeded for point in points)
    if shape is None or not count:
        return shape
    return replace(
        shape,
        prompt_tokens=max(1.0, sum(point.prompt_tokens for point in points) / count),
        output_tokens=max(1.0, sum(point.output_tokens for point in points) / count),
    )
