"""KV formats, their refusals, and what one rank holds."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.llm import LayerGroup, ModelShape, weight_format
from advisor.llm.feed_forward import Experts
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, NoMixer
from advisor.roofline.memory import (
    CacheSettings,
    cache_layout,
    capacity_of,
    engine_block_size,
    kv_format,
    kv_heads_per_rank,
    kv_replicas,
    kv_token_bytes,
    weight_bytes_per_rank,
)
from advisor.roofline.memory.sharding import state_elements_per_rank
from tests.fakes.published_models import LLAMA_31_8B
from tests.golden.layouts.cases import CASES, shape

HEADS = Attention(heads=32, kv_heads=8, head_dim=128)
LATENT = LatentAttention(
    heads=16, kv_rank=512, query_rank=None, nope_dim=128, rope_dim=64, value_dim=128
)
STATE = Mamba2(inner=4096, heads=64, head_dim=64, state=128, groups=1, kernel=4)


@pytest.mark.parametrize(
    "name,expected",
    [
        ("turboquant_k8v4", 8 * (128 + 64 + 4)),
        ("turboquant_4bit_nc", 8 * (64 + 2 + 64 + 4)),
        ("turboquant_k3v4_nc", 8 * (48 + 2 + 64 + 4)),
        ("turboquant_3bit_nc", 8 * (48 + 2 + 48 + 4)),
        ("int8_per_token_head", 8 * 264),
        ("fp8_e5m2", 8 * 256),
        ("nvfp4_4over6", 8 * 2 * (64 + 8)),
    ],
)
def test_bytes_of_a_token_by_format(name: str, expected: int) -> None:
    """Eight heads of 128: data, scales, norms and alignment as the backends pack them."""
    assert kv_token_bytes(HEADS, kv_format(name, "bfloat16"), kv_heads=8) == expected


def test_auto_stores_the_served_dtype() -> None:
    """None and auto mean the same; a model served in 32 bit caches in 32 bit."""
    assert kv_format(None, "float16").key_bits == 16
    assert kv_format("auto", "float32").key_bits == 32
    assert kv_token_bytes(HEADS, kv_format("auto", "float32"), kv_heads=8) == 8192


@pytest.mark.parametrize(
    "mixer,name,reason",
    [
        (LATENT, "nvfp4", "does not work with latent attention"),
        (LATENT, "turboquant_k8v4", "latent cache has none"),
        (HEADS, "fp8_ds_mla", "sparse latent attention"),
        (replace(HEADS, value_dim=64), "nvfp4", "keys and values of one size"),
    ],
)
def test_formats_that_a_layer_cannot_use_are_refused(
    mixer: Attention | LatentAttention, name: str, reason: str
) -> None:
    """The error says why, not only that."""
    with pytest.raises(InvalidInput, match=reason):
        kv_token_bytes(mixer, kv_format(name, "bfloat16"), kv_heads=1)


def test_unknown_format_lists_the_known_ones() -> None:
    """An exact look-up."""
    with pytest.raises(UnknownName, match="fp8_per_token_head"):
        kv_format("fp9", "bfloat16")


def test_latent_formats() -> None:
    """One latent whatever the heads; scales are added per token."""
    assert kv_token_bytes(LATENT, kv_format("fp8", "bfloat16"), kv_heads=7) == 576
    assert kv_token_bytes(LATENT, kv_format("int8_per_token_head", "bfloat16"), kv_heads=1) == 584
    assert kv_token_bytes(LATENT, kv_format("nvfp4_ds_mla", "bfloat16"), kv_heads=1) == 352


def test_mixed_pages_of_turboquant_are_refused() -> None:
    """Its first and last layers stay 16-bit in a dense model: such pools are not modelled."""
    settings = CacheSettings(dtype="bfloat16", max_model_len=4096, kv_cache_dtype="turboquant_k8v4")
    with pytest.raises(InvalidInput, match="first and last 2 layers"):
        cache_layout(shape((32, HEADS)), settings)
    hybrid = CASES["qwen3-next, usual"][0]
    assert cache_layout(hybrid, settings).groups


def test_ranks_split_or_copy_kv_heads() -> None:
    """At least one head on a rank; sizes that do neither are refused."""
    assert [kv_heads_per_rank(8, ranks) for ranks in (1, 2, 8, 16)] == [8, 4, 1, 1]
    with pytest.raises(InvalidInput, match="neither divides nor repeats"):
        kv_heads_per_rank(8, 3)
    with pytest.raises(InvalidInput, match="below 1"):
        kv_heads_per_rank(8, 0)
    assert kv_replicas(shape((2, HEADS)), 16) == 2
    assert kv_replicas(shape((2, LATENT)), 4) == 4
    assert kv_replicas(shape((2, STATE)), 4) == 1


def test_weights_of_a_rank_add_up() -> None:
    """Two ranks hold the model, norms twice; 64 per rank pad the vocabulary."""
    whole = LLAMA_31_8B.weight_bytes()
    norms = 2 * 4096 * (2 * 32 + 1)
    assert weight_bytes_per_rank(LLAMA_31_8B) == whole
    # 128,256 is a multiple of 128: nothing is padded.
    assert weight_bytes_per_rank(LLAMA_31_8B, 2) == (whole - norms) // 2 + norms
    odd = replace(LLAMA_31_8B, vocab_size=128_001)
    assert 2 * weight_bytes_per_rank(odd, 2) - 2 * norms + norms == pytest.approx(
        odd.weight_bytes() + 127 * 2 * 4096 * 2, abs=2
    )


def test_copied_kv_projections_do_not_shrink() -> None:
    """16 ranks on 8 KV heads: each still holds one head's keys and values."""
    layer = LayerGroup(count=1, mixer=HEADS, feed_forward=None)
    model = ModelShape(
        architecture="case",
        hidden_size=4096,
        vocab_size=1024 * 16,
        layers=(layer,),
        tied_embeddings=True,
        dtype="bfloat16",
        max_position_embeddings=None,
        final_norms=0,
    )
    query_and_output = 2 * 4096 * 4096 // 16
    one_head = 4096 * 2 * 128
    norms, table = 2 * 4096, 1024 * 4096
    expected = 2 * (query_and_output + one_head + norms + table)
    assert weight_bytes_per_rank(model, 16) == pytest.approx(expected, rel=1e-6)


def test_latents_and_routers_are_on_every_rank() -> None:
    """What many ranks hold approaches the copied part, not nothing."""
    experts = Experts(experts=64, active=4, intermediate=1024)
    model = ModelShape(
        architecture="case",
        hidden_size=2048,
        vocab_size=64 * 16,
        layers=(LayerGroup(count=4, mixer=LATENT, feed_forward=experts),),
        tied_embeddings=True,
        dtype="bfloat16",
        max_position_embeddings=None,
    )
    copied = 4 * (2048 * 64 + 2048 * 576) * 2
    assert weight_bytes_per_rank(model, 16) > copied
    assert weight_bytes_per_rank(model, 16) < model.weight_bytes() / 16 + 1.01 * copied


def test_quantized_blocks_shard_with_their_scales() -> None:
    """Four bits and a scale per 128 weights, embeddings in 16 bit."""
    packed = replace(LLAMA_31_8B, weights=weight_format("W4A16"))
    assert weight_bytes_per_rank(packed, 4) < weight_bytes_per_rank(LLAMA_31_8B, 4) / 2


def test_states_shard_by_heads_and_copy_small_groups() -> None:
    """One group on four ranks is copied; drafts lengthen the tail of the convolution."""
    tail, kept = state_elements_per_rank(STATE, 4, 0)
    assert kept == 64 * 64 * 128 // 4
    assert tail == 3 * (4096 + 2 * 4 * 128) // 4
    assert state_elements_per_rank(STATE, 4, 2)[0] == tail // 3 * 5
    odd = GatedDeltaNet(key_heads=2, value_heads=6, key_dim=64, value_dim=64, kernel=4)
    with pytest.raises(InvalidInput, match="recurrent state"):
        state_elements_per_rank(odd, 5, 0)


def test_default_blocks_of_the_engine() -> None:
    """Stated, 128 on a CPU, 64 for latents on CUDA, else 16."""
    plain, latent = shape((1, HEADS)), shape((1, LATENT))
    assert [
        engine_block_size(plain, "cuda"),
        engine_block_size(latent, "cuda"),
        engine_block_size(latent, "cpu"),
        engine_block_size(plain, "cuda", 32),
    ] == [16, 64, 128, 32]


def test_states_kept_in_another_dtype() -> None:
    """NemotronH keeps states in 32 bit unless told otherwise (handbook 2.1)."""
    model = replace(shape((2, STATE)), architecture="NemotronHForCausalLM")
    settings = CacheSettings(dtype="bfloat16", max_model_len=1024)
    wide = cache_layout(model, settings).bytes_per_block
    narrow = cache_layout(model, replace(settings, state_dtype="bfloat16")).bytes_per_block
    assert wide - narrow == 2 * 2 * 64 * 64 * 128
    with pytest.raises(UnknownName):
        replace(settings, state_dtype="int3")
    with pytest.raises(InvalidInput, match="max_model_len"):
        replace(settings, max_model_len=0)
    with pytest.raises(InvalidInput, match="negative"):
        replace(settings, num_speculative_tokens=-1)


def test_layers_without_mixer_cache_nothing() -> None:
    """No groups, no bytes; a pool of them is refused."""
    settings = CacheSettings(dtype="bfloat16", max_model_len=64)
    mixed = cache_layout(shape((2, HEADS), (3, NoMixer())), settings)
    assert [group.layers for group in mixed.groups] == [2]
    assert mixed.padding_share == 0
    empty = cache_layout(shape((3, NoMixer())), settings)
    assert (empty.groups, empty.bytes_per_block, empty.padding_share) == ((), 0, 0)
    with pytest.raises(InvalidInput, match="caches anything"):
        capacity_of(empty, 10**9)
