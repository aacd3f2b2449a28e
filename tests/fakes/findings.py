"""A small recommendation for tests that is about serving rather than about figures."""

import hashlib

from advisor.estimate import Estimate, Source
from advisor.goal import Goal
from advisor.recommender.recommendation import (
    Effect,
    MemoryPicture,
    NoiseFloor,
    RankedConfig,
    Recommendation,
    Verdict,
    VerdictKind,
)
from advisor.serving import EngineFacts, ServingConfig
from tests.fakes.values import DEVICE


def measured(value: float, spread: float = 0.05) -> Estimate:
    """An estimate with a symmetric relative interval."""
    return Estimate(
        value=value,
        low=value * (1 - spread),
        high=value * (1 + spread),
        source=Source.MEASURED,
        basis="2 repeats, t interval",
    )


def ranked(rank: int, config: ServingConfig, title: str, gain: float) -> RankedConfig:
    """One line of a ranking."""
    return RankedConfig(
        rank=rank,
        config=config,
        config_hash=config.hash,
        title=title,
        overrides={name: str(value) for name, value in config.overrides().items()},
        throughput_tokens_per_s=measured(100 * gain),
        gain=measured(gain),
        ttft_p95_s=measured(0.4),
        tpot_p95_s=None,
        feasible=True,
        tied_with_better=False,
    )


def recommendation(study_id: str) -> Recommendation:
    """Two configurations and one verdict."""
    baseline = ServingConfig()
    better = baseline.changed({"dtype": "float32"})
    return Recommendation(
        study_id=study_id,
        goal=Goal(),
        baseline=baseline,
        ranked=(ranked(1, better, "32-bit", 1.3), ranked(2, baseline, "baseline", 1.0)),
        verdicts=(
            Verdict(
                technique="half_precision",
                title="16-bit weights",
                kind=VerdictKind.HURTS,
                sentence="16-bit weights make it 23 % slower at 16 requests in flight.",
                effects=(
                    Effect(
                        concurrency=16,
                        kind=VerdictKind.HURTS,
                        predicted=None,
                        measured=measured(0.77),
                        reason="no prediction",
                    ),
                ),
            ),
        ),
        noise=NoiseFloor(relative_sd=measured(0.02), repeats=2, basis="2 repeats"),
        memory=MemoryPicture(
            weight_bytes=270 << 20,
            kv_cache_bytes=1 << 30,
            kv_cache_tokens=46_000,
            kv_bytes_per_token=23_040,
            kv_peak_usage=0.2,
            headroom_bytes=None,
            device_bytes=8 << 30,
        ),
        engine=EngineFacts(vllm_version="0.0.test"),
        device=DEVICE,
        machine="test machine",
        workload_digest=hashlib.sha256(b"workload").hexdigest(),
        model_digest=hashlib.sha256(b"model").hexdigest(),
        engine_version="0.0.test",
        requests_measured=48,
        mean_prompt_tokens=200.0,
        mean_output_tokens=None,
        conclusive=True,
    )
