"""Intervals of percentiles and means: the handbook's figures, and what they must not claim."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.protocol.intervals import (
    batch_means,
    count_for,
    design_effect,
    least_count,
    mean,
    percentile,
    ranks,
    ratio,
)


@pytest.mark.parametrize(
    "count,share,expected", [(100, 0.5, (40, 61)), (1000, 0.99, (983, 997)), (5, 0.5, (None, None))]
)
def test_ranks_of_the_handbook(
    count: int, share: float, expected: tuple[int | None, int | None]
) -> None:
    """T11.1, and a median of five values, of which none lies surely above it."""
    assert ranks(count, share) == expected


def test_counts_at_which_an_interval_exists() -> None:
    """T11.2: one side, two sides, and at 99 %."""
    assert least_count(0.99) == 299
    assert least_count(0.99, sides=2) == 368
    assert least_count(0.99, level=0.99) == 459


def test_counts_for_a_precision() -> None:
    """T11.9: a lognormal tail of 0.5, within 5 %."""
    assert count_for(0.99, precision=0.05, sigma=0.5) == pytest.approx(5357, rel=1e-3)
    assert count_for(0.95, precision=0.05, sigma=0.5) == pytest.approx(1714, rel=1e-3)


def test_no_99th_percentile_below_300_requests() -> None:
    """Nor one of 300 that are worth fewer, nor any of none."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 0.5, 500)

    assert percentile(values[:299].tolist(), 0.99) is None
    assert percentile(values.tolist(), 0.99) is not None
    assert percentile(np.repeat(values[:50], 10).tolist(), 0.99) is None
    assert percentile([], 0.5) is None


def test_a_percentile_lies_in_an_interval_of_its_own_values() -> None:
    """Both ends were measured."""
    values = np.random.default_rng(1).lognormal(0, 0.4, 400).tolist()
    found = percentile(values, 0.95)

    assert found is not None
    assert found.low in values
    assert found.high in values
    assert found.low < found.value < found.high


def test_intervals_of_independent_values_hold_the_truth() -> None:
    """Median and mean of 60 values, 400 times."""
    rng = np.random.default_rng(2)
    held = np.zeros(2)
    for _ in range(400):
        values = rng.lognormal(0, 0.5, 60).tolist()
        median, average = percentile(values, 0.5), mean(values)
        assert median is not None
        assert average is not None
        held += (median.low <= 1 <= median.high, average.low <= np.exp(0.125) <= average.high)

    assert (held / 400 >= 0.92).all()


def remembering(rng: np.random.Generator, count: int, memory: float) -> np.ndarray:
    """Values of variance 1, each like the one before it."""
    values = rng.standard_normal(count)
    for place in range(1, count):
        values[place] = memory * values[place - 1] + np.sqrt(1 - memory**2) * values[place]
    return values


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    """A mean of 300 values with a memory of 0.8: the plain t interval holds in 50 % of cases."""
    rng = np.random.default_rng(3)
    held = plain = 0
    for _ in range(200):
        values = remembering(rng, 300, 0.8)
        found = mean(values.tolist())
        assert found is not None
        held += found.low <= 0 <= found.high
        plain += abs(values.mean()) <= 1.97 * values.std(ddof=1) / np.sqrt(300)

    assert held / 200 >= 0.9
    assert plain / 200 < 0.6


def test_batch_means_of_a_process_that_remembers_hold_the_truth() -> None:
    """80 slices of time with a memory of 0.5."""
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(200):
        found = batch_means((10 + remembering(rng, 80, 0.5)).tolist())
        assert found is not None
        held += found.low <= 10 <= found.high

    assert held / 200 >= 0.9
    assert batch_means([1.0] * 4) is None


def test_a_session_counts_once() -> None:
    """Ten equal turns each: an interval as of 30 values, not of 300."""
    rng = np.random.default_rng(5)
    sessions = rng.standard_normal(30)
    order = rng.permutation(300)
    values = np.repeat(sessions, 10)[order].tolist()
    names = np.repeat(np.arange(30), 10)[order].tolist()
    together, alone = mean(values, clusters=names), mean(values)

    assert together is not None
    assert alone is not None
    assert together.high - together.low > 2.5 * (alone.high - alone.low)
    assert design_effect(np.ones(50)) == 1.0
    assert design_effect(np.arange(3.0), ["one"] * 3) == 3.0


def test_too_few_values_have_no_interval() -> None:
    """And a sample that is one cluster has no spread."""
    assert mean([1.0, 2.0]) is None
    assert mean([1.0, 2.0, 4.0], clusters=["s"] * 3) is None
    assert ratio([1.0], [1.0]) is None
    with pytest.raises(InvalidInput):
        ranks(0, 0.5)


def test_a_ratio_of_sums_varies_by_its_pairs() -> None:
    """Equal ratios leave no doubt, whatever their sizes."""
    exact = ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0])

    assert exact is not None
    assert exact.low == pytest.approx(2.0)
    assert exact.high == pytest.approx(2.0)
