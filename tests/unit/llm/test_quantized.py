"""Quantized checkpoints: how the matrices are packed, and which of them are not."""

from collections.abc import Mapping
from typing import Any

import pytest

from advisor.errors import InvalidInput, UnsupportedArchitecture
from advisor.llm import ModelShape, read_config
from tests.fakes import model_configs as published

SMALL = published.decoder("LlamaForCausalLM", 512, 4, 8, 2, 1024, 1000)
INTEGERS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def packed(method: Mapping[str, Any], config: published.Config = SMALL) -> ModelShape:
    """The model with this `quantization_config`."""
    return read_config({**config, "quantization_config": method})


def groups(*weights: Mapping[str, Any], **others: object) -> dict[str, Any]:
    """A `quantization_config` of compressed-tensors."""
    held = {
        f"group_{index}": {"targets": ["Linear"], "input_activations": None, "weights": each}
        for index, each in enumerate(weights)
    }
    return {"quant_method": "compressed-tensors", "config_groups": held, **others}


@pytest.mark.parametrize(
    "method, name, bits",
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "W4A16", 4.125),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "W4A16-g32", 4.5),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "W4A16-channel", 4.0),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "W8A16-g128", 8.125),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False}, "W4A16-zero", 4.156),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128}, "W4A16", 4.125),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "W4A16-zero", 4.156),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", 8.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block128", 8.002),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8-block64x64", 8.008),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8", 8.0),
        (groups(INTEGERS), "W4A16", 4.125),
        (groups({**INTEGERS, "symmetric": False}), "W4A16-zero", 4.156),
        (groups({"num_bits": 8, "type": "float", "strategy": "channel"}), "fp8-A16", 8.0),
        (groups({"num_bits": 4, "type": "float", "group_size": 16}), "nvfp4-A16", 4.5),
    ],
)
def test_a_method_has_a_format(method: Mapping[str, Any], name: str, bits: float) -> None:
    """Bits of a weight with its part of scale and zero point."""
    found = packed(method).weights
    assert found is not None

    assert found.name == name
    assert 8 * found.bytes_per_parameter == pytest.approx(bits, abs=1e-3)


@pytest.mark.parametrize(
    "weights, activations, name, units",
    [
        ({"num_bits": 8, "type": "int"}, {"num_bits": 8, "type": "int"}, "W8A8", "int8"),
        ({"num_bits": 8, "type": "float"}, {"num_bits": 8, "type": "float"}, "fp8", "float8"),
        (INTEGERS, {"num_bits": 8, "type": "float"}, "W4AFP8", "float8"),
        (INTEGERS, {"num_bits": 8, "type": "int"}, "W4A8", "int8"),
        (
            {"num_bits": 4, "type": "float", "group_size": 16},
            {"num_bits": 4, "type": "float"},
            "nvfp4",
            "float4",
        ),
    ],
)
def test_quantized_activations_choose_the_units(
    weights: Mapping[str, Any], activations: Mapping[str, Any], name: str, units: str
) -> None:
    """Which of the device's rates the product runs at."""
    method = groups(weights)
    method["config_groups"]["group_0"]["input_activations"] = activations
    found = packed(method).weights
    assert found is not None

    assert (found.name, found.units) == (name, units)


def kept(shape: ModelShape) -> list[tuple[int, bool, bool]]:
    """Layers, and which of their halves stay in 16 bit."""
    return [(g.count, g.plain_mixer, g.plain_feed_forward) for g in shape.layers]


@pytest.mark.parametrize(
    "ignored, halves",
    [
        ({"modules_to_not_convert": ["lm_head"]}, [(4, False, False)]),
        ({"modules_to_not_convert": ["self_attn"]}, [(4, True, False)]),
        ({"ignored_layers": ["model.layers.0.mlp"]}, [(1, False, True), (3, False, False)]),
        ({"ignore": [r"re:.*mlp\..*_proj$"]}, [(4, False, True)]),
        ({"modules_to_not_convert": ["model.layers.*.self_attn*"]}, [(4, True, False)]),
        ({"modules_to_not_convert": ["model.layers.1"]}, [(3, False, False), (1, True, True)]),
    ],
)
def test_modules_that_are_left_out_stay_in_16_bit(
    ignored: Mapping[str, Any], halves: list[tuple[int, bool, bool]]
) -> None:
    """Named whole, by a part of the path, by a pattern or by an expression."""
    shape = packed({"quant_method": "fp8", **ignored})
    everything = packed({"quant_method": "fp8"})

    assert kept(shape) == halves
    more = sum(count * (mixer * 655_360 + network * 1_572_864) for count, mixer, network in halves)
    assert shape.weight_bytes() - everything.weight_bytes() == more


def test_half_a_network_left_out_counts_as_all_of_it() -> None:
    """Never less than it takes, and the shape says so."""
    shape = packed({"quant_method": "fp8", "modules_to_not_convert": ["down_proj"]})

    assert kept(shape) == [(4, False, True)]
    assert "only a part" in shape.notes[0]


def test_gpt_oss_packs_nothing_but_experts() -> None:
    """About 13.8 GB of 41.8, as its makers publish it."""
    method = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"],
    }
    shape = packed(method, published.GPT_OSS_20B)

    assert {(g.plain_mixer, g.plain_feed_forward) for g in shape.layers} == {(True, False)}
    assert shape.weight_bytes() == pytest.approx(13.76e9, rel=0.01)


def test_routers_are_never_packed() -> None:
    """Formats apply to the experts; the router stays in 16 bit."""
    plain = read_config(published.QWEN3_30B_A3B)
    shape = packed({"quant_method": "fp8"}, published.QWEN3_30B_A3B)

    packed_parameters = plain.linear_parameters - 48 * 2048 * 128
    assert plain.weight_bytes() - shape.weight_bytes() == packed_parameters


def test_experts_of_other_names_are_found() -> None:
    """Mixtral's are called w1 to w3, and GPTQ rules may exclude by expression."""
    method = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    outside = {**method, "dynamic": {r"-:.*block_sparse_moe.*": {}}}

    assert kept(packed(method, published.MIXTRAL_8X7B)) == [(32, False, False)]
    assert kept(packed(outside, published.MIXTRAL_8X7B)) == [(32, False, True)]


def test_latent_projections_are_all_asked_for() -> None:
    """A checkpoint that leaves one of them out counts as if it left out all."""
    method = {"quant_method": "fp8", "modules_to_not_convert": ["kv_b_proj"]}
    shape = packed(method, published.DEEPSEEK_V3)

    assert {g.plain_mixer for g in shape.layers} == {True}
    assert shape.notes


def test_a_quantized_head_is_packed_too() -> None:
    """Only where the checkpoint says so and the head is a matrix of its own."""
    method = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    plain, with_head = packed(method), packed({**method, "lm_head": True})

    assert plain.weight_bytes() - with_head.weight_bytes() == pytest.approx(
        1000 * 512 * (2 - 4.125 / 8), abs=1
    )


def test_several_formats_count_as_the_widest() -> None:
    """And the shape says so."""
    shape = packed(groups(INTEGERS, {**INTEGERS, "num_bits": 8}))
    assert shape.weights is not None

    assert shape.weights.bits == 8
    assert "several formats" in shape.notes[0]


def test_a_rule_that_is_not_read_is_noted() -> None:
    """Other bits for some layers."""
    method = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 128,
        "dynamic": {"+:.*": {"bits": 8}},
    }

    assert "dynamic" in packed(method).notes[0]


@pytest.mark.parametrize("method", ["bitsandbytes", "aqlm", "quark", ""])
def test_an_unknown_method_is_refused_by_name(method: str) -> None:
    """Its bytes are not known."""
    with pytest.raises(UnsupportedArchitecture, match=f"quant_method '{method}'"):
        packed({"quant_method": method})


@pytest.mark.parametrize(
    "method, key",
    [
        ({"quant_method": "gptq"}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        (groups({"num_bits": 3, "type": "float"}), "config_groups.group_0.weights.num_bits"),
        ({"quant_method": "fp8", "ignored_layers": ["re:("]}, ""),
        ({"quant_method": "fp8", "ignored_layers": "lm_head"}, "ignored_layers"),
    ],
)
def test_a_broken_method_is_named(method: Mapping[str, Any], key: str) -> None:
    """With the path of the key."""
    with pytest.raises(InvalidInput) as caught:
        packed(method)

    assert caught.value.field == f"config.quantization_config.{key}".rstrip(".")


def test_modelopt_algorithms_that_are_not_described_are_refused() -> None:
    """A mixture of formats per layer, for one."""
    with pytest.raises(UnsupportedArchitecture, match="MIXED"):
        packed({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"})
