"""Cost, step, cache and efficiency, piece by piece."""

import math

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Source
from advisor.hardware import DATASHEETS
from advisor.roofline.cost import Cost
from advisor.roofline.memory import kv_capacity
from advisor.roofline.speculation import (
    batch_speedup,
    best_draft_tokens,
    break_even_acceptance,
    break_even_batch,
    expected_tokens,
)
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.efficiency import (
    FAST,
    SLOW,
    Efficiency,
    Level,
    assumed_start_s,
    exact_efficiency,
    machine,
    prior_efficiency,
)
from advisor.roofline.step.operations import Kind, Operation, operations
from advisor.roofline.step.prediction import predict_step
from advisor.roofline.step.served import ServedModel
from tests.fakes.planted_world import DEVICE, MODEL, estimate

SERVED = ServedModel(model=MODEL)


def of_kind(batch: StepBatch, kind: Kind) -> Operation:
    """The first operation of a kind in a step."""
    return next(found for found in operations(SERVED, batch) if found.kind is kind)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_a_cost_is_a_finite_amount(amount: float) -> None:
    """Negative work and NaN are refused where they arise."""
    with pytest.raises(InvalidInput):
        Cost(flops=amount)
    with pytest.raises(InvalidInput):
        Cost(bytes=amount)


def test_a_cost_is_compute_bound_above_the_ridge() -> None:
    """Intensity against the ridge."""
    assert Cost(flops=11, bytes=1).is_compute_bound(ridge_flops_per_byte=10)
    assert not Cost(flops=9, bytes=1).is_compute_bound(ridge_flops_per_byte=10)


def test_an_empty_step_takes_no_time() -> None:
    """No request, no overhead."""
    assert predict_step(SERVED, DEVICE, StepBatch(), prior_efficiency(DEVICE)).value == 0.0
    assert operations(SERVED, StepBatch()) == ()


def test_a_step_lies_between_its_fast_and_its_slow_end() -> None:
    """The interval spans the ranges of the device and of the efficiencies."""
    batch = StepBatch(decode_contexts=(100.0,) * 8)
    span = predict_step(SERVED, DEVICE, batch, prior_efficiency(DEVICE))

    assert 0 < span.low < span.value < span.high
    assert span.source is Source.ROOFLINE


def test_verification_reads_the_cache_once_and_multiplies_it_more_often() -> None:
    """The positions that a request verifies share its cache read."""
    plain = StepBatch(decode_contexts=(100.0,))
    verifying = StepBatch(decode_contexts=(100.0,), draft_tokens=4)
    before, after = (of_kind(batch, Kind.DECODE_ATTENTION) for batch in (plain, verifying))

    assert after.cache_bytes == before.cache_bytes
    assert after.flops == 5 * before.flops
    assert of_kind(verifying, Kind.HEAD).flops == 5 * of_kind(plain, Kind.HEAD).flops


def test_the_head_runs_on_one_row_per_prompt_chunk() -> None:
    """Never on every prompt token (handbook 1.2)."""
    head = of_kind(StepBatch(prefills=(Prefill(new_tokens=512),)), Kind.HEAD)

    assert head.flops == 2 * MODEL.head_parameters


@pytest.mark.parametrize(
    "build",
    [
        lambda: Prefill(new_tokens=0),
        lambda: Prefill(new_tokens=1, cached_tokens=-1),
        lambda: StepBatch(draft_tokens=-1),
        lambda: StepBatch(decode_contexts=(-1.0,)),
    ],
    ids=["empty chunk", "negative cache", "negative draft", "negative context"],
)
def test_a_batch_cannot_be_wrong(build: object) -> None:
    """Negative tokens are refused."""
    assert callable(build)
    with pytest.raises(InvalidInput):
        build()


def test_a_measured_device_is_assumed_closer_to_its_figures_than_a_datasheet() -> None:
    """A micro-benchmark's rate is already an achieved one."""
    measured, datasheet = prior_efficiency(DEVICE), prior_efficiency(DATASHEETS["rtx-4090"])

    assert measured.compute.value > datasheet.compute.value
    assert measured.memory.value > datasheet.memory.value
    assert measured.overhead_s.value > datasheet.overhead_s.value


def test_high_is_the_fast_end_of_everything() -> None:
    """More bandwidth and less overhead."""
    shares = prior_efficiency(DEVICE)
    fast, slow = (machine(DEVICE, SERVED, shares, levels) for levels in (FAST, SLOW))

    assert fast.bandwidth_bytes_per_s * fast.memory > slow.bandwidth_bytes_per_s * slow.memory
    assert fast.rate_flops_per_s * fast.compute > slow.rate_flops_per_s * slow.compute
    assert fast.overhead_s < slow.overhead_s


def test_every_level_names_a_point_of_the_range() -> None:
    """Low, value, high."""
    spread = estimate(2, 1, 3)

    assert [level.of(spread) for level in Level] == [1, 2, 3]


def test_a_rate_that_nobody_measured_is_an_error() -> None:
    """A dtype without a rate must not borrow another's."""
    with pytest.raises(UnknownName, match="float16"):
        machine(DEVICE, ServedModel(model=MODEL, dtype="float16"), exact_efficiency())


def test_an_efficiency_far_from_its_peak_means_the_peak_is_wrong() -> None:
    """Handbook 3.3 gives the bounds of a sane fit."""
    with pytest.raises(InvalidInput, match="memory"):
        exact_efficiency(memory=1.2)
    with pytest.raises(InvalidInput, match="overhead"):
        exact_efficiency(overhead_s=-1.0)
    assert isinstance(exact_efficiency(memory=1.05), Efficiency)


def test_compiling_takes_longer_to_start() -> None:
    """Only for planning until a start was timed."""
    assert assumed_start_s(DEVICE, eager=False) > assumed_start_s(DEVICE, eager=True)


def test_a_cache_without_a_block_for_tokens_is_refused() -> None:
    """One block is the null block."""
    with pytest.raises(InvalidInput, match="1 blocks"):
        kv_capacity(available_bytes=100, bytes_per_token=1, block_size=64)


def test_a_draft_that_costs_too_much_never_breaks_even() -> None:
    """Not even when every token is accepted."""
    assert break_even_acceptance(2, 2.0) is None
    assert best_draft_tokens(0.3, 2.0) == 0


@pytest.mark.parametrize("acceptance,draft_tokens", [(1.5, 2), (-0.1, 2), (0.5, -1)])
def test_speculation_needs_a_probability_and_a_length(acceptance: float, draft_tokens: int) -> None:
    """Refused rather than extrapolated."""
    with pytest.raises(InvalidInput):
        expected_tokens(acceptance, draft_tokens)


def test_the_gain_is_one_at_the_break_even_batch() -> None:
    """Two formulas, one truth."""
    step = {"fixed_s": 0.01, "token_s": 1e-4, "context_s": 1e-5, "draft_s": 1e-3}
    batch = break_even_batch(tokens_per_verification=2.0, draft_tokens=4, **step)

    assert batch is not None
    assert batch_speedup(
        batch=batch, tokens_per_verification=2.0, draft_tokens=4, **step
    ) == pytest.approx(1.0)
