"""Attention look-ups give back what was measured, and what lies between follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.roofline.kernels import AttentionRows, DecodeTail, decode_tail, joint_attention
from advisor.roofline.kernels.attention import attention_seconds
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.joint import chunk_length, effective_contexts
from tests.fakes.kernel_tables import attention_rows, fused


def _batch(chunks: list[tuple[float, float]], contexts: list[float] | None = None) -> StepBatch:
    return StepBatch(
        decode_contexts=tuple(contexts or ()),
        prefills=tuple(Prefill(new_tokens=n, cached_tokens=c) for n, c in chunks),
    )


def _row_batch(rows: AttentionRows, at: int) -> StepBatch:
    new, cached = float(rows.new[at]), float(rows.cached[at])
    count, context = int(rows.requests[at]), float(rows.contexts[at])
    return _batch([(new, cached)] if new else [], [context] * count)


def test_every_measured_row_comes_back() -> None:
    """A step that was measured takes what was measured, times the layers."""
    rows = attention_rows(fused)
    table = joint_attention(rows, layers=3)
    for at, seconds in enumerate(rows.seconds):
        found = attention_seconds(table, _row_batch(rows, at))
        assert found == pytest.approx(3 * seconds, rel=1e-9)


def test_two_half_grids_give_one_table() -> None:
    """Profilers measure several coarse grids: what one lacks is filled from the other."""
    coarse = attention_rows(fused, contexts=(16, 2048), cached=(0, 1024))
    fine = attention_rows(fused, new=(16, 1024), contexts=(16, 256, 2048))
    both = AttentionRows(
        **{
            name: np.concatenate([getattr(coarse, name), getattr(fine, name)])
            for name in ("new", "cached", "requests", "contexts", "seconds")
        }
    )
    table = joint_attention(both, layers=1)
    assert np.isfinite(table.seconds).all()
    # Lines in contexts meet the planted law, a power law in chunk sizes does not.
    at_fine = attention_seconds(table, _batch([(1024, 128)], [256] * 4))
    assert at_fine == pytest.approx(fused(1024, 128, 4, 256), rel=1e-9)
    between = attention_seconds(table, _batch([(64, 0)], [256] * 4))
    assert between == pytest.approx(fused(64, 0, 4, 256), rel=1e-9)


def test_decodes_beside_a_chunk_are_not_added() -> None:
    """Where both were measured together, the sum of both alone is not the answer."""
    table = joint_attention(attention_rows(fused), layers=1)
    together = attention_seconds(table, _batch([(256, 0)], [256] * 16))
    apart = attention_seconds(table, _batch([(256, 0)])) + attention_seconds(
        table, _batch([], [256] * 16)
    )
    assert together == pytest.approx(fused(256, 0, 16, 256))
    assert together > apart * 1.2


def test_without_mixed_rows_chunk_and_decodes_add() -> None:
    table = joint_attention(attention_rows(fused, mixed=False), layers=1)
    together = attention_seconds(table, _batch([(256, 128)], [256] * 4))
    assert together == pytest.approx(fused(256, 128, 0, 0) + fused(0, 0, 4, 256))


def test_chunks_follow_a_power_law_between_sizes() -> None:
    """Half way in logarithms a quadratic law is met, where a line is 25 % too high."""

    def square(new: float, cached: float, requests: float, contexts: float) -> float:
        return 1e-9 * (new * new + cached + requests * contexts)

    table = joint_attention(attention_rows(square), layers=1)
    assert attention_seconds(table, _batch([(512, 0)])) == pytest.approx(1e-9 * 512**2, rel=1e-6)


def test_many_short_prompts_cost_less_than_one_long_one() -> None:
    """Four prompts of 256 look at a quarter of the pairs, but all their positions are computed."""
    rows = attention_rows(fused, new=(16, 64, 256, 512, 1024))
    table = joint_attention(rows, layers=1)
    short = attention_seconds(table, _batch([(256, 0)] * 4))
    whole = attention_seconds(table, _batch([(1024, 0)]))
    assert whole == pytest.approx(fused(1024, 0, 0, 0))
    positions, pairs = 2e-8 * 1024, 1e-9 * 4 * 256 * 128
    assert short == pytest.approx(5e-6 + positions + pairs, rel=0.05)


@pytest.mark.parametrize(
    "tokens,pairs,length",
    [(0.0, 0.0, 0.0), (100.0, 5000.0, 0.0), (100.0, 105000.0, 1000.0), (100.0, 2500.0, -0.5)],
)
def test_chunk_length_is_what_one_chunk_would_have_cached(
    tokens: float, pairs: float, length: float
) -> None:
    assert chunk_length(tokens, pairs) == pytest.approx(length)


def test_a_tail_is_paid_for_unequal_contexts_only() -> None:
    """Equal decodes cost what they cost; the longest of unequal ones costs its excess again."""
    tail = DecodeTail(alone=2.0, beside=3.0, split_below=4.0)
    table = joint_attention(attention_rows(fused), layers=1, tail=tail)
    plain = replace(table, tail_alone=0.0, tail_beside=0.0)
    equal, unequal = [512.0] * 8, [256.0] * 7 + [2048.0]
    for chunks in ([], [(64.0, 0.0)]):
        same = attention_seconds(table, _batch(chunks, equal))
        assert same == pytest.approx(attention_seconds(plain, _batch(chunks, equal)))
    excess = max(unequal) - sum(unequal) / 8
    alone = attention_seconds(table, _batch([], unequal))
    assert alone == pytest.approx(
        attention_seconds(plain, _batch([], unequal)) + 2.0 * excess * 1e-8
    )
    few = _batch([], [256.0, 256.0, 1024.0])
    assert attention_seconds(table, few) == pytest.approx(attention_seconds(plain, few))


def test_a_tail_never_costs_more_than_if_all_were_as_long() -> None:
    contexts = effective_contexts(0.0, (2.0, 600.0, 500.0), (9.0, 9.0, 0.0))
    assert contexts == pytest.approx(1000.0)


def test_a_tail_is_longer_where_a_request_has_fewer_blocks() -> None:
    eight = decode_tail(188, query_heads=32, kv_heads=8)
    four = decode_tail(188, query_heads=32, kv_heads=4)
    assert four.alone == pytest.approx(2 * eight.alone)
    assert four.beside == eight.beside
    with pytest.raises(InvalidInput):
        decode_tail(0, query_heads=32, kv_heads=8)


def test_rows_without_decodes_or_chunks_are_refused() -> None:
    rows = attention_rows(fused)
    chosen = rows.new > 0
    with pytest.raises(InvalidInput, match="decodes alone"):
        AttentionRows(
            **{
                name: getattr(rows, name)[chosen]
                for name in ("new", "cached", "requests", "contexts", "seconds")
            }
        )
