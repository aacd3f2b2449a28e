"""The memory plan of a serving configuration on a device; unset is as vLLM sets it."""

from dataclasses import replace

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape, weight_format
from advisor.roofline.engine_defaults import engine_defaults
from advisor.roofline.memory import (
    UTILIZATION,
    CacheSettings,
    DeviceMemory,
    MemoryPlan,
    engine_block_size,
)
from advisor.roofline.step.served import served_dtype
from advisor.serving import ServingConfig
from advisor.units import GIB

# vLLM's own length for a model whose config states none (vllm/config/model.py, 0.32).
_UNSTATED_LENGTH = 2048


def memory_plan(
    model: ModelShape, device: DeviceFacts, config: ServingConfig, *, tensor_parallel: int = 1
) -> MemoryPlan:
    """The plan of `config` as its levers and functional settings say, before any start.

    Async scheduling is on except on the CPU and beside n-gram drafts (handbook 9).
    """
    levers, functional = config.levers, config.functional
    defaults = engine_defaults(device)
    speculation = levers.speculative_config
    quantization = levers.quantization
    served = (
        model
        if quantization is None
        else replace(model, weights=weight_format(quantization.scheme))
    )
    space_gib = functional.kv_cache_space_gib
    length = functional.max_model_len or model.max_position_embeddings or _UNSTATED_LENGTH
    return MemoryPlan(
        model=served,
        settings=CacheSettings(
            dtype=served_dtype(model, config),
            max_model_len=length,
            max_num_batched_tokens=levers.max_num_batched_tokens or defaults.max_num_batched_tokens,
            kv_cache_dtype=levers.kv_cache_dtype or "auto",
            block_size=engine_block_size(model, device.kind, levers.block_size),
            tensor_parallel=tensor_parallel,
            async_scheduling=device.kind == "cuda" and speculation is None,
            enable_prefix_caching=config.shares_blocks,
            num_speculative_tokens=0 if speculation is None else speculation.num_speculative_tokens,
        ),
        device=DeviceMemory(
            kind=device.kind,
            total_bytes=device.memory_bytes,
            utilization=levers.gpu_memory_utilization or UTILIZATION,
            kv_cache_memory_bytes=None if space_gib is None else space_gib * GIB,
        ),
        max_num_seqs=levers.max_num_seqs or defaults.max_num_seqs,
        enforce_eager=functional.enforce_eager,
    )
