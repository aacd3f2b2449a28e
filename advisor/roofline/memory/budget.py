"""What an engine takes of a device, term by term, and what is left for the KV cache (2.3).

vLLM 0.32: v1/worker/gpu_worker.py `determine_available_memory`, v1/worker/cpu_worker.py.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Prediction, Source, weaker
from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.memory.capacity import KvCapacity, capacity_of
from advisor.roofline.memory.images import ImageBudget
from advisor.roofline.memory.layout import CacheLayout, cache_layout
from advisor.roofline.memory.priors import (
    CURRENT,
    OverheadPrior,
    Range,
    communication_bytes,
    profile_peak,
    quadrature,
    weight_slack,
)
from advisor.roofline.memory.reported import REPORTED_ROUNDING
from advisor.roofline.memory.settings import CacheSettings
from advisor.roofline.memory.sharding import weight_bytes_per_rank
from advisor.serving import EngineFacts
from advisor.units import GIB

# What such predictors miss before a start (handbook 2.3): the interval is at least so wide.
PREDICTOR_ERROR_BYTES = GIB
UTILIZATION = 0.92  # vLLM 0.32; 0.9 before
# Resident memory of an engine's process on the CPU beside its weights: interpreter, libraries,
# compiled code and what the allocator keeps of the profile run.
_CPU_PROCESS = Range(low=0.5 * GIB, value=1.0 * GIB, high=3.0 * GIB)
WEIGHTS = "weights"
NOT_MODELLED = (
    "fragmentation of the allocator",
    "other programs on the device",
    "draft models and LoRA adapters",
    "activations of a vision tower",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one device, and how the engine is told to share it.

    `total_bytes` is what the driver reports. `kv_cache_memory_bytes` sets the cache whatever the
    share (on the CPU, ``VLLM_CPU_KVCACHE_SPACE`` GiB do). `free_bytes` is what others leave, None:
    all of it.
    """

    kind: str
    total_bytes: int
    utilization: float = UTILIZATION
    kv_cache_memory_bytes: int | None = None
    free_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in {"cpu", "cuda"}:
            raise UnknownName("kind of device", self.kind, ["cpu", "cuda"])
        if self.total_bytes < 1 or not 0 < self.utilization <= 1:
            raise InvalidInput("device", "has some memory and a share of it above 0, up to 1")

    @property
    def requested_bytes(self) -> int:
        """What the engine may take: a share of the whole device, not of what is free."""
        return math.ceil(self.total_bytes * self.utilization)

    @property
    def is_too_full(self) -> bool:
        """Whether the engine refuses to start because others use the memory (case E-08)."""
        if self.free_bytes is None or self.kv_cache_memory_bytes is not None:
            return False
        return self.requested_bytes > self.free_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """An engine that has not started: model, cache settings, device, scheduler limits."""

    model: ModelShape
    settings: CacheSettings
    device: DeviceMemory
    max_num_seqs: int
    enforce_eager: bool = False
    prior: OverheadPrior = CURRENT
    images: ImageBudget | None = None

    @property
    def layout(self) -> CacheLayout:
        """Its cache, laid out."""
        return cache_layout(self.model, self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerm:
    """One part of what the engine takes.

    `inside` its share of the device: what is allocated before vLLM measures (collectives) is not,
    and only has to be free beside it.
    """

    name: str
    size_bytes: Estimate
    inside: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """Where the memory of one rank goes. `kv_bytes` below the size of two blocks is no cache.

    `num_blocks` is known where the engine reported it.
    """

    requested_bytes: int
    total_bytes: int
    terms: tuple[MemoryTerm, ...]
    kv_bytes: Prediction
    layout: CacheLayout
    num_blocks: int | None = None
    notes: tuple[str, ...] = field(default=())

    def term(self, name: str) -> Estimate:
        """Bytes of one term; a name that is not there raises `UnknownName`."""
        for item in self.terms:
            if item.name == name:
                return item.size_bytes
        raise UnknownName("term of memory", name, [item.name for item in self.terms])

    @property
    def headroom_bytes(self) -> float:
        """Memory of the device that neither the terms nor the cache take, at the centre."""
        return self.total_bytes - self.kv_bytes.value - sum(t.size_bytes.value for t in self.terms)

    def capacities(self) -> tuple[KvCapacity | None, KvCapacity | None, KvCapacity | None]:
        """The pool at the low end, the centre and the high end; None where there is none."""
        if self.num_blocks is not None:
            known = KvCapacity(num_blocks=self.num_blocks, layout=self.layout)
            return known, known, known
        kv = self.kv_bytes
        low, centre, high = (_pool(self.layout, size) for size in (kv.low, kv.value, kv.high))
        return low, centre, high

    @property
    def tokens(self) -> Prediction:
        """Tokens of the cache as the engine reports them."""
        return self._counted(*(0 if pool is None else pool.tokens for pool in self.capacities()))

    def requests(self, tokens_per_request: float) -> Prediction:
        """Whole requests of that many tokens that the cache holds at once."""
        pools = self.capacities()
        return self._counted(
            *(0 if pool is None else pool.requests(tokens_per_request) for pool in pools)
        )

    def _counted(self, low: int, centre: int, high: int) -> Prediction:
        kv = self.kv_bytes
        return Prediction(
            value=float(centre),
            low=float(min(low, centre)),
            high=float(max(high, centre)),
            source=kv.source,
            basis=kv.basis,
            not_modelled=kv.not_modelled,
        )


def _pool(layout: CacheLayout, size: float) -> KvCapacity | None:
    try:
        return capacity_of(layout, max(0.0, size))
    except InvalidInput:
        return None


def available_kv_bytes(
    *, total_bytes: int, utilization: float, non_kv_bytes: float, graph_bytes: float = 0.0
) -> float:
    """Bytes for the cache once all else is measured: requested - non-KV - graphs."""
    return math.ceil(total_bytes * utilization) - non_kv_bytes - graph_bytes


def memory_budget(plan: MemoryPlan, facts: EngineFacts | None = None) -> MemoryBudget:
    """The breakdown before a start, or with what a started engine reported in place of priors.

    `facts` of the same configuration replace weights, cache bytes and blocks; their cache is
    exact. A KV format or a number of ranks that the model cannot have raises `InvalidInput`.
    """
    terms = _terms(plan, facts)
    layout = plan.layout
    blocks, note = (None, None) if facts is None else _reported_blocks(layout, facts)
    return MemoryBudget(
        requested_bytes=plan.device.requested_bytes,
        total_bytes=plan.device.total_bytes,
        terms=terms,
        kv_bytes=_kv_bytes(plan, [term.size_bytes for term in terms if term.inside], facts),
        layout=layout,
        num_blocks=blocks,
        notes=(*plan.model.notes, *(() if note is None else (note,))),
    )


def _reported_blocks(layout: CacheLayout, facts: EngineFacts) -> tuple[int | None, str | None]:
    """Blocks by the engine's own maximum concurrency, which wins; else its number of blocks.

    A note says where our layout and that concurrency disagree: capacity then follows the engine.
    """
    if facts.max_concurrency is None or facts.max_model_len is None or not layout.groups:
        return facts.num_blocks, None
    held = facts.max_concurrency * layout.request_blocks(facts.max_model_len)
    if facts.num_blocks is None:
        return round(held), None
    if abs(held / facts.num_blocks - 1) <= REPORTED_ROUNDING:
        return facts.num_blocks, None
    return round(held), (
        f"the engine holds {facts.max_concurrency:.2f} requests of {facts.max_model_len:,} tokens,"
        f" our layout of its {facts.num_blocks:,} blocks says otherwise"
    )


def _terms(plan: MemoryPlan, facts: EngineFacts | None) -> tuple[MemoryTerm, ...]:
    weights = MemoryTerm(name=WEIGHTS, size_bytes=_weights(plan, facts))
    if plan.device.kind == "cpu":
        process = _CPU_PROCESS.estimate("resident memory beside the weights")
        return weights, MemoryTerm(name="process", size_bytes=process)
    return (weights, *_overheads(plan))


def _overheads(plan: MemoryPlan) -> Iterator[MemoryTerm]:
    """What a GPU engine takes beside weights and cache."""
    ranks = plan.settings.tensor_parallel
    prior = plan.prior
    peak = profile_peak(
        plan.model,
        prior,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.settings.max_num_batched_tokens,
        tensor_parallel=ranks,
    )
    activations = peak.estimate("profile run: forward pass or sampler")
    yield MemoryTerm(name="activations", size_bytes=activations)
    if prior.graph_bytes is not None and not plan.enforce_eager:
        graphs = prior.graph_bytes.estimate("start-up logs of users")
        yield MemoryTerm(name="CUDA graphs", size_bytes=graphs)
    yield MemoryTerm(name="other", size_bytes=prior.other_bytes.estimate("start-up logs of users"))
    if plan.images is not None:
        yield MemoryTerm(name="encoded images", size_bytes=_encoded(plan, plan.images))
    if ranks > 1:
        buffers = communication_bytes(ranks).estimate("NCCL buffers")
        yield MemoryTerm(name="communication", size_bytes=buffers, inside=False)


def _weights(plan: MemoryPlan, facts: EngineFacts | None) -> Estimate:
    if facts is not None and facts.weight_bytes is not None:
        size = float(facts.weight_bytes)
        return Estimate(
            value=size, low=size, high=size, source=Source.MEASURED, basis="reported by the engine"
        )
    settings = plan.settings
    size = float(weight_bytes_per_rank(plan.model, settings.tensor_parallel, settings.dtype))
    return Estimate(
        value=size,
        low=size * 0.998,
        high=size * (1 + weight_slack(plan.model)),
        source=Source.ROOFLINE,
        basis="parameters of the config by their formats; 90 % interval",
    )


def _encoded(plan: MemoryPlan, images: ImageBudget) -> Estimate:
    settings = plan.settings
    size = float(
        images.encoder_bytes(
            plan.model.hidden_size, dtype_bytes(settings.dtype), settings.max_num_batched_tokens
        )
    )
    return Range(low=size, value=size, high=4 * size).estimate("encoder cache of the profile run")


def _kv_bytes(plan: MemoryPlan, terms: list[Estimate], facts: EngineFacts | None) -> Prediction:
    measured = None if facts is None else _measured_bytes(plan, facts)
    stated = plan.device.kv_cache_memory_bytes
    if measured is not None:
        return _exact(measured, Source.MEASURED, "reported by the engine")
    if stated is not None:
        return _exact(stated, Source.ROOFLINE, "set by kv_cache_memory_bytes")
    centre = plan.device.requested_bytes - sum(term.value for term in terms)
    signed = [(-1.0, Range(low=t.low, value=t.value, high=t.high)) for t in terms]
    found = quadrature(centre, signed)
    low, high = found.low, found.high
    if plan.device.kind == "cuda":
        # Not more than is left when nothing but the weights is there.
        low = min(low, centre - PREDICTOR_ERROR_BYTES)
        high = max(high, centre + PREDICTOR_ERROR_BYTES)
        high = max(centre, min(high, plan.device.requested_bytes - terms[0].low))
    source = Source.ROOFLINE
    for term in terms:
        source = weaker(source, term.source)
    return Prediction(
        value=centre,
        low=low,
        high=high,
        source=source,
        basis="share of the device less all terms, deviations in quadrature; 90 % interval",
        not_modelled=NOT_MODELLED,
    )


def _measured_bytes(plan: MemoryPlan, facts: EngineFacts) -> int | None:
    if facts.kv_cache_bytes is not None:
        return facts.kv_cache_bytes
    return None if facts.num_blocks is None else facts.num_blocks * plan.layout.bytes_per_block


def _exact(size: float, source: Source, basis: str) -> Prediction:
    return Prediction(value=size, low=size, high=size, source=source, basis=basis)
