"""Pictures beside measurement: the roofline of a workload, its cache, its calibrated steps."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source
from advisor.roofline.calibration import StepCalibration, cache_read_share, implied_shares
from advisor.roofline.memory import occupancy
from advisor.roofline.picture import roofline_points
from advisor.roofline.throughput import TrafficShape
from advisor.serving import Levers, ServingConfig
from tests.fakes.planted_world import DEVICE, MODEL, estimate

CONFIG = ServingConfig(levers=Levers(max_num_seqs=8))
SHAPE = TrafficShape(prompt_tokens=200, output_tokens=40)
RUNGS = ((1, 0.05), (4, 0.06), (16, None))


def known(value: float) -> Estimate:
    """A number without a range."""
    return estimate(value, value, value)


def test_each_phase_lies_under_the_roof_above_it() -> None:
    """One point for the prompt and one for each rung; intensity grows with the batch."""
    points = roofline_points(MODEL, DEVICE, CONFIG, shape=SHAPE, prefill_s=0.5, rungs=RUNGS)
    peak = DEVICE.rate("bfloat16").value
    bandwidth = DEVICE.bandwidth_bytes_per_s.value

    assert [(point.phase, point.concurrency) for point in points] == [
        ("prefill", 1),
        ("decode", 1),
        ("decode", 4),
        ("decode", 16),
    ]
    prefill, one, four, sixteen = points
    assert one.intensity_flops_per_byte < four.intensity_flops_per_byte
    assert prefill.intensity_flops_per_byte > sixteen.intensity_flops_per_byte
    for point in points:
        roof = min(peak, bandwidth * point.intensity_flops_per_byte)
        assert point.attainable_flops_per_s == pytest.approx(roof)


def test_what_is_achieved_is_arithmetic_over_measured_time() -> None:
    """Half the time, twice the rate; nothing measured, nothing achieved."""
    slow = roofline_points(MODEL, DEVICE, CONFIG, shape=SHAPE, prefill_s=None, rungs=RUNGS)
    fast = roofline_points(MODEL, DEVICE, CONFIG, shape=SHAPE, prefill_s=0.2, rungs=((1, 0.025),))

    assert slow[0].achieved_flops_per_s is None
    assert slow[3].achieved_flops_per_s is None
    assert slow[1].achieved_flops_per_s is not None
    assert fast[1].achieved_flops_per_s == pytest.approx(2 * slow[1].achieved_flops_per_s)
    assert fast[0].achieved_flops_per_s is not None


def test_a_batch_is_no_larger_than_the_slots() -> None:
    """Sixteen in flight on eight slots decode eight at a time."""
    at_eight, at_sixteen = roofline_points(
        MODEL, DEVICE, CONFIG, shape=SHAPE, prefill_s=None, rungs=((8, None), (16, None))
    )[1:]

    assert at_eight.intensity_flops_per_byte == at_sixteen.intensity_flops_per_byte


def test_a_dtype_that_nobody_measured_has_no_roof() -> None:
    """Never another dtype's."""
    config = ServingConfig(levers=Levers(dtype="float16"))
    with pytest.raises(UnknownName, match="float16"):
        roofline_points(MODEL, DEVICE, config, shape=SHAPE, prefill_s=None, rungs=())


def test_a_calibrated_step_predicts_pace_and_throughput() -> None:
    """20 ms and 2 ms a request: ten of them take 40 ms and yield 250 tokens/s."""
    engine = StepCalibration(step_s=known(0.020), step_s_per_request=known(0.002))

    assert engine.tpot_s(10).value == pytest.approx(0.040)
    assert engine.tokens_per_s(10).value == pytest.approx(250)
    assert engine.tokens_per_s(10).source is Source.CALIBRATED_ROOFLINE
    assert engine.tokens_per_s(10).low == pytest.approx(engine.tokens_per_s(10).high)


def test_a_cap_ends_what_a_calibrated_engine_yields() -> None:
    """Requests beyond the cap wait: pace and throughput stay."""
    engine = StepCalibration(
        step_s=estimate(0.020, 0.018, 0.022),
        step_s_per_request=estimate(0.002, 0.001, 0.003),
        cap=estimate(8, 7, 9),
    )
    at_cap, beyond = engine.tokens_per_s(16), engine.tokens_per_s(64)

    assert at_cap == beyond
    assert at_cap.value == pytest.approx(8 / 0.036)
    assert at_cap.low < at_cap.value < at_cap.high
    assert engine.tpot_s(16).low < 0.036 < engine.tpot_s(16).high
    with pytest.raises(InvalidInput, match="concurrency"):
        engine.tpot_s(0)


def test_a_calibration_that_beats_the_peaks_is_rejected() -> None:
    """Handbook 3.3: shares of the peaks from a tenth to 1.05."""
    weights_s = MODEL.step_weight_bytes("bfloat16") / DEVICE.bandwidth_bytes_per_s.value
    prompt = 2 * MODEL.linear_parameters * 200 + MODEL.prefill_attention_flops(200)
    flops = MODEL.flops_per_token() + MODEL.attention_flops(220) + prompt / 40
    request_s = flops / DEVICE.rate("bfloat16").value

    def rejected(memory: float, compute: float | None) -> str | None:
        found = implied_shares(
            MODEL,
            DEVICE,
            ServingConfig(),
            calibration=StepCalibration(
                step_s=known(weights_s / memory),
                step_s_per_request=known(request_s / compute if compute else 0.0),
            ),
            shape=SHAPE,
        )
        assert found.memory == pytest.approx(memory)
        assert found.compute == (None if compute is None else pytest.approx(compute))
        return found.rejected

    assert rejected(0.7, 0.6) is None
    assert rejected(0.7, None) is None
    assert rejected(1.5, 0.6) == "it implies 150% of the memory bandwidth"
    assert rejected(0.7, 0.05) == "it implies 5% of the matrix rate"
    both = rejected(0.05, 2.0)
    assert both is not None
    assert " and " in both


def test_cached_prompt_tokens_cost_no_arithmetic() -> None:
    """With the same context to read, the share of reading grows."""
    cached = replace(SHAPE, cached_share=known(0.8))
    plain = cache_read_share(MODEL, DEVICE, ServingConfig(), shape=SHAPE)

    assert 0 < plain < cache_read_share(MODEL, DEVICE, ServingConfig(), shape=cached) < 1


def test_a_long_context_is_bound_by_reading() -> None:
    """Handbook 4.1: T1 = c_t + c_kv s."""
    long = TrafficShape(prompt_tokens=4000, output_tokens=4000)
    short = TrafficShape(prompt_tokens=10, output_tokens=10)
    shares = [cache_read_share(MODEL, DEVICE, ServingConfig(), shape=s) for s in (short, long)]

    assert shares[0] < shares[1]


def test_a_cache_of_unknown_size_holds_an_unknown_number() -> None:
    """Not zero."""
    known_share = {"mean_tokens": 100.0, "paged_share": 0.9}
    found = occupancy(**known_share, block_size=16, reserved_tokens=1000, kv_tokens=None)
    tiny = occupancy(**known_share, block_size=16, reserved_tokens=1000, kv_tokens=16)

    assert (found.paged_share, found.contiguous_share) == (0.9, 0.1)
    assert (found.paged_requests, found.contiguous_requests) == (None, None)
    assert tiny.paged_requests is None


@pytest.mark.parametrize(
    "mean_tokens,paged_share,block_size", [(0, 0.9, 16), (2000, 0.9, 16), (9, 1.1, 16), (9, 1, 0)]
)
def test_an_occupancy_cannot_be_wrong(
    mean_tokens: float, paged_share: float, block_size: int
) -> None:
    """A mean above the reservation would not have been served."""
    with pytest.raises(InvalidInput):
        occupancy(
            mean_tokens=mean_tokens,
            paged_share=paged_share,
            block_size=block_size,
            reserved_tokens=1000,
            kv_tokens=5000,
        )
