"""What each family's config leaves unsaid, and what is said of one nobody described."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm import ModelShape, read_config
from advisor.llm.feed_forward import DenseFeedForward, Experts
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, NoMixer
from tests.fakes import model_configs as published
from tests.fakes.model_configs import decoder

SMALL = (512, 6, 8, 2, 1024, 1000)


def reach(shape: ModelShape) -> dict[int | None, int]:
    """Layers by the window of their attention."""
    return {
        group.mixer.window: group.count
        for group in shape.layers
        if isinstance(group.mixer, Attention)
    }


@pytest.mark.parametrize(
    "config, layers",
    [
        (decoder("MistralForCausalLM", *SMALL, sliding_window=128), {128: 6}),
        (decoder("MistralForCausalLM", *SMALL, sliding_window=None), {None: 6}),
        (decoder("MistralForCausalLM", *SMALL, sliding_window=0), {None: 6}),
        (decoder("Gemma2ForCausalLM", *SMALL, sliding_window=128), {128: 3, None: 3}),
        (decoder("Gemma3ForCausalLM", *SMALL, sliding_window=128), {128: 5, None: 1}),
        (
            decoder("Gemma3ForCausalLM", *SMALL, sliding_window=128, sliding_window_pattern=3),
            {128: 4, None: 2},
        ),
        (
            decoder(
                *("Qwen2ForCausalLM", *SMALL),
                sliding_window=128,
                use_sliding_window=True,
                max_window_layers=4,
            ),
            {None: 4, 128: 2},
        ),
        (published.GPT_OSS_20B, {128: 12, None: 12}),
        (
            decoder("LlamaForCausalLM", *SMALL, layer_types=["full_attention"] * 6),
            {None: 6},
        ),
    ],
)
def test_windows_bind_where_the_family_says(
    config: published.Config, layers: dict[int | None, int]
) -> None:
    """Everywhere, in every other layer, in all but every sixth, behind a switch."""
    assert reach(read_config(config)) == layers


def test_a_window_bounds_what_a_token_reads_and_computes() -> None:
    """Not what the cache keeps per token below it."""
    full = read_config({**published.MISTRAL_7B, "sliding_window": None})
    windowed = read_config(published.MISTRAL_7B)

    assert windowed.kv_bytes_per_token() == full.kv_bytes_per_token()
    assert windowed.attention_flops(16_384) == full.attention_flops(4096)
    assert windowed.cache_read_bytes(16_384) == full.cache_read_bytes(4096)


def test_hybrid_layers_are_told_apart() -> None:
    """Three of four layers of Qwen3-Next keep a state that does not grow."""
    shape = read_config(published.QWEN3_NEXT_80B)
    counts = {type(group.mixer): group.count for group in shape.layers}

    assert counts == {GatedDeltaNet: 36, Attention: 12}
    assert shape.state_bytes(2) == 36 * 1_097_728
    assert shape.kv_bytes_per_token() == 12 * 2 * 2 * 256 * 2


def test_one_sided_layers_have_one_norm_and_one_half() -> None:
    """NemotronH: state space, network, attention and experts, each a layer of its own."""
    config = {
        **decoder("NemotronHForCausalLM", *SMALL),
        "hybrid_override_pattern": "M-M*E",
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "ssm_state_size": 128,
        "n_groups": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "moe_shared_expert_intermediate_size": 256,
    }
    shape = read_config(config)

    found = [(type(g.mixer), type(g.feed_forward), g.count, g.norms) for g in shape.layers]
    assert found == [
        (Mamba2, type(None), 2, 1),
        (NoMixer, DenseFeedForward, 1, 1),
        (Attention, type(None), 1, 1),
        (NoMixer, Experts, 1, 1),
    ]
    assert shape.kv_bytes_per_token() == 2 * 2 * 64 * 2


def test_attention_layers_of_bamba_are_named_by_index() -> None:
    """All others are state-space layers."""
    config = decoder(
        *("BambaForCausalLM", *SMALL),
        attn_layer_indices=[2, 5],
        mamba_n_heads=16,
        mamba_d_state=256,
        mamba_n_groups=1,
    )
    shape = read_config(config)

    assert {type(group.mixer): group.count for group in shape.layers} == {Mamba2: 4, Attention: 2}


def test_granites_hybrid_names_its_layers() -> None:
    """With experts beside a shared network, or the network alone."""
    config = decoder(
        *("GraniteMoeHybridForCausalLM", 512, 2, 8, 2, 128, 1000),
        layer_types=["mamba", "attention"],
        mamba_n_heads=16,
        mamba_d_state=64,
        mamba_n_groups=1,
        shared_intermediate_size=256,
        num_local_experts=4,
        num_experts_per_tok=2,
    )
    dense = read_config({**config, "num_local_experts": 0})

    assert read_config(config).is_mixture
    assert not dense.is_mixture
    assert dense.layers[0].feed_forward == DenseFeedForward(intermediate=256)


def test_every_layer_of_deci_has_its_own_kv_heads() -> None:
    """Fewer keys and values in some layers: the cache is their sum."""
    config = decoder(
        *("DeciLMForCausalLM", 512, 3, 8, 8, 1024, 1000),
        num_key_value_heads_per_layer=[4, 2, 2],
    )

    assert read_config(config).kv_bytes_per_token() == 8 * 2 * 64 * 2


def test_blocks_of_a_searched_architecture_may_lack_a_half() -> None:
    """Nemotron of neural architecture search: no attention in one layer, half a network in one."""
    whole = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.0}}
    mute = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.5}}
    idle = {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}}
    shape = read_config(
        decoder("DeciLMForCausalLM", 512, 3, 8, 8, 1024, 1000, block_configs=[whole, mute, idle])
    )

    widths = [None if g.feed_forward is None else g.feed_forward.intermediate for g in shape.layers]
    assert widths == [1024, 512, None]
    assert shape.kv_bytes_per_token() == 2 * (2 * 2 * 64) * 2


def test_first_layers_of_deepseek_are_dense() -> None:
    """Latent attention in all of them."""
    shape = read_config(published.DEEPSEEK_V3)

    assert [(g.count, type(g.mixer)) for g in shape.layers] == [
        (3, LatentAttention),
        (58, LatentAttention),
    ]
    assert shape.kv_bytes_per_token() == 70_272


def test_kimi_is_read_as_the_architecture_it_names() -> None:
    """A DeepSeek-V3 with more experts: about one trillion parameters, 32 B active."""
    shape = read_config(published.KIMI_K2)

    assert shape.parameters == pytest.approx(1.026e12, rel=1e-3)
    assert shape.active_parameters == pytest.approx(32.9e9, rel=1e-2)


def test_llama_4_alternates_dense_layers_and_experts() -> None:
    """Its chunks are counted as a window, and the shape says so."""
    config = decoder(
        *("Llama4ForCausalLM", 512, 8, 8, 2, 128, 1000),
        intermediate_size_mlp=1024,
        num_local_experts=4,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=256,
    )
    shape = read_config(config)

    assert reach(shape).keys() == {256, None}
    assert sum(g.count for g in shape.layers if isinstance(g.feed_forward, Experts)) == 4
    assert "chunks" in shape.notes[0]


def test_a_shared_expert_always_works() -> None:
    """Its width is part of what one token multiplies with."""
    alone = read_config({**published.QWEN15_MOE, "shared_expert_intermediate_size": 1})
    beside = read_config(published.QWEN15_MOE)

    more = beside.parameters - alone.parameters
    assert more == beside.active_parameters - alone.active_parameters == 24 * 3 * 2048 * 5631


def test_an_unknown_decoder_with_the_usual_keys_is_counted_from_above() -> None:
    """And marked: never a silent guess."""
    config = {**published.LLAMA_31_8B, "architectures": ["NobodyKnowsForCausalLM"]}
    shape, plain = read_config(config), read_config(published.LLAMA_31_8B)

    assert plain.parameters < shape.parameters < 1.01 * plain.parameters
    assert shape.kv_bytes_per_token() == plain.kv_bytes_per_token()
    assert "NobodyKnowsForCausalLM" in shape.notes[0]
    assert "not exact" in shape.notes[0]


def test_an_unknown_mixture_is_counted_with_all_its_experts() -> None:
    """From the keys that mixtures use."""
    config = {**published.QWEN3_30B_A3B, "architectures": ["NobodyKnowsMoeForCausalLM"]}
    shape, known = read_config(config), read_config(published.QWEN3_30B_A3B)

    assert shape.is_mixture
    assert known.parameters < shape.parameters < 1.02 * known.parameters


@pytest.mark.parametrize(
    "changes",
    [
        {"mamba_d_state": 64},
        {"layer_types": ["recurrent"] * 32},
        {"hidden_size_per_layer_input": 256},
        {"is_encoder_decoder": True},
        {"num_attention_heads": None},
    ],
)
def test_an_unknown_model_with_other_parts_is_refused(changes: dict[str, object]) -> None:
    """What its keys do not describe would be left out."""
    config = {**published.LLAMA_31_8B, "architectures": ["NobodyKnows"], **changes}

    with pytest.raises(UnsupportedArchitecture) as caught:
        read_config(config)

    assert "LlamaForCausalLM" in caught.value.supported


@pytest.mark.parametrize(
    "config, key",
    [
        (decoder("LlamaForCausalLM", 500, 6, 8, 2, 1024, 1000), "head_dim"),
        (decoder("LlamaForCausalLM", 512, 6, 8, 3, 1024, 1000), "num_key_value_heads"),
        (decoder("Gemma2ForCausalLM", *SMALL, layer_types=["full_attention"]), "layer_types"),
        (decoder("Gemma2ForCausalLM", *SMALL, layer_types=["odd"] * 6), "layer_types"),
        (decoder("MixtralForCausalLM", *SMALL), "num_local_experts"),
        ({**published.QWEN3_30B_A3B, "mlp_only_layers": ["first"]}, "mlp_only_layers"),
        ({**published.DEEPSEEK_V3, "kv_lora_rank": None}, "kv_lora_rank"),
        ({**published.MAMBA2_27B, "num_heads": 7}, "num_heads"),
        ({**published.LLAMA_31_8B, "torch_dtype": "float8_e4m3fn"}, "dtype"),
        ({**published.LLAMA_31_8B, "architectures": "Llama"}, "architectures"),
        ({**published.LLAVA_15_7B, "text_config": []}, "text_config"),
        (decoder("DeciLMForCausalLM", *SMALL), "block_configs"),
        (decoder("DeciLMForCausalLM", *SMALL, num_key_value_heads_per_layer=[1]), "num_key_value"),
    ],
)
def test_a_broken_key_is_named(config: published.Config, key: str) -> None:
    """As the file spells it."""
    with pytest.raises(InvalidInput) as caught:
        read_config(config)

    assert caught.value.field.startswith(f"config.{key}")


def test_tables_are_tied_as_the_family_ties_them() -> None:
    """Gemma writes nothing and ties; Llama writes nothing and does not."""
    gemma = {key: value for key, value in published.GEMMA_2B.items() if "tie" not in key}
    untied = read_config({**gemma, "tie_word_embeddings": False})

    assert read_config(gemma).tied_embeddings
    assert untied.parameters - read_config(gemma).parameters == 256_000 * 2048
    assert not read_config(decoder("LlamaForCausalLM", *SMALL)).tied_embeddings


def test_equal_layers_make_one_group_whatever_their_order() -> None:
    """Alternating layers are two groups, not as many as there are layers."""
    shape = read_config(published.GPT_OSS_20B)

    assert [group.count for group in shape.layers] == [12, 12]
    assert shape.num_layers == 24
    assert replace(shape.layers[0], count=12) == shape.layers[0]


@pytest.mark.parametrize("size", ["hidden_size", "vocab_size"])
def test_opt_and_older_models_have_learned_positions(size: str) -> None:
    """Two more than the longest prompt in OPT."""
    longer: dict[str, Any] = {**published.OPT_67B, "max_position_embeddings": 2049}
    shape = read_config(published.OPT_67B)

    assert read_config(longer).parameters - shape.parameters == shape.hidden_size
    assert getattr(shape, size) == published.OPT_67B[size]


def test_biases_of_latent_projections_are_noted() -> None:
    """They are not counted."""
    assert (
        "attention_bias" in read_config({**published.DEEPSEEK_V3, "attention_bias": True}).notes[0]
    )


def test_glm_45_has_dense_layers_and_shared_experts() -> None:
    """Biases on queries, keys and values alone."""
    config = decoder(
        *("Glm4MoeForCausalLM", 512, 4, 8, 2, 1024, 1000),
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        first_k_dense_replace=1,
        attention_bias=True,
        use_qk_norm=True,
    )
    shape = read_config(config)
    mixer = shape.layers[0].mixer

    assert [group.count for group in shape.layers] == [1, 3]
    assert isinstance(mixer, Attention)
    assert (mixer.bias, mixer.output_bias, mixer.qk_norm) == (True, False, True)


def test_starcoders_first_model_has_one_head_of_keys() -> None:
    """Multi-query attention is what its class takes where the config is silent."""
    shape = read_config({**published.GPT2, "architectures": ["GPTBigCodeForCausalLM"]})

    assert shape.kv_bytes_per_token() == 12 * 2 * 64 * 2


@pytest.mark.parametrize(
    "changes",
    [{"heads": 0}, {"heads": 5}, {"window": 0}],
)
def test_attention_cannot_be_wrong(changes: dict[str, Any]) -> None:
    """Checked where it is made, whoever makes it."""
    with pytest.raises(InvalidInput):
        replace(Attention(heads=8, kv_heads=2, head_dim=64), **changes)


@pytest.mark.parametrize("changes", [{"active": 9}, {"intermediate": 0}])
def test_experts_cannot_be_wrong(changes: dict[str, Any]) -> None:
    """Checked where they are made, whoever makes them."""
    with pytest.raises(InvalidInput):
        replace(Experts(experts=8, active=2, intermediate=64), **changes)


def test_a_layer_without_a_mixer_costs_nothing_to_mix() -> None:
    """No weights, no cache, no FLOP."""
    mixer = NoMixer()

    assert mixer.matmul_parameters(512) + mixer.extra_parameters(512) == 0
    assert mixer.kv_elements + mixer.state_elements == 0
    assert mixer.decode_flops(9) + mixer.prefill_flops(9, 9) + mixer.live_tokens(9) == 0


def test_an_idle_step_reads_no_experts() -> None:
    """Nor the router."""
    assert Experts(experts=8, active=2, intermediate=64).touched_parameters(512, 0) == 0
    assert DenseFeedForward(intermediate=64).touched_parameters(512, 0) == 0
