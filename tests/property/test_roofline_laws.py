"""Laws of the step model, the cache and speculation, for any model, device and batch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.estimate import Estimate
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.llm.mixers import Attention
from advisor.measurement.acceptance import wilson
from advisor.measurement.latency import quantiles
from advisor.roofline.cost import Cost
from advisor.roofline.memory import contiguous_utilisation, paged_utilisation
from advisor.roofline.speculation import expected_tokens, speedup
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.efficiency import exact_efficiency, prior_efficiency
from advisor.roofline.step.operations import Kind, operations
from advisor.roofline.step.prediction import predict_step, roofline_step
from advisor.roofline.step.served import ServedModel
from advisor.roofline.throughput import TrafficShape, predict_gain, predict_throughput
from advisor.serving import Levers, ServingConfig
from advisor.traffic.statistics.gangs import static_waste
from tests.fakes.planted_world import DEVICE, MODEL, estimate

EXACT = exact_efficiency(memory=0.8, compute=0.7, attention=0.4)
amounts = st.floats(0, 1e18)
costs = st.builds(lambda flops, moved: Cost(flops=flops, bytes=moved), amounts, amounts)
prefills = st.builds(
    lambda new, cached: Prefill(new_tokens=new, cached_tokens=cached),
    st.integers(1, 4096),
    st.integers(0, 4096),
)
batches = st.builds(
    lambda contexts, prompts, drafts: StepBatch(
        decode_contexts=tuple(contexts), prefills=tuple(prompts), draft_tokens=drafts
    ),
    st.lists(st.floats(1, 8192), min_size=1, max_size=32),
    st.lists(prefills, max_size=3),
    st.integers(0, 8),
)
models = st.builds(
    lambda groups, kv_heads, layers: replace(
        MODEL,
        layers=(
            replace(
                MODEL.layers[0],
                count=layers,
                mixer=Attention(heads=groups * kv_heads, kv_heads=kv_heads, head_dim=64),
            ),
        ),
    ),
    st.integers(1, 8),
    st.integers(1, 8),
    st.integers(1, 48),
)
shapes = st.builds(
    lambda prompt, output, share: TrafficShape(
        prompt_tokens=prompt, output_tokens=output, cached_share=estimate(share, share, share)
    ),
    st.floats(1, 4096),
    st.floats(1, 1024),
    st.floats(0, 1),
)


def seconds(batch: StepBatch, model: ModelShape = MODEL, device: DeviceFacts = DEVICE) -> float:
    """Time of a step with known efficiencies and no overhead."""
    return roofline_step(ServedModel(model=model), device, EXACT).seconds(batch)


def scaled(value: Estimate, factor: float) -> Estimate:
    """An estimate times a factor."""
    return estimate(value.value * factor, value.low * factor, value.high * factor)


@given(costs, costs)
def test_fusing_never_takes_longer_than_running_apart(first: Cost, second: Cost) -> None:
    """Time is subadditive."""
    rates = {"rate_flops_per_s": 3e12, "bandwidth_bytes_per_s": 2e11}
    apart = first.time_s(**rates) + second.time_s(**rates)

    assert (first + second).time_s(**rates) <= apart * (1 + 1e-12)


@given(models, batches, batches)
def test_one_mixed_step_never_takes_longer_than_two(
    model: ModelShape, first: StepBatch, second: StepBatch
) -> None:
    """Weights are read once per step, however mixed the batch."""
    mixed = StepBatch(
        decode_contexts=first.decode_contexts + second.decode_contexts,
        prefills=first.prefills + second.prefills,
    )
    plain = [replace(batch, draft_tokens=0.0) for batch in (first, second)]
    apart = sum(seconds(batch, model) for batch in plain)

    assert seconds(mixed, model) <= apart * (1 + 1e-12)
    weights = [
        sum(operation.weight_bytes for operation in operations(ServedModel(model=model), batch))
        for batch in (mixed, plain[0])
    ]
    assert weights[0] == weights[1]


@given(batches, st.floats(1, 8192), prefills)
def test_more_work_never_takes_less_time(batch: StepBatch, context: float, chunk: Prefill) -> None:
    """Monotone in requests, prompt chunks and drafts."""
    base = seconds(batch)
    more = (
        replace(batch, decode_contexts=(*batch.decode_contexts, context)),
        replace(batch, prefills=(*batch.prefills, chunk)),
        replace(batch, draft_tokens=batch.draft_tokens + 1),
    )

    assert all(seconds(larger) >= base for larger in more)


@given(batches)
def test_doubling_both_peaks_halves_the_time(batch: StepBatch) -> None:
    """There is no third resource."""
    rates = DEVICE.matrix_rate_flops_per_s
    doubled = replace(
        DEVICE,
        bandwidth_bytes_per_s=scaled(DEVICE.bandwidth_bytes_per_s, 2),
        matrix_rate_flops_per_s={dtype: scaled(rate, 2) for dtype, rate in rates.items()},
    )

    assert seconds(batch, device=doubled) == pytest.approx(seconds(batch) / 2)


@given(batches, st.floats(0, 0.1))
def test_overhead_adds_to_the_sum_of_the_operations(batch: StepBatch, overhead_s: float) -> None:
    """The total is the sum of its parts."""
    fixed = exact_efficiency(memory=0.8, compute=0.7, attention=0.4, overhead_s=overhead_s)
    bandwidth = DEVICE.bandwidth_bytes_per_s.value * 0.8
    rate = DEVICE.rate("bfloat16").value
    shares = {
        Kind.LINEAR: 0.7,
        Kind.HEAD: 0.7,
        Kind.DECODE_ATTENTION: 0.4,
        Kind.PREFILL_ATTENTION: 0.4,
    }
    served = ServedModel(model=MODEL)
    whole = [
        operation
        for operation in operations(served, batch)
        if operation.kind is not Kind.PREFILL_ATTENTION
    ]
    chunks = [
        operation
        for chunk in batch.prefills
        for operation in operations(served, StepBatch(prefills=(chunk,)))
        if operation.kind is Kind.PREFILL_ATTENTION
    ]
    parts = [
        operation.cost.time_s(
            rate_flops_per_s=rate * shares[operation.kind], bandwidth_bytes_per_s=bandwidth
        )
        for operation in (*whole, *chunks)
        if operation.kind in shares
    ]

    step = roofline_step(served, DEVICE, fixed)
    assert step.seconds(batch) == pytest.approx(sum(parts) + overhead_s)


@given(batches)
def test_a_step_lies_in_its_interval(batch: StepBatch) -> None:
    """Whatever the ranges."""
    span = predict_step(ServedModel(model=MODEL), DEVICE, batch, prior_efficiency(DEVICE))

    assert 0 < span.low <= span.value <= span.high


@given(shapes, st.integers(1, 64))
def test_more_in_flight_never_yields_less(shape: TrafficShape, concurrency: int) -> None:
    """A closed loop's throughput rises with its load until a limit binds."""
    rates = [
        predict_throughput(
            MODEL, DEVICE, ServingConfig(), shape=shape, concurrency=load, efficiency=EXACT
        ).value
        for load in (concurrency, concurrency + 1)
    ]

    assert rates[1] >= rates[0] * (1 - 1e-12)


@given(shapes, st.integers(1, 32))
def test_a_cache_never_slows_the_roofline(shape: TrafficShape, concurrency: int) -> None:
    """It only removes prefill work; its own cost is not in the model."""
    uncached = ServingConfig(levers=Levers(enable_prefix_caching=False))
    gain = predict_gain(
        MODEL, DEVICE, (uncached, ServingConfig()), shape=shape, concurrency=concurrency
    )

    assert gain.low >= 1 - 1e-9


@given(shapes, st.integers(1, 32))
def test_undoing_a_change_undoes_its_gain(shape: TrafficShape, concurrency: int) -> None:
    """There and back is where we were."""
    wide = ServingConfig(levers=Levers(dtype="float32"))
    there, back = (
        predict_gain(MODEL, DEVICE, configs, shape=shape, concurrency=concurrency)
        for configs in ((ServingConfig(), wide), (wide, ServingConfig()))
    )

    assert there.value * back.value == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)


lengths = st.lists(st.integers(1, 4096), min_size=1, max_size=50)


@given(lengths, st.integers(1, 256))
def test_paging_never_wastes_more_than_one_block_per_request(
    found: list[int], block_size: int
) -> None:
    """And with blocks no longer than a slot it never wastes more than slots do."""
    paged = paged_utilisation(found, block_size)
    reserved = sum(found) / paged

    assert 0 < paged <= 1
    assert reserved - sum(found) <= len(found) * block_size
    assert contiguous_utilisation(found, 4096) <= paged_utilisation(found, 1)


@given(lengths)
def test_a_static_batch_of_equal_requests_wastes_nothing(found: list[int]) -> None:
    """Waste is a share, and zero only when all are as long as the longest."""
    assert 0 <= static_waste(found) < 1
    assert static_waste([max(found)] * len(found)) == pytest.approx(0)


@given(st.floats(0, 1), st.integers(0, 16), st.floats(0, 1))
def test_speculation_yields_between_one_and_k_plus_one_tokens(
    acceptance: float, draft_tokens: int, cost: float
) -> None:
    """The bonus token always comes; a draft that costs nothing never loses."""
    assert 1 <= expected_tokens(acceptance, draft_tokens) <= draft_tokens + 1
    assert speedup(acceptance, draft_tokens, 0.0) >= 1
    assert speedup(acceptance, draft_tokens, cost) <= speedup(acceptance, draft_tokens, 0.0)


known = st.lists(st.floats(0, 1e6) | st.none(), min_size=1, max_size=60)


@given(known, st.randoms(use_true_random=False))
def test_percentiles_rise_and_do_not_depend_on_the_order(
    values: list[float | None], shuffler: object
) -> None:
    """Unknown values take no part."""
    shuffled = list(values)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    found, again = quantiles(values), quantiles(shuffled)

    assert (found is None) is all(value is None for value in values)
    if found is not None and again is not None:
        assert found.p5 <= found.p25 <= found.p50 <= found.p75 <= found.p95 <= found.max
        assert found.count + found.unknown == len(values)
        assert replace(again, mean=found.mean) == found


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_share_lies_in_its_interval_within_zero_and_one(counts: tuple[int, int]) -> None:
    """Wilson's score interval."""
    share = wilson(*counts)

    assert 0 <= share.low <= share.value <= share.high <= 1
