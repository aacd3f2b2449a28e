"""The recommendation: an immutable, hashed bundle of verdicts, ranked configurations, evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.canonical import digest
from advisor.estimate import Estimate
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.measurement.records import AcceptanceFigures
from advisor.serving import EngineFacts, ServingConfig


class VerdictKind(StrEnum):
    HELPS = "helps"
    NEUTRAL = "neutral"
    HURTS = "hurts"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Gain of having a technique at one load: a ratio, above 1 is better.

    `predicted` is the roofline's ratio before any probe, `measured` what the probes found; None
    with `reason` where there is none. `by_class` is the TPOT gain per request class, measured.
    """

    concurrency: int
    kind: VerdictKind
    predicted: Estimate | None
    measured: Estimate | None
    by_class: Mapping[str, Estimate] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one technique does on this traffic.

    `kind` is that of the first effect: at the goal's concurrency, or at the load it was measured
    at where the goal's was too slow for the study's budget.

    `sentence` is one sentence: by how much, in which regime, why.
    """

    technique: str
    title: str
    kind: VerdictKind
    sentence: str
    effects: tuple[Effect, ...]
    acceptance: Mapping[str, AcceptanceFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedConfig:
    """One configuration in the ranking; `throughput` and latency are at the goal's concurrency.

    `gain` is over the baseline. `feasible` is False when a limit of the goal is broken, then
    `why_not` names the limit and by how much. `tied_with_better` marks configurations inside the
    noise band of a simpler one ranked above.
    """

    rank: int
    config: ServingConfig
    config_hash: str
    title: str
    overrides: Mapping[str, str]
    throughput_tokens_per_s: Estimate
    gain: Estimate
    ttft_p95_s: Estimate | None
    tpot_p95_s: Estimate | None
    feasible: bool
    tied_with_better: bool
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Relative standard deviation between repeats of one load on one configuration."""

    relative_sd: Estimate
    repeats: int
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPicture:
    """Where device memory goes on the baseline, in bytes; None: the engine did not say.

    `weight_bytes` is the engine's figure, or the stored parameters in the served dtype where the
    engine prints none (vLLM's CPU build).

    `kv_peak_usage` is the highest share of the KV cache seen in use at any load point.
    """

    weight_bytes: int
    kv_cache_bytes: int | None
    kv_cache_tokens: int | None
    kv_bytes_per_token: int
    kv_peak_usage: float | None
    headroom_bytes: int | None
    device_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What the study says. Immutable: `hash` is what a reviewer approves."""

    study_id: str
    goal: Goal
    baseline: ServingConfig
    ranked: tuple[RankedConfig, ...]
    verdicts: tuple[Verdict, ...]
    noise: NoiseFloor
    memory: MemoryPicture
    engine: EngineFacts
    device: DeviceFacts
    machine: str
    workload_digest: str
    model_digest: str
    engine_version: str
    requests_measured: int
    mean_prompt_tokens: float | None
    mean_output_tokens: float | None
    conclusive: bool
    warnings: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the whole bundle."""
        return digest(self)

    @property
    def best(self) -> RankedConfig:
        """The first of the ranking (the recommended one)."""
        return self.ranked[0]
