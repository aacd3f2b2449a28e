"""Memory as vLLM accounts it: weights, cache blocks, capacity and waste (handbook 2)."""

from advisor.roofline.memory.budget import (
    UTILIZATION,
    DeviceMemory,
    MemoryBudget,
    MemoryPlan,
    MemoryTerm,
    available_kv_bytes,
    memory_budget,
)
from advisor.roofline.memory.capacity import NULL_BLOCKS, KvCapacity, capacity_of, kv_capacity
from advisor.roofline.memory.fit import Change, Fit, Verdict, fit
from advisor.roofline.memory.images import ImageBudget, image_cache_bytes
from advisor.roofline.memory.kv_formats import KV_FORMATS, KvFormat, kv_format, kv_token_bytes
from advisor.roofline.memory.layers import LayerCache, layer_caches
from advisor.roofline.memory.layout import CacheLayout, GroupLayout, cache_layout, plain_layout
from advisor.roofline.memory.nodes import NodeBounds, node_bounds
from advisor.roofline.memory.priors import BEFORE_0_21, CURRENT, OverheadPrior, Range
from advisor.roofline.memory.reported import ReportedCapacity, reported_capacity
from advisor.roofline.memory.settings import CacheSettings, engine_block_size
from advisor.roofline.memory.sharding import (
    kv_heads_per_rank,
    kv_replicas,
    tensor_parallel_sizes,
    weight_bytes_per_rank,
)
from advisor.roofline.memory.waste import (
    Occupancy,
    PoolWaste,
    contiguous_utilisation,
    occupancy,
    paged_utilisation,
    pool_waste,
)

__all__ = [
    "BEFORE_0_21",
    "CURRENT",
    "KV_FORMATS",
    "NULL_BLOCKS",
    "UTILIZATION",
    "CacheLayout",
    "CacheSettings",
    "Change",
    "DeviceMemory",
    "Fit",
    "GroupLayout",
    "ImageBudget",
    "KvCapacity",
    "KvFormat",
    "LayerCache",
    "MemoryBudget",
    "MemoryPlan",
    "MemoryTerm",
    "NodeBounds",
    "Occupancy",
    "OverheadPrior",
    "PoolWaste",
    "Range",
    "ReportedCapacity",
    "Verdict",
    "available_kv_bytes",
    "cache_layout",
    "capacity_of",
    "contiguous_utilisation",
    "engine_block_size",
    "fit",
    "image_cache_bytes",
    "kv_capacity",
    "kv_format",
    "kv_heads_per_rank",
    "kv_replicas",
    "kv_token_bytes",
    "layer_caches",
    "memory_budget",
    "node_bounds",
    "occupancy",
    "paged_utilisation",
    "plain_layout",
    "pool_waste",
    "reported_capacity",
    "tensor_parallel_sizes",
    "weight_bytes_per_rank",
]
