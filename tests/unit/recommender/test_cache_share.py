"""What the target's own KV cache serves, and what forecasts make of it."""

from dataclasses import replace

import pytest

from advisor.errors import UnknownName
from advisor.estimate import Estimate
from advisor.recommender.cache_share import share_at
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.screening import Worth, forecast
from advisor.recommender.served_share import cached_share, known_cache
from advisor.serving import EngineFacts, FunctionalSettings, ServingConfig, default_block_size
from advisor.techniques import technique
from advisor.traffic.figures import LookupAcceptance, PrefixReuse, ReusePoint, TrafficSummary
from advisor.units import GIB
from tests.fakes.planted_world import DEVICE, MODEL, World, begin, estimate, study, summary

BLOCK = 16
CEILING = estimate(0.6, 0.5, 0.7)
CURVE = (
    ReusePoint(capacity_blocks=100, hit_share=0.1),
    ReusePoint(capacity_blocks=1000, hit_share=0.2),
    ReusePoint(capacity_blocks=100_000, hit_share=0.6),
)
ONE_GIB = ServingConfig(functional=FunctionalSettings(kv_cache_space_gib=1))


def traffic(**changes: object) -> TrafficSummary:
    """The planted sample with a curve."""
    reuse = PrefixReuse(
        block_size=BLOCK,
        origin="tokens",
        ceiling=CEILING,
        by_class={},
        curve=CURVE,
        lru=(),
        distinct_blocks=100_000,
    )
    return replace(summary(), reuse=reuse, **changes)  # type: ignore[arg-type]


def value(found: Estimate | None) -> float:
    """Of a share that is known."""
    assert found is not None
    return found.value


def with_cache(tokens: int) -> StudyEvidence:
    """A study whose baseline reported so many tokens of cache."""
    evidence = study(World())
    facts = EngineFacts(kv_cache_tokens=tokens)
    trials = tuple(replace(trial, facts=facts) for trial in evidence.trials)
    return replace(evidence, traffic=traffic(), trials=trials)


@pytest.mark.parametrize(
    "blocks, share",
    [(-5, 0), (0, 0), (50, 0.05), (100, 0.1), (550, 0.15), (100_000, 0.6), (10**7, 0.6)],
)
def test_between_the_points_of_a_curve_it_is_straight(blocks: float, share: float) -> None:
    """From nothing to the ceiling and no further."""
    assert share_at(CURVE, blocks) == pytest.approx(share)


def test_without_a_known_cache_the_ceiling_stands() -> None:
    """A device whose memory the weights fill; as it does where there is no curve."""
    full = replace(DEVICE, memory_bytes=1000)

    assert cached_share(begin(traffic=traffic(), device=full), ServingConfig(), 16) == CEILING
    assert cached_share(begin(baseline=ONE_GIB), ONE_GIB, 16) == CEILING


def test_a_small_cache_serves_less_and_requests_in_flight_make_it_smaller() -> None:
    """The upper end is that of a cache that nobody else uses."""
    evidence = with_cache(32_000)
    one = cached_share(evidence, evidence.baseline, 1)
    many = cached_share(evidence, evidence.baseline, 64)

    assert value(many) < value(one) < CEILING.value
    assert one is not None
    assert one.low < one.value < one.high < CEILING.high
    assert "32,000 tokens" in one.basis
    assert many is not None
    assert many.high == one.high


def test_what_an_engine_reported_comes_before_what_its_settings_say() -> None:
    """Only of the same configuration."""
    evidence = with_cache(32_000)

    reported, stated = known_cache(evidence, evidence.baseline), known_cache(evidence, ONE_GIB)
    bound = known_cache(begin(), ServingConfig())

    assert reported is not None
    assert stated is not None
    assert bound is not None
    assert (reported.tokens, reported.exact) == (32_000, True)
    assert (stated.tokens != 32_000, stated.exact) == (True, True)
    assert not bound.exact


def test_an_estimated_cache_widens_what_it_serves() -> None:
    """What is left of the device's memory is an interval until the engine has started."""
    left = 100 * BLOCK * MODEL.kv_bytes_per_token(2)
    needed = MODEL.weight_bytes("bfloat16") + GIB + left
    small = replace(DEVICE, memory_bytes=round(needed / 0.92))
    found = cached_share(begin(traffic=traffic(), device=small), ServingConfig(), 1)

    assert value(found) < CEILING.value
    assert found is not None
    assert found.low < found.value < found.high
    assert "a cache of about" in found.basis


def test_prefix_caching_is_forecast_at_the_targets_cache() -> None:
    """A cache that keeps little promises less, and the reason says so."""
    wide = forecast(with_cache(10**9), technique("prefix_caching"), 4)
    narrow = forecast(with_cache(8_000), technique("prefix_caching"), 4)

    assert wide.predicted is not None
    assert narrow.predicted is not None
    assert narrow.predicted.value < wide.predicted.value
    assert wide.reason is None
    assert "the KV cache holds 8,000 tokens" in (narrow.reason or "")


def test_block_ids_are_enough_to_forecast_prefix_caching() -> None:
    """A trace without text that names its blocks; drafting still lacks its figures."""
    overall = replace(summary().overall, lookup=None, other_lookups=())
    evidence = begin(traffic=traffic(with_text=0, overall=overall))

    assert forecast(evidence, technique("prefix_caching"), 4).worth is Worth.TEST
    assert forecast(evidence, technique("ngram_speculation"), 4).worth is Worth.UNKNOWN


def test_the_best_replayed_setting_of_drafting_is_named() -> None:
    """Not the longest drafts: what they cost counts."""
    base = summary().overall.lookup
    assert base is not None

    def setting(k: int, window: tuple[int, int], yield_: float) -> LookupAcceptance:
        return replace(
            base,
            num_speculative_tokens=k,
            prompt_lookup_min=window[0],
            prompt_lookup_max=window[1],
            draft_tokens=600 * k,
            tokens_per_step=estimate(yield_, yield_, yield_),
        )

    sweep = (setting(3, (2, 4), 1.8), setting(3, (5, 5), 1.3), setting(8, (2, 4), 1.81))
    found = forecast(begin(traffic=traffic(lookup_sweep=sweep)), technique("ngram_speculation"), 16)

    assert "of 3 replayed settings" in (found.reason or "")
    assert "drafts of 3 after n-grams of 2 to 4 tokens (1.80 tokens per step)" in (
        found.reason or ""
    )
    assert forecast(begin(), technique("ngram_speculation"), 1).reason is None


def test_blocks_have_the_size_of_their_device() -> None:
    """vLLM's own defaults; an unknown kind lists the known ones."""
    assert (default_block_size("cpu"), default_block_size("cuda")) == (128, 16)
    with pytest.raises(UnknownName, match="cpu, cuda"):
        default_block_size("tpu")
