"""How much a KV cache of a set size holds, and what of the prompts a cache of some size serves."""

from collections.abc import Sequence
from itertools import pairwise

from advisor.errors import InvalidInput
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, dtype_bytes
from advisor.roofline.memory import kv_capacity
from advisor.roofline.throughput import served_dtype
from advisor.serving import ServingConfig, default_block_size
from advisor.traffic.figures import ReusePoint
from advisor.units import GIB


def cache_tokens(model: ModelShape, device: DeviceFacts, config: ServingConfig) -> int | None:
    """Tokens of a cache whose size is set; one that the engine chooses is known once it runs."""
    space_gib = config.functional.kv_cache_space_gib
    if space_gib is None:
        return None
    try:
        capacity = kv_capacity(
            available_bytes=space_gib * GIB,
            bytes_per_token=model.kv_bytes_per_token(dtype_bytes(served_dtype(model, config))),
            block_size=config.levers.block_size or default_block_size(device.kind),
        )
    except InvalidInput:
        return None
    return capacity.tokens


def share_at(curve: Sequence[ReusePoint], blocks: float) -> float:
    """Hit share with a cache of `blocks`, between the points of the curve on straight lines."""
    points = [ReusePoint(capacity_blocks=0, hit_share=0.0), *curve]
    for left, right in pairwise(points):
        if blocks < right.capacity_blocks:
            way = (blocks - left.capacity_blocks) / (right.capacity_blocks - left.capacity_blocks)
            return left.hit_share + max(0.0, way) * (right.hit_share - left.hit_share)
    return points[-1].hit_share
