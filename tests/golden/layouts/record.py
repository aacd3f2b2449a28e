"""Record how the installed vLLM lays out caches: ``python -m tests.golden.layouts.record``.

Run by the engine's interpreter from the repository's root; no engine starts. Only the recorder
turns our shapes into vLLM's specs; blocks of hybrid models are aligned, layers grouped and bytes
counted by vLLM's own functions.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm
import vllm.config.vllm as holder
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.model_executor.models import ModelRegistry
from vllm.platforms.interface import Platform
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
from vllm.v1.core import kv_cache_utils
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
    get_kv_quant_mode,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, Mixer
from advisor.roofline.memory import CacheSettings
from tests.golden.layouts.cases import AVAILABLE_BYTES, CASES

HERE = Path(__file__).parent
DTYPES = {"auto": torch.bfloat16, "fp8": torch.uint8, "int8_per_token_head": torch.int8}
CUSTOM = TritonAttentionBackend.customize_spec


class Backend:
    """A CUDA attention backend as far as block sizes go."""

    get_supported_kernel_block_sizes = staticmethod(lambda: [MultipleOf(16)])
    customize_spec = staticmethod(CUSTOM)


def engine_config(settings: CacheSettings, mixers: list[Mixer]) -> Any:
    """What vLLM's functions read of a `VllmConfig`."""
    align = settings.enable_prefix_caching
    latent = any(isinstance(m, LatentAttention) for m in mixers)
    first = next((m for m in mixers if isinstance(m, Attention | LatentAttention)), None)
    heads, size = 1, first.kv_elements if isinstance(first, LatentAttention) else 0
    if isinstance(first, Attention):
        heads, size = max(1, first.kv_heads // settings.tensor_parallel), first.head_dim
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=settings.max_model_len,
            original_max_model_len=settings.max_model_len,
            dtype=torch.bfloat16,
            use_mla=latent,
            architecture="case",
            get_num_kv_heads=lambda _: heads,
            get_head_size=lambda: size,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1, tensor_parallel_size=settings.tensor_parallel
        ),
        cache_config=SimpleNamespace(
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC,
            num_gpu_blocks_override=None,
            mamba_cache_mode="align" if align else "none",
            mamba_block_size=settings.block_size if align else settings.max_model_len,
            mamba_page_size_padded=None,
            prefix_cache_retention_interval=None,
            cache_dtype=settings.kv_cache_dtype,
            block_size=settings.block_size,
            kv_cache_dtype_skip_layers=[],
        ),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        max_in_flight_tokens=(1 + settings.async_scheduling) * settings.max_num_batched_tokens,
        num_prefill_lookahead_tokens=0,
    )


def state_shapes(mixer: Mixer, settings: CacheSettings) -> Any:
    """Shapes of one state by vLLM's calculator."""
    ranks, drafted = settings.tensor_parallel, settings.num_speculative_tokens
    if isinstance(mixer, GatedDeltaNet):
        return MambaStateShapeCalculator.gated_delta_net_state_shape(
            ranks,
            mixer.key_heads,
            mixer.value_heads,
            mixer.key_dim,
            mixer.value_dim,
            mixer.kernel,
            drafted,
        )
    assert isinstance(mixer, Mamba2)
    return MambaStateShapeCalculator.mamba2_state_shape(
        ranks,
        mixer.inner,
        mixer.groups,
        mixer.heads,
        mixer.head_dim,
        mixer.state,
        mixer.kernel,
        drafted,
    )


def spec(mixer: Mixer, settings: CacheSettings, config: Any) -> KVCacheSpec:
    """One layer's spec."""
    cache = config.cache_config
    kind = {
        "dtype": DTYPES[cache.cache_dtype],
        "kv_quant_mode": get_kv_quant_mode(cache.cache_dtype),
    }
    if isinstance(mixer, LatentAttention):
        return CUSTOM_LATENT(
            MLAAttentionSpec(
                block_size=cache.block_size,
                num_kv_heads=1,
                head_size=mixer.kv_elements,
                cache_dtype_str=cache.cache_dtype,
                **kind,
            )
        )
    if isinstance(mixer, Attention):
        sizes = {
            "block_size": cache.block_size,
            "num_kv_heads": max(1, mixer.kv_heads // settings.tensor_parallel),
            "head_size": mixer.head_dim,
        }
        if mixer.window is None:
            return CUSTOM(FullAttentionSpec(**sizes, **kind))
        return CUSTOM(SlidingWindowSpec(**sizes, **kind, sliding_window=mixer.window))
    shapes = state_shapes(mixer, settings)
    return MambaSpec(
        shapes=shapes,
        dtypes=(torch.bfloat16,) * len(shapes),
        block_size=cache.mamba_block_size,
        page_size_padded=cache.mamba_page_size_padded,
        mamba_cache_mode=cache.mamba_cache_mode,
        num_speculative_blocks=settings.num_speculative_tokens,
    )


def CUSTOM_LATENT(found: MLAAttentionSpec) -> MLAAttentionSpec:  # noqa: N802
    """As `MLACommonBackend.customize_spec`, whose module needs a GPU build to import."""
    if not found.kv_quant_mode.is_per_token_head:
        return found
    return replace(found, state_content_bytes=found.head_size + 8)


def align(config: Any, mixers: list[Mixer], settings: CacheSettings) -> None:
    """Enlarge blocks as the platform does for a model of attention and recurrent layers."""
    recurrent = [m for m in mixers if isinstance(m, GatedDeltaNet | Mamba2)]
    if not recurrent or len(recurrent) == len(mixers):
        return
    model = SimpleNamespace(
        get_mamba_state_shape_from_config=lambda _: state_shapes(recurrent[0], settings),
        get_mamba_state_dtype_from_config=lambda _: (torch.bfloat16, torch.bfloat16),
    )
    ModelRegistry.resolve_model_cls = lambda *_, **__: (model, "case")
    holder.set_current_vllm_config = lambda _: nullcontext()

    class Here(Platform):  # type: ignore[misc]
        _find_non_ssm_backends = classmethod(lambda *_: [Backend])

    Here._align_hybrid_block_size(config, Backend)


def laid_out(name: str) -> dict[str, object]:
    """One case by vLLM's functions."""
    model, settings = CASES[name]
    mixers = [group.mixer for group in model.layers for _ in range(group.count)]
    config = engine_config(settings, mixers)
    align(config, mixers, settings)
    specs = {f"layer.{i}": spec(mixer, settings, config) for i, mixer in enumerate(mixers)}
    groups = kv_cache_utils.get_kv_cache_groups(config, specs)
    done = kv_cache_utils.get_kv_cache_config_from_groups(config, groups, AVAILABLE_BYTES)
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, done)
    return {
        "groups": [[len(g.layer_names), g.kv_cache_spec.block_size] for g in groups],
        "bytes_per_block": kv_cache_utils._pool_bytes_per_block(config, groups),
        "num_blocks": done.num_blocks,
        "request_bytes": kv_cache_utils._max_memory_usage_bytes_from_groups(config, groups),
        "max_concurrency": concurrency,
        "kv_cache_size_tokens": tokens,
    }


def main() -> None:
    found = {"vllm": vllm.__version__, "layouts": {name: laid_out(name) for name in CASES}}
    (HERE / "layouts.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
