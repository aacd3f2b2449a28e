"""The recommendation: an immutable, hashed bundle of verdicts, ranked configurations, evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.canonical import digest
from advisor.estimate import Estimate
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.measurement.quality import QualityFigures
from advisor.measurement.records import AcceptanceFigures
from advisor.measurement.saturation import Saturation
from advisor.roofline.picture import RooflinePoint
from advisor.serving import EngineFacts, ServingConfig
from advisor.traffic.figures import SubsetDistance


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
    kv_free_tokens_at_peak: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingPicture:
    """Paged blocks against contiguous reservation for this traffic, computed (handbook 2.4).

    Shares of reserved cache that hold tokens, and how many requests of this traffic the engine's
    measured KV cache holds at once either way; `reserved_tokens` is what contiguous reservation
    sets aside per request (``max_model_len``).
    """

    block_size: int
    reserved_tokens: int
    paged_share: float
    contiguous_share: float
    paged_requests: float | None
    contiguous_requests: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityVerdict:
    """Answers with a technique against those of the baseline.

    `tolerance` is the baseline against itself. `within` says whether the top-1 agreement keeps the
    goal's floor; None: not measured or no floor. `reason` says it in one phrase, also whether the
    agreement can be told from the tolerance at all.
    """

    technique: str
    figures: QualityFigures | None
    tolerance: QualityFigures | None
    within: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The finalist against the baseline on held-out requests, interleaved A B B A.

    `gain` is the finalist's objective over the baseline's. `kind` is that of the gain; `confirmed`
    whether it agrees in sign with the study's own figure. None figures: `reason` says what misses.
    """

    config_hash: str
    concurrency: int
    requests: int
    order: tuple[str, ...]
    gain: Estimate | None
    kind: VerdictKind
    confirmed: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One forecast beside what was measured, tokens/s."""

    title: str
    concurrency: int
    predicted: Estimate
    measured: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What the study says. Immutable: `hash` is what a reviewer approves.

    `subset` says how far the requests that were replayed are from the whole upload.
    """

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
    saturation: Saturation | None = None
    paging: PagingPicture | None = None
    quality: tuple[QualityVerdict, ...] = ()
    confirmation: Confirmation | None = None
    predictions: tuple[Prediction, ...] = ()
    roofline: tuple[RooflinePoint, ...] = ()
    baseline_notes: tuple[str, ...] = ()
    subset: SubsetDistance | None = None

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON of the whole bundle."""
        return digest(self)

    @property
    def best(self) -> RankedConfig:
        """The first of the ranking (the recommended one)."""
        return self.ranked[0]
