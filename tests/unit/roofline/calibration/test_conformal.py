"""Intervals from held-out errors: ranks, groups, fallback, coverage."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.roofline.calibration.conformal import (
    Score,
    grouped_width,
    jackknife_plus,
    least_points,
    left_out,
    log_residuals,
    rank,
    series_spread,
    shared_spreads,
    width,
)


def test_rank_of_the_handbook() -> None:
    """T11.8: 19 scores at 90 % take the 18th; 9 are the least, and take the largest."""
    assert rank(19) == 18
    assert rank(9) == 9
    assert rank(8) is None
    assert least_points() == 9
    assert least_points(0.95) == 19


def test_the_width_is_the_score_at_that_rank() -> None:
    """Scores 0.01 to 0.19: the 18th smallest, on both sides of the logarithm."""
    bound = width([i / 100 for i in range(19, 0, -1)])
    predicted = bound.around(2.0, about="sum form", not_modelled=("graph padding",))

    assert bound.exact
    assert bound.log_half == pytest.approx(0.18)
    assert predicted.high == pytest.approx(2.0 * math.exp(0.18))
    assert predicted.low == pytest.approx(2.0 * math.exp(-0.18))
    assert predicted.source is Source.CALIBRATED_ROOFLINE
    assert predicted.basis.startswith("sum form; 90% interval, conformal, 19 held-out")
    assert predicted.not_modelled == ("graph padding",)


@pytest.mark.parametrize("count", range(9))
def test_few_scores_give_a_wider_interval_that_says_so(count: int) -> None:
    """Below nine the interval is no narrower than any score, and is called widened."""
    scores = [0.05] * count
    bound = width(scores)

    assert not bound.exact
    assert bound.log_half > 0.05
    assert f"widened: {count} held-out scores" in bound.basis


def test_one_wild_score_among_few_is_held() -> None:
    """The fallback never excludes what it has seen."""
    assert width([0.01, 0.02, 1.5]).log_half >= 1.5


def test_a_group_with_enough_scores_speaks_for_itself() -> None:
    """Nine of a series are enough; four borrow from their GPU; an unknown series from all."""
    quiet = [Score(residual=0.01, groups=("a", "H100")) for _ in range(9)]
    short = [Score(residual=-0.02, groups=("b", "H100")) for _ in range(4)]
    loud = [Score(residual=0.3, groups=("c", "A100")) for _ in range(9)]
    scores = quiet + short + loud

    assert grouped_width(scores, ("a", "H100")).log_half == pytest.approx(0.01)
    assert grouped_width(scores, ("b", "H100")).log_half == pytest.approx(0.02)
    assert grouped_width(scores, ("b", "H100")).points == 13
    assert grouped_width(scores, ("d", "L4")).log_half == pytest.approx(0.3)
    assert "all groups" in grouped_width(scores, ("d", "L4")).basis
    assert grouped_width(scores, ("a", "H100"), least=10).points == 13


def test_a_spread_scales_the_score_and_its_interval() -> None:
    """A point twice as uncertain has half the score and twice the width."""
    scores = [Score(residual=0.2, spread=2.0) for _ in range(9)]
    bound = grouped_width(scores)

    assert bound.log_half == pytest.approx(0.1)
    assert bound.around(1.0, scale=2.0).high == pytest.approx(math.exp(0.2))


def test_each_point_is_predicted_without_itself() -> None:
    """The mean of the others, one by one or in folds."""
    values = [1.0, 2.0, 6.0, 9.0]

    def fit(indices: Sequence[int]) -> Callable[[int], float]:
        mean = sum(values[i] for i in indices) / len(indices)
        return lambda _: mean

    one_by_one = left_out(fit, 4)
    in_two = left_out(fit, 4, folds=2)
    assert one_by_one == pytest.approx([17 / 3, 16 / 3, 4.0, 3.0])
    assert in_two == pytest.approx([5.5, 3.5, 5.5, 3.5])


def test_jackknife_plus_spans_models_and_their_errors() -> None:
    """Nine equal models with one score give that score; too few give nothing."""
    bounds = jackknife_plus([0.1] * 9, [2.0] * 9)

    assert bounds == pytest.approx((2.0 * math.exp(-0.1), 2.0 * math.exp(0.1)))
    assert jackknife_plus([0.1] * 8, [2.0] * 8) is None


def test_series_spread_is_shrunk_to_all() -> None:
    """A quiet series keeps a part of everybody's spread, a loud one most of its own."""
    residuals = [[0.01, -0.01, 0.01, -0.01], [0.2, -0.2, 0.2, -0.2]]
    everything = math.sqrt((4 * 0.0001 + 4 * 0.04) / 8)

    assert 0.01 < series_spread(residuals, 0) < everything < series_spread(residuals, 1) < 0.2
    assert shared_spreads(residuals)[0].shape == (4,)


@pytest.mark.parametrize("count", [9, 19, 40])
def test_coverage_holds_whatever_the_law_of_errors(count: int) -> None:
    """Over 2,000 draws of skewed heavy errors, 90 % intervals cover 88.5 % or more."""
    rng = np.random.default_rng(20261130)
    sizes = np.abs(rng.standard_t(3, size=(2000, count + 1)))
    held = sum(
        sizes[i, -1] <= width(list(sizes[i, :-1])).log_half for i in range(len(sizes))
    ) / len(sizes)

    place = rank(count)
    assert place is not None
    assert held == pytest.approx(place / (count + 1), abs=0.015)


def test_nonsense_is_refused() -> None:
    """Levels, scores and times that cannot be."""
    with pytest.raises(InvalidInput):
        rank(10, 1.0)
    with pytest.raises(InvalidInput):
        width([-0.1])
    with pytest.raises(InvalidInput):
        Score(residual=math.nan)
    with pytest.raises(InvalidInput):
        log_residuals([0.0], [1.0])
    with pytest.raises(InvalidInput):
        left_out(lambda _: lambda _: 1.0, 1)
