"""Memory as vLLM accounts it: worked examples T2.1 to T2.8 of the handbook."""

from typing import Any

import pytest

from advisor.llm import ModelShape
from advisor.llm.mixers import Attention, GatedDeltaNet
from advisor.roofline.memory import (
    CacheSettings,
    available_kv_bytes,
    cache_layout,
    capacity_of,
    contiguous_utilisation,
    kv_format,
    kv_token_bytes,
    paged_utilisation,
)
from advisor.units import GIB
from tests.golden.layouts.cases import CASES, shape

LLAMA = CASES["llama-8b, usual"][0]
GEMMA = CASES["gemma-3-27b, usual"][0]
GPT_OSS = CASES["gpt-oss-20b, usual"][0]
DEEPSEEK = CASES["deepseek-v3, usual"][0]
QWEN3_NEXT = CASES["qwen3-next, usual"][0]


def settings(**changes: Any) -> CacheSettings:
    """Settings of the worked examples: 8,192 tokens a step, async scheduling."""
    usual: dict[str, Any] = {
        "dtype": "bfloat16",
        "max_model_len": 32768,
        "max_num_batched_tokens": 8192,
    }
    return CacheSettings(**(usual | changes))


def token_bytes(model: ModelShape, name: str) -> int:
    """Bytes of one token in all layers of one kind."""
    mixer = model.attention
    assert mixer is not None
    heads = mixer.kv_heads if isinstance(mixer, Attention) else 1
    return model.num_layers * kv_token_bytes(mixer, kv_format(name, model.dtype), kv_heads=heads)


@pytest.mark.parametrize(
    "model,name,expected",
    [
        (LLAMA, "auto", 131_072),
        (LLAMA, "fp8_per_token_head", 67_584),
        (LLAMA, "int4_per_token_head", 34_816),
        (LLAMA, "nvfp4", 36_864),
        (DEEPSEEK, "auto", 70_272),
        (DEEPSEEK, "fp8_ds_mla", 40_016),
    ],
)
def test_bytes_of_one_token(model: ModelShape, name: str, expected: int) -> None:
    """T2.1: all layers of Llama-3.1-8B and DeepSeek-V3 by KV format."""
    assert token_bytes(model, name) == expected


def test_state_of_a_recurrent_layer() -> None:
    """T2.1: Qwen3-Next keeps 1,097,728 B a layer and request, 39.5 MB in 36 layers."""
    layer = QWEN3_NEXT.layers[0]
    assert isinstance(layer.mixer, GatedDeltaNet)
    assert 2 * layer.mixer.state_elements == 1_097_728
    assert QWEN3_NEXT.state_bytes() == 39_518_208
    states = [g for g in cache_layout(QWEN3_NEXT, settings()).groups if g.kind == "mamba"]
    assert sum(group.used_bytes for group in states) == 39_518_208


def test_pool_of_a_plain_model() -> None:
    """T2.2: Llama-3.1-8B in 40 GiB, blocks of 16, 16-bit and fp8 cache."""
    wide = capacity_of(cache_layout(LLAMA, settings(max_model_len=131072)), 40 * GIB)
    assert (wide.bytes_per_block, wide.num_blocks, wide.tokens) == (2_097_152, 20_480, 327_680)
    assert wide.max_concurrency(131072) == 2.5
    assert wide.max_concurrency(8192) == 40.0
    half = cache_layout(LLAMA, settings(kv_cache_dtype="fp8", max_model_len=8192))
    narrow = capacity_of(half, 40 * GIB)
    assert (narrow.num_blocks, narrow.max_concurrency(8192)) == (40_960, 80.0)


def test_pool_of_a_model_with_windows() -> None:
    """T2.3: Gemma-3-27B, seven groups, its figure of tokens and the dead layers."""
    layout = cache_layout(GEMMA, settings())
    pool = capacity_of(layout, 30 * GIB)
    assert [group.layers for group in layout.groups] == [9, 9, 9, 9, 8, 8, 10]
    assert (layout.bytes_per_block, pool.num_blocks) == (1_310_720, 24_576)
    assert layout.blocks_by_group(32768) == (1089,) * 6 + (2048,)
    assert pool.max_concurrency(32768) == pytest.approx(2.864, abs=5e-4)
    assert (pool.tokens, layout.padding_layers) == (93_836, 8)


def test_pool_of_a_model_half_windows() -> None:
    """T2.4: gpt-oss-20b in 30 GiB at 131,072 tokens."""
    pool = capacity_of(cache_layout(GPT_OSS, settings(max_model_len=131072)), 30 * GIB)
    assert (pool.num_blocks, pool.tokens) == (81_920, 1_163_947)
    assert pool.max_concurrency(131072) == pytest.approx(8.880, abs=5e-4)


def test_pool_of_a_latent_model() -> None:
    """T2.5: DeepSeek-V3, blocks of 64 in 20 GiB."""
    layout = cache_layout(DEEPSEEK, settings(block_size=64, max_model_len=131072))
    pool = capacity_of(layout, 20 * GIB)
    assert (pool.bytes_per_block, pool.num_blocks, pool.tokens) == (4_497_408, 4_774, 305_536)


def test_memory_left_for_the_cache() -> None:
    """T2.6: 80 GiB at 0.92 less weights 15.0, peak 1.6, other 1.2 and graphs 0.6 GiB."""
    left = available_kv_bytes(
        total_bytes=80 * GIB,
        utilization=0.92,
        non_kv_bytes=(15.0 + 1.6 + 1.2) * GIB,
        graph_bytes=0.6 * GIB,
    )
    assert left / GIB == pytest.approx(55.2, abs=1e-6)


def test_pool_on_the_cpu() -> None:
    """T2.7: four small layers, blocks of 128 tokens in 1 GiB."""
    tiny = shape((4, Attention(heads=4, kv_heads=2, head_dim=32)))
    pool = capacity_of(cache_layout(tiny, settings(block_size=128, max_model_len=2048)), GIB)
    assert (pool.num_blocks, pool.tokens, pool.max_concurrency(2048)) == (8_192, 1_048_576, 512)


def test_contiguous_reservation_wastes_what_paging_does_not() -> None:
    """T2.8: three lengths in slots of 8,192 tokens and in blocks of 16."""
    lengths = (300, 900, 2000)
    assert contiguous_utilisation(lengths, 8192) == pytest.approx(0.130, abs=5e-4)
    assert paged_utilisation(lengths, 16) == pytest.approx(0.995, abs=5e-4)
