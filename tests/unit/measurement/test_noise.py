"""The noise floor: what repeats teach beyond the prior, and the interval it gives a ratio."""

import math

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.measurement.noise import NoisePrior, fit_noise

PRIOR = NoisePrior(relative_sd=0.02, degrees_of_freedom=4)


def test_without_a_repeat_the_prior_speaks_and_says_so() -> None:
    """Assumed is never called measured."""
    fit = fit_noise([(100.0,), ()], PRIOR)

    assert fit.scale == pytest.approx(0.02)
    assert (fit.degrees_of_freedom, fit.repeats) == (4, 0)
    assert fit.relative_sd().source is Source.LITERATURE
    assert "prior" in fit.basis


def test_repeats_pull_the_floor_towards_what_they_show() -> None:
    """Quiet repeats lower it, loud ones raise it."""
    quiet = fit_noise([(100.0, 100.1), (50.0, 50.0)], PRIOR)
    loud = fit_noise([(100.0, 120.0)], PRIOR)

    assert quiet.scale < 0.02 < loud.scale
    assert quiet.relative_sd().source is Source.MEASURED
    assert quiet.repeats == 4


def test_the_floor_lies_in_its_interval() -> None:
    """And the interval narrows with repeats."""
    few, many = fit_noise([(100.0, 101.0)], PRIOR), fit_noise([(100.0, 101.0, 99.0) * 9], PRIOR)

    for spread in (few.relative_sd(), many.relative_sd()):
        assert spread.low <= spread.value <= spread.high
    assert many.relative_sd().high / many.scale < few.relative_sd().high / few.scale


def test_more_values_narrow_a_ratio() -> None:
    """On either side."""
    fit = fit_noise([], PRIOR)

    assert fit.half_width(3, 1) < fit.half_width(1, 1)
    assert fit.half_width(3, 3) < fit.half_width(3, 1)
    assert fit.half_width(2) < fit.half_width(1)


def test_a_mean_of_nothing_has_no_interval() -> None:
    """Asking for one is a mistake of the caller."""
    with pytest.raises(InvalidInput):
        fit_noise([], PRIOR).half_width(0, 1)
    with pytest.raises(InvalidInput):
        fit_noise([], PRIOR).half_width()


@pytest.mark.parametrize("sd,weight", [(0.0, 4), (0.02, 0)])
def test_a_prior_has_a_deviation_and_a_weight(sd: float, weight: int) -> None:
    """Else it is none."""
    with pytest.raises(InvalidInput):
        NoisePrior(relative_sd=sd, degrees_of_freedom=weight)


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """Noise as the prior has it: 95 % nominal, 3 against 1 values, over 2,000 studies."""
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        sd = 0.02 * math.sqrt(4 / rng.chisquare(4))
        before, after = np.exp(rng.normal(0, sd, 3)), np.exp(rng.normal(0, sd, 1))
        fit = fit_noise([tuple(before)], PRIOR)
        ratio = float(np.log(after).mean() - np.log(before).mean())
        covered += abs(ratio) <= fit.half_width(3, 1)

    assert 0.93 <= covered / 2000 <= 0.97
