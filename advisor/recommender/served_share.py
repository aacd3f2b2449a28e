"""What the target's own KV cache serves of the prompts, where an unlimited one is the ceiling."""

from dataclasses import replace

from advisor.estimate import Estimate
from advisor.recommender.cache_share import share_at
from advisor.recommender.capacity import CacheSize, cache_size
from advisor.recommender.evidence import StudyEvidence
from advisor.roofline.memory import NULL_BLOCKS
from advisor.serving import ServingConfig
from advisor.traffic.figures import TrafficSummary

_MOST = 0.8  # of the ceiling: less is worth a word


def known_cache(evidence: StudyEvidence, config: ServingConfig) -> CacheSize | None:
    """What a start of this configuration reported, else what its settings and the device say."""
    for trial in evidence.trials:
        tokens = None if trial.facts is None else trial.facts.kv_cache_tokens
        if tokens is not None and trial.plan.config == config:
            return CacheSize(tokens=tokens, exact=True, basis="reported by the engine")
    return cache_size(evidence.model, evidence.device, config)


def cached_share(
    evidence: StudyEvidence, config: ServingConfig, concurrency: int
) -> Estimate | None:
    """Share of prompt tokens that the cache of `config` serves; None where nothing is known.

    Requests in flight pin their blocks, so that the value is that of the cache without them
    (handbook 8) and the upper end that of the whole cache, the largest that it may be. Without a
    curve it is the ceiling of an unlimited cache.
    """
    traffic = evidence.traffic
    sharing = traffic.overall.prefix_sharing
    if sharing is None:
        return None
    ceiling = sharing.hit_share
    cache = known_cache(evidence, config)
    reuse = traffic.reuse
    if reuse is None or not reuse.curve or cache is None or not ceiling.value:
        return ceiling
    size = reuse.block_size
    pinned = _pinned_tokens(traffic, concurrency) / size
    least, centre, most = (
        tokens / size - NULL_BLOCKS for tokens in (cache.least, cache.tokens, cache.most)
    )
    # The curve ends at the ceiling; the interval of the ceiling holds for every part of it.
    top = reuse.curve[-1].hit_share or 1.0
    low, value, high = (
        share_at(reuse.curve, blocks) / top for blocks in (least - pinned, centre - pinned, most)
    )
    return replace(
        ceiling,
        value=ceiling.value * value,
        low=ceiling.low * low,
        high=ceiling.high * high,
        basis=f"{ceiling.basis}; of it what a cache of {cache.text} keeps beside"
        f" {concurrency} requests in flight",
    )


def _pinned_tokens(traffic: TrafficSummary, concurrency: int) -> float:
    overall = traffic.overall
    prompt = overall.prompt_tokens.mean if overall.prompt_tokens else 0.0
    output = overall.output_tokens.mean if overall.output_tokens else 0.0
    return concurrency * (prompt + output)


def cache_words(evidence: StudyEvidence, config: ServingConfig, concurrency: int) -> str | None:
    """Why less is shared than could be; None where the cache keeps most of it, or is not known."""
    sharing = evidence.traffic.overall.prefix_sharing
    found = cached_share(evidence, config, concurrency)
    cache = known_cache(evidence, config)
    if sharing is None or found is None or cache is None:
        return None
    if found.value >= _MOST * sharing.hit_share.value:
        return None
    return (
        f"the KV cache holds {cache.text}: with {concurrency} in flight it serves"
        f" {found.value:.0%} of the prompt tokens, an unlimited one {sharing.hit_share.value:.0%}"
    )
