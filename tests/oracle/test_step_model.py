"""Worked examples of the step model (handbook 1.2 to 3.2) and the case of two cards on PCIe."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.hardware import CATALOGUE, H100_SXM, all_reduce, card
from advisor.hardware.measured import knee_tokens
from advisor.llm import weight_format
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.efficiency import exact_efficiency, machine, prior_efficiency
from advisor.roofline.step.operations import Kind, operations
from advisor.roofline.step.prediction import roofline_step, speed_of_light
from advisor.roofline.step.products import layer_products
from advisor.roofline.step.ranges import ProductEfficiency, known
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel
from tests.fakes.published_models import LLAMA_31_8B, QWEN3_30B_A3B

EXPERTS = replace(QWEN3_30B_A3B, layers=(replace(QWEN3_30B_A3B.layers[0], count=1),))


def test_flops_of_one_decoded_token() -> None:
    """T1.2: blocks and head, and attention at 1,024 keys."""
    found = operations(ServedModel(model=LLAMA_31_8B), StepBatch(decode_contexts=(1024.0,)))
    by_kind = {
        kind: sum(item.flops for item in found if item.kind is kind)
        for kind in (Kind.LINEAR, Kind.HEAD, Kind.DECODE_ATTENTION)
    }

    assert by_kind[Kind.LINEAR] == 2 * 6_979_321_856
    assert by_kind[Kind.LINEAR] + by_kind[Kind.HEAD] == 15_009_316_864
    assert by_kind[Kind.DECODE_ATTENTION] == 536_870_912


def test_flops_of_a_prompt() -> None:
    """T1.3: 29.689 TFLOP, the head on the last position only."""
    batch = StepBatch(prefills=(Prefill(new_tokens=2048),))
    found = operations(ServedModel(model=LLAMA_31_8B), batch)

    assert sum(item.flops for item in found) / 1e12 == pytest.approx(29.689, rel=1e-4)


@pytest.mark.parametrize(
    "tokens,distinct",
    [(1, 8), (4, 29.12), (8, 51.62), (16, 82.42), (32, 111.78), (64, 125.94)],
)
def test_experts_that_a_step_touches(tokens: int, distinct: float) -> None:
    """T1.4: uniform routing among 128 experts, 8 a token."""
    up = next(
        product
        for product in layer_products(ServedModel(model=EXPERTS))
        if product.matrix.name == "experts_up"
    )
    one = 2 * 768 * 2048 * 2
    read = float(up.read_bytes(np.array([float(tokens)]), 1.0)[0])

    assert read / one == pytest.approx(distinct, abs=0.01)


@pytest.mark.parametrize("tokens,least,most", [(8, 37, 52), (16, 50, 83), (32, 85, 112)])
def test_skewed_routing_touches_fewer_experts(tokens: int, least: float, most: float) -> None:
    """Handbook 1.3: counts of measured kernels lie at or below the lower end's neighbourhood."""
    up = layer_products(ServedModel(model=EXPERTS))[3]
    ends = [
        float(up.read_bytes(np.array([float(tokens)]), routing)[0]) / (2 * 768 * 2048 * 2)
        for routing in (0.7, 1.0)
    ]

    assert up.matrix.name == "experts_up"
    assert least <= ends[0] < ends[1] <= most


@pytest.mark.parametrize(
    "key,units,width,tokens",
    [
        ("a100-80-sxm", "bfloat16", 2.0, 168),
        ("h100-sxm", "bfloat16", 2.0, 279),
        ("h100-sxm", "float8", 1.0, 186),
        ("h200-sxm", "bfloat16", 2.0, 198),
        ("h200-sxm", "float8", 1.0, 136),
        ("b200", "bfloat16", 2.0, 250),
        ("b200", "float8", 1.0, 170),
        ("b200", "float4", 0.5625, 145),
        ("l40s", "bfloat16", 2.0, 347),
    ],
)
def test_measured_shares_give_the_published_knee(
    key: str, units: str, width: float, tokens: float
) -> None:
    """Handbook 3.2: m* = eta_c F b_w / (2 eta_m BW), to the rounding of the table."""
    assert knee_tokens(key, units, width) == pytest.approx(tokens, rel=0.02)


def test_rows_of_a_quantized_product_come_in_tiles() -> None:
    """T3.4: 129 rows cost twice 128, 1.984 times as much a row."""
    served = ServedModel(model=LLAMA_31_8B, weights=weight_format("fp8"))
    base = machine(H100_SXM, served, exact_efficiency())
    tiled = exact_efficiency()
    tiles = ProductEfficiency(memory=known(1.0), compute=known(1.0), tile=128)
    step = RooflineStep(
        served=served,
        machine=machine(
            H100_SXM,
            served,
            type(tiled)(
                memory=tiled.memory,
                compute=tiled.compute,
                attention=tiled.attention,
                overhead_s=tiled.overhead_s,
                products={"float8": tiles},
            ),
        ),
    )
    # Far above the knee of 295 rows, where arithmetic binds.
    at_edge, beyond = step.dense_s(np.array([512.0, 513.0]))

    assert beyond / at_edge == pytest.approx(640 / 512)
    plain = RooflineStep(served=served, machine=base)
    assert plain.dense_s(np.array([513.0]))[0] == pytest.approx(
        plain.dense_s(np.array([512.0]))[0] * 513 / 512
    )
    assert pytest.approx(1.984, rel=1e-3) == 2 * 128 / 129


def test_all_reduces_of_a_70b_model_on_eight_cards() -> None:
    """T3.5: log-log interpolation of the table, not a line of latency and bandwidth."""
    table = all_reduce("h100-sxm", 8)
    assert table is not None
    message = np.array(64 * 8192 * 2.0)
    line_s = 160 * (5.3e-6 + 1.75 * (1 << 20) / 469e9)

    assert 160 * float(table.seconds(message)) * 1e3 == pytest.approx(2.441, rel=1e-3)
    assert line_s * 1e3 == pytest.approx(1.474, rel=1e-3)


@pytest.mark.parametrize("scheme,read_gb", [("W4A16-zero", 4.677), ("fp8", 8.030)])
def test_quantized_blocks_and_a_16_bit_head(scheme: str, read_gb: float) -> None:
    """T7.2: what a step reads of Llama-8B."""
    served = ServedModel(model=LLAMA_31_8B, weights=weight_format(scheme))
    found = operations(served, StepBatch(decode_contexts=(1.0,)))

    assert sum(item.weight_bytes for item in found) / 1e9 == pytest.approx(read_gb, abs=1e-3)


@pytest.mark.parametrize("key,ratio", [("h100-sxm", 1.21), ("h200-sxm", 1.33), ("l40s", 1.56)])
def test_eight_bit_prefill_gains_what_kernels_gain(key: str, ratio: float) -> None:
    """Handbook 7.2: not a factor of two."""
    device = card(key).facts
    batch = StepBatch(prefills=(Prefill(new_tokens=65_536),))
    seconds = []
    for weights in (None, weight_format("fp8")):
        served = ServedModel(model=LLAMA_31_8B, weights=weights)
        step = roofline_step(served, device, prior_efficiency(device))
        seconds.append(float(step._blocks.seconds(np.array(batch.tokens))))

    assert seconds[0] / seconds[1] == pytest.approx(ratio, rel=0.01)


def test_a_card_without_8_bit_floats_unpacks_them() -> None:
    """Handbook 7.2: fp8 on an A100 is weight-only; it halves what decoding reads."""
    device = CATALOGUE["a100-80-sxm"].facts
    served = ServedModel(model=LLAMA_31_8B, weights=weight_format("fp8"))
    step = speed_of_light(served, device)
    plain = speed_of_light(ServedModel(model=LLAMA_31_8B), device)
    prompt = StepBatch(prefills=(Prefill(new_tokens=4096),))
    decode = StepBatch(decode_contexts=(1.0,))

    assert step.seconds(prompt) == pytest.approx(plain.seconds(prompt), rel=1e-3)
    assert step.seconds(decode) < 0.6 * plain.seconds(decode)


def test_case_e_26_two_cards_on_pcie_are_better_apart(shared: Path) -> None:
    """Replicas double the throughput, two ranks without a peer link hardly gain."""
    given = json.loads((shared / "cases" / "e26_tp_pcie.json").read_text(encoding="utf-8"))
    measured = given["measured_tok_s"]
    model = LLAMA_31_8B
    assert (model.hidden_size, model.num_layers) == (given["hidden_size"], given["layers"])
    device = card("l40s").facts
    table = all_reduce("l40s", given["gpus"])
    shares = prior_efficiency(device)

    def step(ranks: int) -> RooflineStep:
        served = ServedModel(model=model, tensor_parallel_size=ranks)
        return roofline_step(served, device, shares, all_reduce=table)

    def cycle_s(ranks: int, batch: int) -> float:
        """A batch of prompts of 512 tokens, then 256 tokens of answer for each."""
        on = step(ranks)
        prompts = batch * on.prefill_steps_s(np.array(512.0), np.array(0.0), np.array(1.0))
        return float(prompts + 256 * on.decode_steps_s(np.array(float(batch)), np.array(640.0)))

    one, sharded = (64 * 256 / cycle_s(ranks, 64) for ranks in (1, 2))
    messages = next(
        item
        for item in operations(step(2).served, StepBatch(decode_contexts=(1.0,)))
        if item.name == "all-reduce"
    )
    alone = [float(step(r).decode_steps_s(np.array(1.0), np.array(640.0))) for r in (1, 2)]
    long_prompt = [
        float(step(r).prefill_steps_s(np.array(4096.0), np.array(0.0), np.array(1.0)))
        for r in (1, 2)
    ]

    assert (messages.count, messages.activation_bytes / messages.count) == (64, 8192)
    assert table is not None
    assert float(table.seconds(np.array(8192.0))) < 1.5 * table.floor_s
    # What was measured, in order: one card, two together, two apart.
    assert measured["1 gpu"] < measured["tp2"] < measured["2 replicas"]
    assert one < sharded < 2 * one
    # Two together halve what decoding alone waits for, and little of a long prompt.
    assert alone[1] < 0.7 * alone[0]
    assert long_prompt[0] / long_prompt[1] < 1.25
