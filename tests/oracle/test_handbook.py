"""Worked examples from outside: published parameter counts, the founding examples, formulas."""

import json
from pathlib import Path

import numpy as np
import pytest

from advisor.estimate import Estimate, Source
from advisor.hardware import H100_SXM, DeviceFacts
from advisor.measurement.knee import Curves
from advisor.measurement.quality import design_effect
from advisor.measurement.saturation import fit_saturation
from advisor.roofline.batching import knee_tokens
from advisor.roofline.calibration import StepCalibration
from advisor.roofline.cost import decode_floor_s
from advisor.roofline.memory import (
    contiguous_utilisation,
    kv_capacity,
    occupancy,
    paged_utilisation,
)
from advisor.roofline.speculation import (
    acceptance_from_survival,
    batch_speedup,
    best_draft_tokens,
    best_draft_tokens_measured,
    break_even_acceptance,
    break_even_batch,
    expected_tokens,
    operations_factor,
    speedup,
    tokens_from_survival,
)
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.efficiency import exact_efficiency
from advisor.roofline.step.prediction import roofline_step, speed_of_light
from advisor.roofline.step.served import ServedModel
from advisor.traffic.statistics.gangs import resampled_static_waste, static_waste
from advisor.units import GIB
from tests.fakes.planted_ladder import counters, load_point
from tests.fakes.published_models import LLAMA_31_8B


def test_cache_bytes_per_token() -> None:
    """T2.1: 32 layers of 8 key-value heads of 128, two tensors, two bytes."""
    assert LLAMA_31_8B.kv_bytes_per_token() == 131_072


def test_cache_capacity_equals_the_engines_own() -> None:
    """T2.2: blocks, tokens and concurrency as installed code computes them for 40 GiB."""
    wide = kv_capacity(available_bytes=40 * GIB, bytes_per_token=131_072, block_size=16)
    narrow = kv_capacity(available_bytes=40 * GIB, bytes_per_token=65_536, block_size=16)

    assert (wide.bytes_per_block, wide.num_blocks, wide.tokens) == (2_097_152, 20_480, 327_680)
    assert wide.max_concurrency(131_072) == 2.5
    assert wide.max_concurrency(8192) == 40.0
    assert (narrow.num_blocks, narrow.max_concurrency(8192)) == (40_960, 80.0)
    assert wide.requests(1024) == 319


def test_cache_capacity_of_a_tiny_model_on_a_cpu() -> None:
    """T2.7: blocks of 128 tokens."""
    bytes_per_token = 2 * 4 * 2 * 32 * 2
    tiny = kv_capacity(available_bytes=GIB, bytes_per_token=bytes_per_token, block_size=128)

    assert (tiny.num_blocks, tiny.tokens, tiny.max_concurrency(2048)) == (8192, 1_048_576, 512)


def test_waste_of_a_contiguous_and_a_paged_cache() -> None:
    """T2.8: three lengths in slots of 8,192 tokens against blocks of 16."""
    lengths = [300, 900, 2000]

    assert contiguous_utilisation(lengths, 8192) == pytest.approx(0.130, abs=5e-4)
    assert paged_utilisation(lengths, 16) == pytest.approx(0.995, abs=5e-4)


def test_requests_in_a_contiguous_and_a_paged_cache() -> None:
    """T2.8 on a cache of 40 slots: contiguous reservation holds 40, blocks hold eight times that.

    One block of 20,480 is the null block.
    """
    lengths = [300, 900, 2000]
    found = occupancy(
        mean_tokens=sum(lengths) / 3,
        paged_share=paged_utilisation(lengths, 16),
        block_size=16,
        reserved_tokens=8192,
        kv_tokens=327_680,
    )

    assert found.contiguous_share == pytest.approx(contiguous_utilisation(lengths, 8192))
    assert found.contiguous_requests == 40.0
    assert found.paged_requests == pytest.approx(20_479 * 16 * 0.995 / (3200 / 3), rel=1e-3)


def test_the_ridge_of_an_h100() -> None:
    """T3.1 and T4.1: in FLOP per byte, and in tokens for 16-bit and 4-bit weights."""
    ridge = H100_SXM.ridge_flops_per_byte("bfloat16")

    assert ridge == pytest.approx(295.2, rel=1e-3)
    assert ridge * 0.81 / 0.86 == pytest.approx(278.0, rel=1e-3)
    assert knee_tokens(ridge, 2) == pytest.approx(295.2, rel=1e-3)
    assert knee_tokens(ridge, 0.515625) == pytest.approx(76.11, rel=1e-3)


def given(value: float) -> Estimate:
    """A known number."""
    return Estimate(value=value, low=value, high=value, source=Source.MEASURED, basis="given")


def test_saturation_of_an_affine_engine() -> None:
    """T4.4: 16,337 tokens/s at most, half of it at 115.9 and nine tenths at 1,043 requests."""
    step_s, each_s = 7.093e-3, 61.21e-6
    engine = StepCalibration(step_s=given(step_s), step_s_per_request=given(each_s))
    curve = Curves(
        step_s=np.array([step_s]),
        step_s_per_request=np.array([each_s]),
        cap=np.array([np.inf]),
        top=1e12,
    )

    assert engine.tokens_per_s(10**9).value == pytest.approx(16_337, rel=1e-4)
    assert engine.tokens_per_s(116).value == pytest.approx(16_337 / 2, rel=1e-3)
    assert curve.knee[0] == pytest.approx(1043, rel=1e-3)


def test_a_capped_ladder_of_the_reference() -> None:
    """Handbook 15.2: slots for 150 requests; nine tenths of the plateau with 119.6."""
    loads = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256)
    points = [
        load_point(n, min(n, 150) / (7.1e-3 + 61e-6 * min(n, 150)), counters=counters())
        for n in loads
    ]
    found = fit_saturation(points, max_num_seqs=None)

    assert found is not None
    assert found.step_s.value == pytest.approx(7.1e-3, rel=0.03)
    assert found.concurrency.value == pytest.approx(119.6, rel=0.03)


def test_tokens_of_one_answer_are_not_independent() -> None:
    """T7.6: 200 tokens with a correlation of 0.02 say as much as 200 / 4.98."""
    assert design_effect(200, 0.02) == pytest.approx(4.98)


def test_a_decode_step_of_64_requests() -> None:
    """T3.2: at the speed of light, and with measured kernel efficiencies."""
    batch = StepBatch(decode_contexts=(1024.0,) * 64)
    served = ServedModel(model=LLAMA_31_8B)
    light = speed_of_light(served, H100_SXM)
    shares = exact_efficiency(memory=0.86, compute=0.81, attention=0.81)
    kernels = roofline_step(served, H100_SXM, shares)

    assert light.seconds(batch) == pytest.approx(7.045e-3, rel=1e-3)
    assert kernels.seconds(batch) == pytest.approx(8.191e-3, rel=1e-3)


def test_a_prefill_in_the_step_cannot_hide_the_decodes() -> None:
    """T3.3: 64 decodes and a prompt of 2,048 tokens in one step."""
    batch = StepBatch(decode_contexts=(1024.0,) * 64, prefills=(Prefill(new_tokens=2048),))
    light = speed_of_light(ServedModel(model=LLAMA_31_8B), H100_SXM)

    assert light.seconds(batch) == pytest.approx(33.80e-3, rel=1e-4)


def test_waste_of_static_batches() -> None:
    """T5.1 and T5.3: one long request and three short ones."""
    lengths = [500, 20, 20, 20]

    assert static_waste(lengths) == pytest.approx(0.72)
    assert resampled_static_waste(lengths, 4) == pytest.approx(0.598, abs=5e-4)


def test_speculation_at_batch_one() -> None:
    """T6.1: expected tokens, gain, best draft length, arithmetic."""
    assert expected_tokens(0.8, 5) == pytest.approx(3.6893, rel=1e-4)
    assert speedup(0.8, 5, 0.05) == pytest.approx(2.9514, rel=1e-4)
    assert best_draft_tokens(0.8, 0.05) == 8
    assert speedup(0.8, 8, 0.05) == pytest.approx(3.0921, rel=1e-4)
    assert operations_factor(0.8, 5, 0.05) == pytest.approx(1.6941, rel=1e-4)


@pytest.mark.parametrize(
    "draft_tokens,draft_cost,acceptance", [(5, 0.1, 0.3343), (5, 0.05, 0.2001), (6, 0.2, 0.5526)]
)
def test_break_even_acceptance(draft_tokens: int, draft_cost: float, acceptance: float) -> None:
    """T6.2: the two thirds of the founding text are a rule of thumb, not a threshold."""
    assert break_even_acceptance(draft_tokens, draft_cost) == pytest.approx(acceptance, rel=1e-3)


def test_the_gain_at_two_thirds() -> None:
    """T6.2."""
    assert speedup(2 / 3, 5, 0.1) == pytest.approx(1.8244, rel=1e-4)


def test_measured_positions() -> None:
    """T6.3: acceptance length and the maximum-likelihood acceptance."""
    survival = (0.623, 0.382, 0.252)

    assert tokens_from_survival(survival) == pytest.approx(2.257)
    assert sum(survival) / 3 == pytest.approx(0.419, abs=5e-4)
    assert acceptance_from_survival(survival) == pytest.approx(0.627, abs=5e-4)


def test_speculation_in_a_batch() -> None:
    """T6.4: the gain falls with the batch at short context and never ends at long context."""
    step = {"fixed_s": 7.093e-3, "token_s": 2.101e-5, "draft_s": 2.14e-3}
    short, long = 3.926e-8 * 256, 3.926e-8 * 1024

    def gain(batch: int) -> float:
        return batch_speedup(
            batch=batch, tokens_per_verification=2.257, draft_tokens=3, context_s=short, **step
        )

    assert [gain(batch) for batch in (1, 64, 256)] == pytest.approx([1.724, 1.344, 1.019], rel=1e-3)
    assert break_even_batch(
        tokens_per_verification=2.257, draft_tokens=3, context_s=short, **step
    ) == pytest.approx(280.2, rel=1e-2)
    assert (
        break_even_batch(tokens_per_verification=2.257, draft_tokens=3, context_s=long, **step)
        is None
    )


def peaks(*, flops_per_s: float, bytes_per_s: float) -> DeviceFacts:
    """A device of the founding texts."""

    def exact(value: float) -> Estimate:
        return Estimate(
            value=value, low=value, high=value, source=Source.LITERATURE, basis="founding text"
        )

    return DeviceFacts(
        name="example",
        kind="cuda",
        threads=None,
        memory_bytes=80 * 10**9,
        bandwidth_bytes_per_s=exact(bytes_per_s),
        matrix_rate_flops_per_s={"bfloat16": exact(flops_per_s)},
    )


@pytest.mark.parametrize("bits,floor_ms,tokens_per_s", [(16, 8, 125), (4, 2, 500)])
def test_an_8b_model_on_2_tb_per_s(bits: int, floor_ms: float, tokens_per_s: float) -> None:
    """Founding example: 16 GB of weights in 8 ms; a quarter of the bits, a quarter of the time."""
    floor_s = decode_floor_s(8e9 * bits / 8, 2e12)

    assert floor_s == pytest.approx(floor_ms / 1e3)
    assert 1 / floor_s == pytest.approx(tokens_per_s)


def test_a_ridge_of_about_330() -> None:
    """Founding example: 1000 TFLOP/s against 3 TB/s."""
    device = peaks(flops_per_s=1e15, bytes_per_s=3e12)

    assert device.ridge_flops_per_byte("bfloat16") == pytest.approx(330, rel=0.02)


def test_k_proposals_with_five_accepted_are_six_tokens() -> None:
    """Founding example: the pass that verifies yields a token of its own."""
    assert expected_tokens(1.0, 5) == 6
    assert tokens_from_survival((1.0,) * 5) == 6


def test_one_long_request_and_three_short_ones_waste_about_three_quarters() -> None:
    """Founding example: at best, with short ones much shorter."""
    assert static_waste([1000, 1, 1, 1]) == pytest.approx(0.75, abs=0.01)
    assert static_waste([500, 20, 20, 20]) == pytest.approx(0.75, abs=0.05)


def case(shared: Path, name: str) -> dict[str, object]:
    """The input of one user case."""
    loaded = json.loads((shared / "cases" / name).read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_case_s_16_the_best_draft_length_comes_from_positions(shared: Path) -> None:
    """Not from the acceptance rate, which falls as the draft grows."""
    positions = case(shared, "s16_per_position.json")["per_position"]
    assert isinstance(positions, list)
    tokens = [round(tokens_from_survival(positions[:k]), 2) for k in (1, 2, 3, 4, 5, 10)]
    best = [best_draft_tokens_measured(positions, cost) for cost in (0.02, 0.05, 0.1, 0.2)]

    assert tokens == [1.74, 2.28, 2.69, 2.99, 3.21, 3.64]
    assert best == [8, 6, 5, 3]


def test_case_s_17_the_first_miss_ends_the_draft(shared: Path) -> None:
    """0.8 per token is 53.8 % of five tokens, not four of them."""
    given = case(shared, "s17_formula.json")
    tokens = expected_tokens(float(str(given["per_token_acceptance"])), 5)

    assert tokens == pytest.approx(3.689, abs=5e-4)
    assert (tokens - 1) / 5 == pytest.approx(0.538, abs=5e-4)
