"""Worked examples of the handbook's sections 1 and 7.1, and the user cases about model sizes."""

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.llm import WeightFormat, read_config, weight_format
from advisor.llm.feed_forward import ROUTING_SKEW, Experts
from advisor.llm.shape import LayerGroup, ModelShape
from advisor.units import MIB
from tests.fakes import model_configs as published
from tests.fakes.published_models import LLAMA_31_8B, MIXTRAL_8X7B
from tests.validate.memory.examples import Example, parameter_counts

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


@pytest.mark.parametrize("example", tuple(parameter_counts()), ids=lambda example: example.name)
def test_parameter_counts_equal_the_handbook_to_the_last(example: Example) -> None:
    """T1.1: every kind of layer."""
    assert example.computed == example.stated


@pytest.mark.parametrize(
    "config, parameters",
    [
        (published.MISTRAL_7B, 7_241_732_096),
        (published.QWEN15_MOE, 14_315_784_192),
        (published.GEMMA_2B, 2_506_172_416),
        (published.GEMMA2_9B, 9_241_705_984),
        (published.PHI4_MINI, 3_836_021_760),
        (published.DEEPSEEK_V2_LITE, 15_706_484_224),
        (published.GPT2, 124_439_808),
        (published.GPT_J_6B, 6_050_882_784),
        (published.OPT_67B, 6_658_473_984),
        (published.BLOOM_560M, 559_214_592),
        (published.PYTHIA_70M, 70_426_624),
        (published.FALCON_7B, 6_921_720_704),
    ],
)
def test_parameter_counts_equal_the_published_checkpoints(
    config: published.Config, parameters: int
) -> None:
    """As the model hub lists them."""
    assert read_config(config).parameters == parameters


def test_active_parameters_count_the_experts_of_one_token() -> None:
    """T1.1: Mixtral and DeepSeek-V3, both embeddings included."""
    assert read_config(published.MIXTRAL_8X7B).active_parameters == 12_879_925_248
    assert read_config(published.DEEPSEEK_V3).active_parameters == 37_552_282_624


def test_flops_of_a_token_and_of_a_prefill() -> None:
    """T1.2 and T1.3: linear layers, head, attention at 1,024 and over a causal 2,048."""
    llama = LLAMA_31_8B
    prefill = 2 * llama.linear_parameters * 2048 + llama.prefill_attention_flops(2048)

    assert llama.linear_parameters == 6_979_321_856
    assert llama.flops_per_token() == 15_009_316_864
    assert llama.attention_flops(1024) == 536_870_912
    assert (prefill + 2 * llama.head_parameters) / 1e12 == pytest.approx(29.6887, rel=1e-4)
    assert 2 * llama.head_parameters * 2047 / 1e12 == pytest.approx(2.15073, rel=1e-4)


@pytest.mark.parametrize(
    "tokens, touched", [(1, 8), (4, 29.12), (8, 51.62), (16, 82.42), (32, 111.78), (64, 125.94)]
)
def test_distinct_experts_of_a_step(tokens: int, touched: float) -> None:
    """T1.4: 8 of 128, uniform routing."""
    experts = Experts(experts=128, active=8, intermediate=768)

    assert experts.distinct(tokens) == pytest.approx(touched, rel=1e-3)


@pytest.mark.parametrize("tokens, low, high", [(1, 8, 8.3), (4, 27.8, 27.8), (8, 37, 41)])
def test_skewed_routing_brackets_what_kernels_measured(
    tokens: int, low: float, high: float
) -> None:
    """Handbook 1.3: few tokens of power-law routing lie between the two ends of the skew."""
    experts = Experts(experts=128, active=8, intermediate=768)
    least, most = (experts.distinct(tokens, skew) for skew in ROUTING_SKEW)

    assert least <= high * 1.05
    assert low <= most * 1.05


@pytest.mark.parametrize(
    "name, bits",
    [
        ("W4A16", 4.125),
        ("W4A16-zero", 4.156),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
        ("fp8-block128", 8.002),
    ],
)
def test_bits_per_parameter_of_a_format(name: str, bits: float) -> None:
    """T7.1: the weight with its part of scale and zero point."""
    assert 8 * weight_format(name).bytes_per_parameter == pytest.approx(bits, abs=5e-4)


def test_a_quantized_checkpoint_keeps_embedding_and_head() -> None:
    """T7.2: Llama-8B as AWQ and as fp8, in memory and read per step."""
    awq = read_config({**published.LLAMA_31_8B, "quantization_config": AWQ})
    fp8 = read_config({**published.LLAMA_31_8B, "quantization_config": {"quant_method": "fp8"}})

    assert awq.weight_bytes() / 1e9 == pytest.approx(5.728, abs=1e-3)
    assert fp8.weight_bytes() / 1e9 == pytest.approx(9.081, abs=1e-3)
    assert awq.step_weight_bytes() / 1e9 == pytest.approx(4.677, abs=1e-3)
    assert fp8.step_weight_bytes() / 1e9 == pytest.approx(8.030, abs=1e-3)


def test_weight_read_ratios_of_formats() -> None:
    """T7.8: how much less a decode step of Llama-8B reads."""
    plain = LLAMA_31_8B.step_weight_bytes()
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    found = [
        plain
        / read_config({**published.LLAMA_31_8B, "quantization_config": held}).step_weight_bytes()
        for held in (AWQ, {"quant_method": "fp8"}, modelopt)
    ]

    assert found == pytest.approx([3.21, 1.87, 3.02], abs=5e-3)


def case(shared: Path, name: str) -> dict[str, Any]:
    """The input of one user case."""
    loaded = json.loads((shared / "cases" / name).read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_case_m_01_cache_from_kv_heads(shared: Path) -> None:
    """Not from all heads, which would be four times as much."""
    shape = read_config(case(shared, "m01_gqa.json"))

    assert (shape.kv_bytes_per_token(), shape.parameters) == (131_072, 8_030_261_248)


def test_case_m_02_stated_head_size(shared: Path) -> None:
    """Not hidden size over heads, which would be 37.5 % too small."""
    assert read_config(case(shared, "m02_head_dim.json")).kv_bytes_per_token() == 147_456


def test_case_m_07_memory_of_all_experts(shared: Path) -> None:
    """A mixture of 125.1 B at 0.58 bytes takes 72.6 GB, whatever works per token."""
    told = case(shared, "m07_moe_total.json")
    packed = WeightFormat(name="packed", bits=8 * told["bytes_per_param"], units="bfloat16")
    mixtral = MIXTRAL_8X7B
    scaled = ModelShape(
        architecture="MixtralForCausalLM",
        hidden_size=1,
        vocab_size=1,
        layers=(
            LayerGroup(
                count=1,
                mixer=mixtral.layers[0].mixer,
                feed_forward=Experts(
                    experts=1000, active=80, intermediate=round(told["total_params"] / 3000)
                ),
            ),
        ),
        tied_embeddings=True,
        dtype="bfloat16",
        max_position_embeddings=None,
        weights=packed,
    )

    assert mixtral.parameters == pytest.approx(46.7e9, rel=1e-3)
    assert scaled.active_parameters == pytest.approx(told["active_params"], rel=0.01)
    assert scaled.weight_bytes() == pytest.approx(72.6e9, rel=1e-3)
    assert scaled.weight_bytes() > told["memory_gb"] * 1e9


def test_case_m_09_tied_tables(shared: Path) -> None:
    """Stored once or twice, multiplied once in both; the look-up multiplies nothing."""
    config = case(shared, "m02_head_dim.json")
    tied, untied = read_config(config), read_config({**config, "tie_word_embeddings": False})

    assert (tied.parameters, untied.parameters) == (4_022_468_096, 4_411_424_256)
    assert tied.flops_per_token() == untied.flops_per_token()
    assert 2 * tied.head_parameters == 2 * untied.head_parameters == 2 * 151_936 * 2_560
    assert tied.step_weight_bytes() == untied.step_weight_bytes()


def test_case_m_11_a_vision_model_is_not_its_namesake(shared: Path) -> None:
    """Four times the cache, 288 MiB of it per image, and a tower that is never quantized."""
    config = {**case(shared, "m11_vlm.json"), "torch_dtype": "float16"}
    shape = read_config(config)
    packed = read_config({**config, "quantization_config": AWQ})
    assert shape.image_tokens is not None

    assert shape.kv_bytes_per_token() == 524_288
    assert shape.kv_bytes_per_token() * shape.image_tokens == 288 * MIB
    assert shape.tower_parameters == 304_000_000
    text_bytes = read_config({**config, "vision_config": None}).weight_bytes()
    packed_text = read_config({**config, "vision_config": None, "quantization_config": AWQ})
    assert shape.weight_bytes() - text_bytes == 608_000_000
    assert packed.weight_bytes() - packed_text.weight_bytes() == 608_000_000
