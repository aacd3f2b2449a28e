"""Laws of the step model: its tables, its monotony, its floor, for any model and batch."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.hardware import CATALOGUE, all_reduce
from advisor.llm.feed_forward import DenseFeedForward, Experts
from advisor.llm.formats import FORMATS
from advisor.llm.mixers import Attention, GatedDeltaNet, LatentAttention, Mamba2, NoMixer
from advisor.llm.shape import LayerGroup, ModelShape
from advisor.roofline.cost import Cost
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.efficiency import exact_efficiency, machine, prior_efficiency
from advisor.roofline.step.operations import Kind, operations
from advisor.roofline.step.prediction import predict_step, roofline_step, speed_of_light
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.steptime import StepTables, TableLimits

LIMITS = TableLimits(max_tokens=8192, max_requests=256, max_context=16_384)
MIXERS = (
    Attention(heads=32, kv_heads=8, head_dim=128),
    Attention(heads=16, kv_heads=16, head_dim=64, window=1024),
    LatentAttention(
        heads=16, kv_rank=512, query_rank=None, nope_dim=128, rope_dim=64, value_dim=128
    ),
    Mamba2(inner=4096, heads=64, head_dim=64, state=128, groups=8, kernel=4),
    GatedDeltaNet(key_heads=16, value_heads=32, key_dim=128, value_dim=128, kernel=4),
    NoMixer(),
)
NETWORKS = (
    DenseFeedForward(intermediate=8192),
    Experts(experts=64, active=6, intermediate=1408, shared_intermediate=2816, shared_gate=True),
    Experts(experts=16, active=2, intermediate=1024, gated=False),
    None,
)
CARDS = ("a100-80-sxm", "h100-sxm", "l40s", "b200", "rtx-4090")
groups = st.builds(
    lambda count, mixer, network: LayerGroup(count=count, mixer=mixer, feed_forward=network),
    st.integers(1, 24),
    st.sampled_from(MIXERS),
    st.sampled_from(NETWORKS),
)
models = st.builds(
    lambda layers, tied: ModelShape(
        architecture="Any",
        hidden_size=2048,
        vocab_size=32_000,
        layers=tuple(layers),
        tied_embeddings=tied,
        dtype="bfloat16",
        max_position_embeddings=None,
    ),
    st.lists(groups, min_size=1, max_size=3),
    st.booleans(),
)
served_models = st.builds(
    lambda model, weights, cache, ranks, whole: ServedModel(
        model=model,
        weights=None if weights is None else FORMATS[weights],
        kv_cache_dtype=cache,
        tensor_parallel_size=ranks,
        expert_parallel=whole,
    ),
    models,
    st.sampled_from((None, "fp8", "W4A16", "nvfp4")),
    st.sampled_from((None, "fp8")),
    st.sampled_from((1, 2, 4)),
    st.booleans(),
)
prefills = st.builds(
    lambda new, cached: Prefill(new_tokens=new, cached_tokens=cached),
    st.integers(1, 2048),
    st.integers(0, 8192),
)
batches = st.builds(
    lambda count, context, prompts: StepBatch(
        decode_contexts=(float(context),) * count, prefills=tuple(prompts)
    ),
    st.integers(0, 128),
    st.integers(1, 16_384),
    st.lists(prefills, max_size=3),
).filter(lambda batch: batch.rows > 0)


def step_of(served: ServedModel, key: str) -> RooflineStep:
    """The step model with the card's prior; links of an H100 where the card has no table."""
    table = all_reduce(key, served.tensor_parallel_size) or all_reduce(
        "h100-sxm", served.tensor_parallel_size
    )
    device = CATALOGUE[key].facts
    return roofline_step(served, device, prior_efficiency(device), all_reduce=table)


def looked_up(tables: StepTables, batch: StepBatch) -> float:
    """A step by interpolation in tables, as the simulator does it."""

    def plane(grids: tuple[object, object], values: object, x: float, y: float) -> float:
        first, second = np.asarray(grids[0]), np.asarray(grids[1])
        columns = [np.interp(y, second, row) for row in np.asarray(values)]
        return float(np.interp(x, first, columns))

    device = np.interp(batch.tokens, tables.tokens, tables.dense_s)
    device += np.interp(batch.rows, tables.rows, tables.head_s)
    count = len(batch.decode_contexts)
    if count:
        mean = sum(batch.decode_contexts) / count
        device += plane((tables.requests, tables.contexts), tables.decode_s, count, mean)
    for chunk in batch.prefills:
        device += plane(
            (tables.new, tables.cached), tables.prefill_s, chunk.new_tokens, chunk.cached_tokens
        )
    host = tables.host_s + tables.host_request_s * batch.requests
    return float(max(device, host) if tables.async_scheduling else device + host)


@settings(max_examples=60)
@given(served_models, st.sampled_from(CARDS), st.lists(batches, min_size=1, max_size=5))
def test_tables_agree_with_the_step_they_tabulate(
    served: ServedModel, key: str, found: list[StepBatch]
) -> None:
    """Within 2 % on any batch inside the limits, tiles, experts and windows included."""
    step = step_of(served, key)
    tables = step.tables(LIMITS)

    for batch in found:
        assert looked_up(tables, batch) == pytest.approx(step.seconds(batch), rel=0.02)


@given(served_models, st.sampled_from(CARDS), batches, prefills)
def test_a_step_never_gets_shorter_with_more_to_do(
    served: ServedModel, key: str, batch: StepBatch, chunk: Prefill
) -> None:
    """In requests, contexts, prompt tokens, cached tokens and drafts."""
    step = step_of(served, key)
    longer = replace(chunk, new_tokens=chunk.new_tokens + 1)
    deeper = replace(chunk, cached_tokens=chunk.cached_tokens + 64)
    with_chunk = replace(batch, prefills=(*batch.prefills, chunk))
    base = step.seconds(batch)
    grown = [
        replace(batch, decode_contexts=(*batch.decode_contexts, 1.0)),
        replace(batch, decode_contexts=tuple(s + 64 for s in batch.decode_contexts)),
        replace(batch, draft_tokens=2.0),
        with_chunk,
    ]

    slack = 1 - 1e-9
    assert all(step.seconds(more) >= base * slack for more in grown)
    for more in (longer, deeper):
        extended = replace(batch, prefills=(*batch.prefills, more))
        assert step.seconds(extended) >= step.seconds(with_chunk) * slack


@given(served_models, st.sampled_from(CARDS), batches)
def test_no_prior_is_faster_than_light(served: ServedModel, key: str, batch: StepBatch) -> None:
    """The floor lies at or below the fast end of what is assumed."""
    device = CATALOGUE[key].facts
    table = all_reduce("h100-sxm", served.tensor_parallel_size)
    floor_s = speed_of_light(served, device, all_reduce=table).seconds(batch)
    assumed = predict_step(served, device, batch, prior_efficiency(device), all_reduce=table)

    if served.tensor_parallel_size == 1:
        assert floor_s <= assumed.low * (1 + 1e-9)
    assert assumed.low <= assumed.value <= assumed.high


@given(models, st.sampled_from(("a100-80-sxm", "h100-sxm", "l40s", "rtx-4090")), batches)
def test_a_sum_of_maxima_is_no_less_than_the_maximum_of_sums(
    model: ModelShape, key: str, batch: StepBatch
) -> None:
    """Operations run one after another: a prefill hides no cache read."""
    device, served = CATALOGUE[key].facts, ServedModel(model=model)
    whole = sum((item.cost for item in operations(served, batch, routing=0.7)), Cost())
    fused_s = whole.time_s(
        rate_flops_per_s=device.rate("bfloat16").value,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s.value,
    )
    light_s = speed_of_light(served, device).seconds(batch)

    assert light_s >= fused_s * (1 - 1e-9)


@given(models, st.integers(1, 64), st.integers(1, 8192), st.integers(0, 6))
def test_a_step_is_the_sum_of_its_operations(
    model: ModelShape, count: int, context: int, drafts: int
) -> None:
    """Each at its own roof, for decoding requests with drafts."""
    device, served = CATALOGUE["a100-80-sxm"].facts, ServedModel(model=model)
    batch = StepBatch(decode_contexts=(float(context),) * count, draft_tokens=float(drafts))
    step = RooflineStep(served=served, machine=machine(device, served, exact_efficiency()))
    skew = served.routing.value
    apart_s = sum(
        item.cost.time_s(
            rate_flops_per_s=device.rate("bfloat16").value,
            bandwidth_bytes_per_s=device.bandwidth_bytes_per_s.value,
        )
        for item in operations(served, batch, routing=skew)
        if item.kind in {Kind.LINEAR, Kind.HEAD, Kind.DECODE_ATTENTION}
    )

    assert step.seconds(batch) == pytest.approx(apart_s)


@given(models, st.sampled_from((2, 4)))
def test_ranks_share_the_weights_and_copy_what_cannot_be_split(
    model: ModelShape, ranks: int
) -> None:
    """No rank holds less than its part of all matrices, none more than all of them."""
    batch = StepBatch(decode_contexts=(100.0,) * 4)
    whole, part = (
        sum(
            item.weight_bytes
            for item in operations(ServedModel(model=model, tensor_parallel_size=size), batch)
            if item.kind is Kind.LINEAR
        )
        for size in (1, ranks)
    )

    assert whole / ranks * (1 - 1e-9) <= part <= whole


@given(models, st.integers(1, 300), st.sampled_from((None, "fp8", "W4A16")))
def test_products_hold_every_matrix_of_the_model(
    model: ModelShape, tokens: int, weights: str | None
) -> None:
    """Their FLOP and bytes add up to the parameter count that is exact (T1.1)."""
    held = model if weights is None else replace(model, weights=FORMATS[weights])
    found = [
        item
        for item in operations(
            ServedModel(model=held), StepBatch(decode_contexts=(1.0,) * tokens), routing=1.0
        )
        if item.kind is Kind.LINEAR
    ]

    assert sum(item.flops for item in found) == pytest.approx(
        2 * model.active_linear_parameters * tokens
    )
    assert sum(item.weight_bytes for item in found) == pytest.approx(held.linear_bytes(tokens))


@given(models, st.integers(1, 20_000), st.integers(1, 4096), st.integers(0, 20_000))
def test_attention_computes_what_the_model_says(
    model: ModelShape, context: int, new: int, cached: int
) -> None:
    """Absorbed and expanded latent attention, windows and states included (handbook 1.2)."""
    batch = StepBatch(
        decode_contexts=(float(context),),
        prefills=(Prefill(new_tokens=float(new), cached_tokens=float(cached)),),
    )
    found = operations(ServedModel(model=model), batch)
    decode, prefill = (
        sum(item.flops for item in found if item.kind is kind)
        for kind in (Kind.DECODE_ATTENTION, Kind.PREFILL_ATTENTION)
    )

    assert decode == pytest.approx(model.attention_flops(context))
    assert prefill == pytest.approx(model.prefill_attention_flops(new, cached))
