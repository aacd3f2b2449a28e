"""A model as an engine serves it: dtype, weight format, cache width and shards."""

from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.llm import ModelShape, WeightFormat, dtype_bytes, weight_format
from advisor.llm.mixers import Attention, LatentAttention
from advisor.roofline.memory.kv_formats import KvFormat, kv_format, kv_token_bytes
from advisor.roofline.memory.sharding import kv_heads_per_rank
from advisor.serving import ServingConfig

AUTO = "auto"
# Real routing touches fewer experts than uniform routing: as if so large a share of the tokens
# were routed uniformly (handbook 1.3).
ROUTING = Estimate(
    value=0.85,
    low=0.7,
    high=1.0,
    source=Source.LITERATURE,
    basis="measured expert kernels against uniform routing, handbook 1.3",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model with all that decides what a step reads and computes on one rank.

    `dtype` is that of activations and unquantised weights ("auto": as vLLM resolves it), `weights`
    a format that overrides the checkpoint's own, `kv_cache_dtype` vLLM's name of a cache format
    (None and "auto": the dtype). `tensor_parallel_size` ranks share every layer; with
    `expert_parallel` they share whole experts instead of slices of each. `routing` scales the
    tokens that touch experts.
    """

    model: ModelShape
    dtype: str = AUTO
    weights: WeightFormat | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel_size: int = 1
    expert_parallel: bool = False
    routing: Estimate = ROUTING

    def __post_init__(self) -> None:
        if self.tensor_parallel_size < 1:
            raise InvalidInput("tensor_parallel_size", f"{self.tensor_parallel_size} is below 1")
        if not 0 < self.routing.low <= self.routing.high <= 1:
            raise InvalidInput("routing", "is no share of the tokens")
        dtype_bytes(self.computed_dtype)

    @property
    def computed_dtype(self) -> str:
        """The dtype of activations, head and unquantised layers."""
        return computed_dtype(self.model, self.dtype)

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation."""
        return dtype_bytes(self.computed_dtype)

    @property
    def format(self) -> WeightFormat:
        """The format of the block matrices."""
        return self.weights or self.model.linear_format(self.computed_dtype)

    @property
    def packed(self) -> bool:
        """Whether the block matrices are quantized."""
        return self.weights is not None or self.model.weights is not None

    @property
    def cache_format(self) -> KvFormat:
        """How the cache stores keys and values; an unknown name raises `UnknownName`."""
        return kv_format(self.kv_cache_dtype, self.computed_dtype)

    def key_bytes(self, mixer: Attention | LatentAttention) -> float:
        """Cache bytes of one token in one such layer on one rank."""
        heads = (
            kv_heads_per_rank(mixer.kv_heads, self.tensor_parallel_size)
            if isinstance(mixer, Attention)
            else 1
        )
        return float(kv_token_bytes(mixer, self.cache_format, kv_heads=heads))

    @property
    def cache_token_bytes(self) -> float:
        """Cache bytes of one token in all layers on one rank."""
        return sum(
            group.count * self.key_bytes(group.mixer)
            for group in self.model.layers
            if isinstance(group.mixer, Attention | LatentAttention)
        )


def computed_dtype(model: ModelShape, lever: str | None) -> str:
    """The dtype the engine computes in: the lever, else the checkpoint's own.

    vLLM's ``auto`` serves a 32-bit checkpoint in 16 bit (vllm/config/model.py, 0.32).
    """
    if lever is not None and lever != AUTO:
        return lever
    return "bfloat16" if model.dtype == "float32" else model.dtype


def served_dtype(model: ModelShape, config: ServingConfig) -> str:
    """`computed_dtype` under a serving configuration."""
    return computed_dtype(model, config.levers.dtype)


def served_model(
    model: ModelShape, config: ServingConfig, *, tensor_parallel_size: int = 1
) -> ServedModel:
    """The model under a serving configuration: dtype, quantization and cache dtype levers."""
    levers = config.levers
    quantization = levers.quantization
    return ServedModel(
        model=model,
        dtype=served_dtype(model, config),
        weights=None if quantization is None else weight_format(quantization.scheme),
        kv_cache_dtype=levers.kv_cache_dtype,
        tensor_parallel_size=tensor_parallel_size,
    )
