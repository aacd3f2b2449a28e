"""How much a KV cache of a set size holds, and what of the prompts a cache of some size serves."""

from collections.abc import Sequence
from itertools import pairwise

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.roofline.memory import memory_budget
from advisor.roofline.memory_plan import memory_plan
from advisor.serving import ServingConfig
from advisor.traffic.figures import ReusePoint


def cache_tokens(model: ModelShape, device: DeviceFacts, config: ServingConfig) -> int | None:
    """Tokens of a cache whose size is set; one that the engine chooses is known once it runs."""
    if config.functional.kv_cache_space_gib is None:
        return None
    pool = memory_budget(memory_plan(model, device, config)).capacities()[1]
    return None if pool is None else pool.tokens


def share_at(curve: Sequence[ReusePoint], blocks: float) -> float:
    """Hit share with a cache of `blocks`, between the points of the curve on straight lines."""
    points = [ReusePoint(capacity_blocks=0, hit_share=0.0), *curve]
    for left, right in pairwise(points):
        if blocks < right.capacity_blocks:
            way = (blocks - left.capacity_blocks) / (right.capacity_blocks - left.capacity_blocks)
            return left.hit_share + max(0.0, way) * (right.hit_share - left.hit_share)
    return points[-1].hit_share
