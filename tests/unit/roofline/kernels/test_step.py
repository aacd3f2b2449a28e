"""A step of measured kernels is their sum, as often as the model calls them."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.llm import dense_model
from advisor.llm.feed_forward import Experts
from advisor.roofline.kernels import (
    ExpertRows,
    ExpertTimes,
    KernelCurve,
    KernelStep,
    StepGap,
    graph_sizes,
    joint_attention,
    step_curves,
)
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.steptime import StepTables, TableLimits
from tests.fakes.kernel_tables import attention_rows, fused, kernel_rows

LAYERS = 4
MODEL = dense_model(
    architecture="LlamaForCausalLM",
    hidden_size=64,
    num_layers=LAYERS,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    vocab_size=256,
    tied_embeddings=False,
    dtype="bfloat16",
    max_position_embeddings=4096,
)
LAWS = {
    "embedding": lambda rows: 1e-6 + 0 * rows,
    "layernorm": lambda rows: 1e-6 + 1e-9 * rows,
    "qkv_proj": lambda rows: 2e-5 + 1e-7 * rows,
    "lm_head": lambda rows: 3e-4 + 1e-6 * rows,
}
LIMITS = TableLimits(max_tokens=2048, max_requests=64, max_context=4096)


def _step(**more: object) -> KernelStep:
    step = KernelStep(
        curves=step_curves(MODEL, kernel_rows(LAWS)),
        attention=joint_attention(attention_rows(fused), layers=LAYERS),
    )
    return replace(step, **more)  # type: ignore[arg-type]


def _along(tables: StepTables, tokens: float, rows: float) -> float:
    dense = float(np.interp(tokens, tables.tokens, tables.dense_s))
    return dense + float(np.interp(rows, tables.rows, tables.head_s))


BATCH = StepBatch(
    decode_contexts=(256.0,) * 4, prefills=(Prefill(new_tokens=64, cached_tokens=128),)
)


def test_a_step_is_the_sum_of_its_kernels() -> None:
    """Twice a norm and once the others in each layer, embedding and head once."""
    layer = 2 * LAWS["layernorm"](68) + LAWS["qkv_proj"](68)
    expected = LAYERS * layer + LAWS["embedding"](68) + LAWS["lm_head"](5)
    attention = LAYERS * fused(64, 128, 4, 256)
    assert _step().seconds(BATCH) == pytest.approx(expected + attention)
    assert _step().seconds(StepBatch()) == 0.0


@pytest.mark.parametrize("tokens", [1, 3, 7, 68, 255, 257, 1000, 2048])
def test_tables_say_what_the_step_says(tokens: int) -> None:
    """At whole positions the tables are exact, stairs of the graph padding included."""
    step = _step(graph_sizes=graph_sizes(32, 2048), gap=StepGap(step_s=1e-4, request_s=1e-6))
    batch = StepBatch(prefills=(Prefill(new_tokens=tokens),))
    tables = step.tables(LIMITS)
    joint = tables.joint
    assert joint is not None
    blocks = step.seconds(batch) - _step().seconds(batch)
    without = _step().tables(LIMITS)
    added = _along(tables, tokens, 1) - _along(without, tokens, 1)
    assert added == pytest.approx(blocks, abs=1e-12)


def test_a_step_is_padded_to_the_next_graph() -> None:
    """Five positions cost what eight do; beyond the largest graph nothing is padded."""
    step = _step(graph_sizes=(1, 2, 4, 8, 16))

    def blocks(tokens: int) -> float:
        tables = step.tables(LIMITS)
        return float(np.interp(tokens, tables.tokens, tables.dense_s))

    assert blocks(5) == pytest.approx(blocks(8))
    assert blocks(17) > blocks(16)
    assert blocks(17) == pytest.approx(float(np.interp(17, *_plain())))


def _plain() -> tuple[np.ndarray, np.ndarray]:
    tables = _step().tables(LIMITS)
    return tables.tokens, tables.dense_s


def test_graph_sizes_are_those_of_the_engine() -> None:
    """As vLLM logs for 128 and 256 requests: 35 sizes up to 256, 51 up to 512."""
    assert graph_sizes(128, 2048)[:6] == (1, 2, 4, 8, 16, 24)
    assert len(graph_sizes(128, 2048)) == 35
    assert graph_sizes(128, 2048)[-1] == 256
    assert len(graph_sizes(256, 2048)) == 51
    assert graph_sizes(256, 64)[-1] == 64


def test_gap_and_scale_work_on_what_they_are_about() -> None:
    """The scale multiplies kernels, not the time in which the device waits."""
    plain, gap = _step().seconds(BATCH), StepGap(step_s=1e-3, request_s=1e-5)
    assert _step(scale=1.1).seconds(BATCH) == pytest.approx(1.1 * plain)
    assert _step(gap=gap).seconds(BATCH) == pytest.approx(plain + 1e-3 + 5e-5)
    assert _step(gap=gap, scale=2.0).seconds(BATCH) == pytest.approx(2 * plain + 1e-3 + 5e-5)


def test_communication_is_added_by_positions() -> None:
    curve = KernelCurve(
        name="all_reduce",
        points=np.array([1.0, 2048.0]),
        seconds=np.array([1e-5, 1e-4]),
        calls=2 * LAYERS,
    )
    more = _step(communication=(curve,)).seconds(BATCH) - _step().seconds(BATCH)
    assert more == pytest.approx(2 * LAYERS * np.interp(68, [1, 2048], [1e-5, 1e-4]))


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(UnknownName, match="kernel"):
        step_curves(MODEL, kernel_rows({"conv1d": lambda rows: 1e-6 * rows}))


def test_a_curve_goes_on_with_its_last_slope() -> None:
    curve = KernelCurve(
        name="qkv_proj", points=np.array([1.0, 3.0]), seconds=np.array([1.0, 2.0]), calls=2
    )
    found = curve.step_seconds(np.array([0.0, 0.5, 2.0, 5.0]))
    assert found.tolist() == [0.0, 2.0, 3.0, 6.0]
    with pytest.raises(InvalidInput, match="do not rise"):
        replace(curve, points=np.array([3.0, 1.0]))


def _planted_experts(tokens: float, touched: float) -> float:
    return 1e-5 + 6e-6 * touched + 2e-7 * tokens


def test_experts_cost_what_their_rank_touches() -> None:
    """A rank that holds half of the experts and sees all tokens has half of their choices."""
    experts = Experts(experts=8, active=2, intermediate=16)
    points = [(t, a) for t in (1.0, 8.0, 64.0) for a in (2.0, 4.0, 8.0)]
    rows = ExpertRows(
        tokens=np.array([t for t, _ in points]),
        touched=np.array([a for _, a in points]),
        seconds=np.array([_planted_experts(*point) for point in points]),
        active=2,
    )
    alone = ExpertTimes(rows=rows, experts=experts, layers=3)
    found = float(alone.step_seconds(np.array([16.0]))[0])
    assert found == pytest.approx(3 * _planted_experts(16, experts.distinct(16)))
    pair = ExpertTimes(rows=rows, experts=experts, layers=3, ranks=2, data_parallel=2)
    shared = float(pair.step_seconds(np.array([16.0]))[0])
    assert shared == pytest.approx(3 * _planted_experts(16, experts.distinct(32) / 2))
    with pytest.raises(InvalidInput):
        replace(pair, ranks=3)
