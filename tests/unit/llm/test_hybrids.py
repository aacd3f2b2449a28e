"""Recurrent, one-sided and searched architectures: what breaks in their configs."""

from typing import Any

import pytest

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm import read_config
from advisor.llm.feed_forward import DenseFeedForward
from tests.fakes import model_configs as published
from tests.fakes.model_configs import decoder

SMALL = (512, 6, 8, 2, 1024, 1000)

NEMOTRON = {
    **decoder("NemotronHForCausalLM", *SMALL),
    "hybrid_override_pattern": "M*",
    "mamba_num_heads": 16,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
}
BAMBA = decoder(
    *("BambaForCausalLM", *SMALL),
    attn_layer_indices=[2],
    mamba_n_heads=16,
    mamba_d_state=64,
    mamba_n_groups=1,
)
GRANITE = decoder(
    *("GraniteMoeHybridForCausalLM", 512, 2, 8, 2, 128, 1000),
    layer_types=["mamba", "attention"],
    mamba_n_heads=16,
    mamba_d_state=64,
    mamba_n_groups=1,
    shared_intermediate_size=256,
)
BLOCK = {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 3.0}}


def searched(**changes: object) -> dict[str, Any]:
    """A searched architecture of one layer, with another half."""
    return decoder(
        "DeciLMForCausalLM", 512, 1, 8, 8, 1024, 1000, block_configs=[{**BLOCK, **changes}]
    )


@pytest.mark.parametrize(
    "config",
    [
        {**published.MAMBA2_27B, "use_bias": True},
        {**NEMOTRON, "moe_latent_size": 64},
        searched(attention={"replace_with_linear": True}),
        {**published.OPT_67B, "word_embed_proj_dim": 512},
    ],
)
def test_a_variant_with_other_matrices_is_refused(config: published.Config) -> None:
    """Rather than described as its plain relative."""
    with pytest.raises(UnsupportedArchitecture):
        read_config(config)


@pytest.mark.parametrize(
    "config, key",
    [
        ({**published.QWEN3_NEXT_80B, "layer_types": ["odd"] * 48}, "layer_types"),
        ({**BAMBA, "mamba_n_heads": 7}, "mamba_n_heads"),
        ({**GRANITE, "layer_types": None}, "layer_types"),
        ({**GRANITE, "layer_types": ["mamba"]}, "layer_types"),
        ({**NEMOTRON, "hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        ({**NEMOTRON, "hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        (decoder("DeciLMForCausalLM", 512, 1, 8, 8, 1024, 1000, block_configs=[1]), "block_confi"),
        (searched(ffn=None), "block_configs[0]"),
        (searched(ffn={"ffn_mult": "wide"}), "block_configs[0].ffn.ffn_mult"),
    ],
)
def test_a_broken_hybrid_names_its_key(config: published.Config, key: str) -> None:
    """As the file spells it, with the place in a list."""
    with pytest.raises(InvalidInput) as caught:
        read_config(config)

    assert caught.value.field.startswith(f"config.{key}")


def test_a_dense_layer_of_a_hybrid_has_its_own_width() -> None:
    """Qwen3.5 without experts, and a block whose width is stated."""
    dense = read_config({**published.QWEN3_NEXT_80B, "num_experts": 0})
    block = read_config(searched(ffn={"intermediate_size": 640}))

    assert not dense.is_mixture
    assert block.layers[0].feed_forward == DenseFeedForward(intermediate=640)
