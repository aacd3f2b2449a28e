"""How many tokens the KV cache of a configuration holds before any engine has started."""

import math
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.recommender.cache_share import cache_tokens
from advisor.roofline.memory import kv_capacity
from advisor.roofline.throughput import served_dtype
from advisor.serving import ServingConfig, default_block_size
from advisor.units import bytes_text

# vLLM 0.32 (handbook 2.3); older documents say 0.9.
MEMORY_SHARE = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """Tokens of the KV cache. `exact` where the settings name its size, else at most so many."""

    tokens: int
    exact: bool
    basis: str


def cache_size(model: ModelShape, device: DeviceFacts, config: ServingConfig) -> CacheSize | None:
    """As the settings say, else what the weights leave of the memory that the engine may take.

    The latter is an upper bound: activations, graphs and other programs take some of it. None
    where not even one block is left.
    """
    stated = cache_tokens(model, device, config)
    if stated is not None:
        space = config.functional.kv_cache_space_gib
        return CacheSize(tokens=stated, exact=True, basis=f"a cache of {space} GiB")
    share = config.levers.gpu_memory_utilization or MEMORY_SHARE
    dtype = served_dtype(model, config)
    weights = model.weight_bytes(dtype)
    left = math.floor(device.memory_bytes * share) - weights
    try:
        capacity = kv_capacity(
            available_bytes=left,
            bytes_per_token=model.kv_bytes_per_token(dtype_bytes(dtype)),
            block_size=config.levers.block_size or default_block_size(device.kind),
        )
    except InvalidInput:
        return None
    return CacheSize(
        tokens=capacity.tokens,
        exact=False,
        basis=f"{share:.0%} of {bytes_text(device.memory_bytes)} less"
        f" {bytes_text(weights)} of weights, before activations and graphs",
    )


def cache_sentence(found: CacheSize | None) -> str:
    """The size for a person."""
    if found is None:
        return "The weights leave no room for a KV cache on this device."
    about = "" if found.exact else "at most "
    return f"The KV cache holds {about}{found.tokens:,} tokens ({found.basis})."
