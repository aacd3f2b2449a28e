"""Laws of measured kernel tables, whatever was measured."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.roofline.kernels import KernelCurve, joint_attention
from advisor.roofline.kernels.attention import attention_seconds
from advisor.roofline.kernels.lattice import fill_along, on_grid
from advisor.roofline.step.batch import Prefill, StepBatch
from tests.fakes.kernel_tables import attention_rows

costs = st.floats(1e-10, 1e-6)
counts = st.integers(1, 64)
contexts = st.integers(1, 4096)


@given(unit_s=st.tuples(costs, costs, costs), count=counts, context=contexts)
def test_more_work_never_takes_less(
    unit_s: tuple[float, float, float], count: int, context: int
) -> None:
    """One more decode, a longer context or a longer chunk: the step is not shorter."""
    pair_s, context_s, floor_s = unit_s

    def law(new: float, cached: float, requests: float, length: float) -> float:
        return floor_s + pair_s * new * (cached + new / 2) + context_s * requests * length

    table = joint_attention(attention_rows(law), layers=2)

    def seconds(chunk: float, decodes: int, length: float) -> float:
        return attention_seconds(
            table,
            StepBatch(
                decode_contexts=(float(length),) * decodes,
                prefills=(Prefill(new_tokens=chunk),) if chunk else (),
            ),
        )

    for chunk in (0.0, 100.0):
        base = seconds(chunk, count, context)
        slack = base * 1e-9
        assert seconds(chunk, count + 1, context) >= base - slack
        assert seconds(chunk, count, context + 64) >= base - slack
        assert seconds(chunk + 50, count, context) >= base - slack


@given(
    seconds=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    rows=st.floats(0, 1e4),
    calls=st.integers(1, 8),
)
def test_a_curve_passes_through_its_points(seconds: list[float], rows: float, calls: int) -> None:
    points = np.arange(1.0, len(seconds) + 1)
    curve = KernelCurve(name="o_proj", points=points, seconds=np.array(seconds), calls=calls)
    assert np.allclose(curve.step_seconds(points), calls * np.array(seconds))
    assert float(curve.step_seconds(np.array([rows]))[0]) >= 0


@given(st.data())
def test_filling_keeps_what_was_measured(data: st.DataObject) -> None:
    """Gaps are filled, points stay, and a function that is linear on the axis is met."""
    kept = data.draw(st.lists(st.booleans(), min_size=5, max_size=5).filter(lambda m: sum(m) > 1))
    slope, start = data.draw(st.floats(0, 10)), data.draw(st.floats(0, 10))
    points = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    whole = start + slope * points
    grid = np.where(kept, whole, np.nan)[None, :]
    filled = fill_along(grid, points, axis=1, power=False, extend=True)
    assert np.allclose(filled, np.maximum(whole, 0.0))


def test_repeats_are_averaged() -> None:
    axes, grid = on_grid((np.array([1.0, 1.0, 2.0]),), np.array([1.0, 3.0, 5.0]))
    assert axes[0].tolist() == [1.0, 2.0]
    assert grid.tolist() == [2.0, 5.0]
