"""A model as it is served, priors by card, defaults of the engine, and what a machine refuses."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Source
from advisor.hardware import CATALOGUE, DeviceFacts, all_reduce
from advisor.llm import read_config, weight_format
from advisor.roofline.engine_defaults import EngineDefaults, Usage, engine_defaults
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.efficiency import machine, prior_efficiency, product_units
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.operations import Kind, operations
from advisor.roofline.step.prediction import predict_step, roofline_step
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel, served_model
from advisor.serving import Levers, ServingConfig, WeightQuantization
from tests.fakes import model_configs
from tests.fakes.planted_world import DEVICE, MODEL, estimate
from tests.fakes.published_models import DEEPSEEK_V3, LLAMA_31_8B, QWEN3_NEXT_80B

H100 = CATALOGUE["h100-sxm"].facts


def facts(key: str) -> DeviceFacts:
    """A card of the catalogue."""
    return CATALOGUE[key].facts


def test_a_configuration_says_how_a_model_is_served() -> None:
    """Dtype, quantization and cache dtype levers."""
    config = ServingConfig(
        levers=Levers(
            dtype="float16", quantization=WeightQuantization(scheme="W8A8"), kv_cache_dtype="fp8"
        )
    )
    served = served_model(LLAMA_31_8B, config)

    assert (served.computed_dtype, served.element_bytes) == ("float16", 2)
    assert (served.format.name, served.packed) == ("W8A8", True)
    assert served.cache_token_bytes == 65_536
    assert served_model(LLAMA_31_8B, ServingConfig()).cache_token_bytes == 131_072


def test_key_value_heads_are_copied_where_ranks_outnumber_them() -> None:
    """Case M-12: sixteen ranks hold as much of eight heads as eight ranks."""
    halves = [
        ServedModel(model=LLAMA_31_8B, tensor_parallel_size=ranks).cache_token_bytes
        for ranks in (1, 2, 8, 16)
    ]

    assert halves == [131_072, 65_536, 16_384, 16_384]


def test_a_latent_cache_is_whole_on_every_rank() -> None:
    """Handbook 2.1: 70,272 bytes per token for DeepSeek-V3, on one rank as on eight."""
    sizes = [
        ServedModel(
            model=DEEPSEEK_V3, dtype="bfloat16", tensor_parallel_size=ranks
        ).cache_token_bytes
        for ranks in (1, 8)
    ]

    assert sizes == [70_272, 70_272]


def test_a_recurrent_state_is_read_and_written_whatever_the_context() -> None:
    """Qwen3-Next keeps a state per request in three layers of four."""
    served = ServedModel(model=QWEN3_NEXT_80B)
    short, long = (
        sum(
            item.cache_bytes
            for item in operations(served, StepBatch(decode_contexts=(context,)))
            if item.name.startswith("gated_delta")
        )
        for context in (1.0, 100_000.0)
    )

    assert short == long == pytest.approx(2 * 36 * 1_097_728)


@pytest.mark.parametrize(
    "build,field",
    [
        (lambda: ServedModel(model=LLAMA_31_8B, tensor_parallel_size=0), "tensor_parallel_size"),
        (lambda: ServedModel(model=LLAMA_31_8B, routing=estimate(0.5, 0.0, 1.0)), "routing"),
        (lambda: Machine(bandwidth_bytes_per_s=0, rate_flops_per_s=1), "bandwidth"),
        (lambda: Machine(bandwidth_bytes_per_s=1, rate_flops_per_s=1, memory=0), "memory"),
        (lambda: Machine(bandwidth_bytes_per_s=1, rate_flops_per_s=1, overlap=2), "overlap"),
    ],
)
def test_what_cannot_be_served_is_refused(build: object, field: str) -> None:
    """By the name of the field."""
    assert callable(build)
    with pytest.raises(InvalidInput, match=field):
        build()


def test_several_ranks_need_a_table_of_messages() -> None:
    """Unknown links are not free."""
    served = ServedModel(model=LLAMA_31_8B, tensor_parallel_size=2)
    with pytest.raises(InvalidInput, match="all_reduce"):
        roofline_step(served, H100, prior_efficiency(H100))
    table = all_reduce("h100-sxm", 2)
    step = roofline_step(served, H100, prior_efficiency(H100), all_reduce=table)
    one = roofline_step(ServedModel(model=LLAMA_31_8B), H100, prior_efficiency(H100))
    batch = StepBatch(decode_contexts=(1024.0,) * 8)

    assert 0.5 * one.seconds(batch) < step.seconds(batch) < one.seconds(batch)
    assert any(item.kind is Kind.MESSAGE for item in operations(served, batch))


def test_measured_kernels_narrow_the_prior() -> None:
    """A card with measured kernels knows more than one without; a sibling lies between."""

    def width(key: str) -> float:
        share = prior_efficiency(facts(key)).memory
        return (share.high - share.low) / share.value

    assert width("h100-sxm") < width("gh200-96") < width("rtx-4090")
    assert prior_efficiency(H100).memory.value == pytest.approx(0.86)
    assert prior_efficiency(H100).compute.value == pytest.approx(0.81)


def test_shares_refer_to_the_bandwidth_they_were_fitted_with() -> None:
    """B200: 0.82 of 7,700 GB/s, where the catalogue's best figure is 8,000."""
    device = facts("b200")
    share = prior_efficiency(device).memory.value

    assert share * device.bandwidth_bytes_per_s.value == pytest.approx(0.82 * 7.7e12)


def test_a_measured_device_keeps_the_wide_prior_whatever_its_name() -> None:
    """Shares of datasheet peaks do not apply to measured rates."""
    measured = replace(
        H100,
        bandwidth_bytes_per_s=estimate(2.9e12, 2.8e12, 3.0e12),
        matrix_rate_flops_per_s={"bfloat16": estimate(7e14, 6e14, 7.5e14)},
    )

    assert measured.bandwidth_bytes_per_s.source is Source.MEASURED
    assert prior_efficiency(measured).memory == prior_efficiency(DEVICE).memory


def test_a_processor_leaves_activations_to_its_shares() -> None:
    """What was assumed for it holds them already: nothing is counted twice."""
    shares = prior_efficiency(DEVICE)

    assert (shares.traffic.high, shares.launch_s.high, shares.request_s.high) == (0, 0, 0)
    assert prior_efficiency(H100).traffic.value > 0


@pytest.mark.parametrize(
    "key,scheme,units,runs",
    [
        ("h100-sxm", "fp8", "float8", "fp8"),
        ("a100-80-sxm", "fp8", "bfloat16", "W8A16"),
        ("h100-sxm", "nvfp4", "bfloat16", "W4A16"),
        ("b200", "nvfp4", "float4", "nvfp4"),
        ("h100-sxm", "W4A16", "bfloat16", "W4A16"),
        ("l40s", "W8A8", "int8", "W8A8"),
    ],
)
def test_units_follow_the_hardware(key: str, scheme: str, units: str, runs: str) -> None:
    """Traps 11 and 12 of handbook 13: narrow floats without their units are unpacked."""
    served = ServedModel(model=LLAMA_31_8B, weights=weight_format(scheme))
    found, weights = product_units(facts(key), served)

    assert (found, weights.name) == (units, runs)


def test_a_processor_without_8_bit_floats_cannot_run_them() -> None:
    """No fallback where an engine has none."""
    served = ServedModel(model=MODEL, weights=weight_format("fp8"))
    with pytest.raises(UnknownName, match="float8"):
        machine(DEVICE, served, prior_efficiency(DEVICE))


@pytest.mark.parametrize("key,context,least,most", [("h100-sxm", 16384.0, 1.5, 2.0)])
def test_a_narrow_cache_speeds_attention_by_less_than_two(
    key: str, context: float, least: float, most: float
) -> None:
    """Handbook 7.2: 1.6 to 1.8 on H100, as measured kernels say."""
    device = facts(key)
    attention_s = []
    for cache in (None, "fp8"):
        served = ServedModel(model=LLAMA_31_8B, kv_cache_dtype=cache)
        step = roofline_step(served, device, prior_efficiency(device))
        fixed = 32 * step.machine.attention_latency_s
        attention_s.append(float(step.decode_s(np.array(32.0), np.array(context))) + fixed)

    assert least < attention_s[0] / attention_s[1] < most


@pytest.mark.parametrize(
    "key,usage,seqs,tokens",
    [
        ("h100-sxm", "server", 1024, 8192),
        ("h100-sxm", "offline", 1024, 16384),
        ("a100-80-sxm", "server", 256, 2048),
        ("a100-80-pcie", "offline", 256, 8192),
        ("b200", "server", 1024, 16384),
        ("l40s", "server", 256, 2048),
        ("h200-sxm", "server", 1024, 8192),
    ],
)
def test_the_engine_s_defaults_depend_on_the_card(
    key: str, usage: Usage, seqs: int, tokens: int
) -> None:
    """Handbook 5.3: by memory, and an A100 counts as small."""
    expected = EngineDefaults(max_num_seqs=seqs, max_num_batched_tokens=tokens)

    assert engine_defaults(facts(key), usage) == expected


def test_the_engine_s_defaults_on_a_processor() -> None:
    """Fewer slots for the server."""
    assert engine_defaults(DEVICE) == EngineDefaults(max_num_seqs=128, max_num_batched_tokens=2048)
    assert engine_defaults(DEVICE, "offline").max_num_seqs == 256


def test_a_prediction_names_what_it_leaves_out() -> None:
    """With the notes of a model that was not understood in full."""
    odd = replace(LLAMA_31_8B, notes=("an unknown layer counted as attention",))
    batch = StepBatch(decode_contexts=(100.0,))
    found = predict_step(ServedModel(model=odd), H100, batch, prior_efficiency(H100))

    assert "an unknown layer counted as attention" in found.not_modelled
    assert any("graph" in phrase for phrase in found.not_modelled)
    assert found.source is Source.ROOFLINE


def test_host_work_is_hidden_by_async_scheduling() -> None:
    """The longer of device and host instead of their sum."""
    served = ServedModel(model=LLAMA_31_8B)
    slow = replace(machine(H100, served, prior_efficiency(H100)), overhead_s=5e-3)
    batch = StepBatch(decode_contexts=(100.0,))
    after = RooflineStep(served=served, machine=slow)
    beside = RooflineStep(served=served, machine=replace(slow, async_scheduling=True))

    assert beside.seconds(batch) == pytest.approx(after.seconds(batch) - 5e-3 - slow.request_s)


def test_reading_and_computing_add_up_without_overlap() -> None:
    """Handbook 3.3: real engines lie between the longer of both and their sum."""
    served = ServedModel(model=LLAMA_31_8B)
    base = Machine(bandwidth_bytes_per_s=3e12, rate_flops_per_s=1e15)
    tokens = np.array([256.0])
    longer, half, both = (
        RooflineStep(served=served, machine=replace(base, overlap=share)).dense_s(tokens)[0]
        for share in (1.0, 0.5, 0.0)
    )
    read_s = LLAMA_31_8B.linear_bytes() / 3e12
    computed_s = 2 * LLAMA_31_8B.linear_parameters * 256 / 1e15

    assert longer == pytest.approx(max(read_s, computed_s))
    assert both == pytest.approx(read_s + computed_s)
    assert half == pytest.approx((longer + both) / 2)


@pytest.mark.parametrize("name", [name for name in dir(model_configs) if name.isupper()])
def test_every_published_model_has_all_its_matrices(name: str) -> None:
    """Whatever the layers: FLOP of one token against the exact count."""
    config = getattr(model_configs, name)
    if not isinstance(config, dict):
        pytest.skip("no single configuration")
    model = read_config(config)
    served = ServedModel(model=model)
    found = operations(served, StepBatch(decode_contexts=(1.0,)), routing=1.0)
    products = [item for item in found if item.kind is Kind.LINEAR]

    assert sum(item.flops for item in products) == pytest.approx(2 * model.active_linear_parameters)
    assert sum(item.weight_bytes for item in products) == pytest.approx(
        model.linear_bytes(1, served.computed_dtype)
    )
