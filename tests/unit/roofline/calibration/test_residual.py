"""The Gaussian process on what a roofline leaves over."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.roofline.calibration.residual import (
    Kernel,
    KernelSettings,
    conditioned,
    fit_residual,
    monotone,
    repeat_noise,
    suffices,
)
from advisor.roofline.calibration.residual_kernel import SharedLengths


def test_one_residual_at_distance_one() -> None:
    """T11.7: variance .04, length 1, noise .0025, +.3 seen: mean .17125, variance .02615."""
    settings = KernelSettings(variance=0.04, lengths=(1.0,), noise=0.0025, kernel=Kernel.RBF)
    mean, variance = conditioned(np.array([[0.0]]), np.array([0.3]), settings).at(np.array([[1.0]]))

    assert mean[0] == pytest.approx(0.17125, abs=1e-5)
    assert variance[0] == pytest.approx(0.02615, abs=1e-5)


@pytest.mark.parametrize("kernel", list(Kernel))
def test_far_from_every_load_the_roofline_stands_alone(kernel: Kernel) -> None:
    """The mean returns to 0 and the variance to its own."""
    settings = KernelSettings(variance=0.04, lengths=(1.0, 2.0), noise=1e-4, kernel=kernel)
    fitted = conditioned(np.zeros((1, 2)), np.array([0.3]), settings)
    mean, variance = fitted.at(np.array([[30.0, 0.0], [0.0, 0.0]]))

    assert mean[0] == pytest.approx(0, abs=1e-6)
    assert variance[0] == pytest.approx(0.04, rel=1e-6)
    assert mean[1] == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_planted_bend_is_found_between_the_points(sign: float) -> None:
    """A residual that swings with ln B only: found within the noise, and its mirror mirrored."""
    rng = np.random.default_rng(11)
    inputs = rng.uniform(0, 5, size=(40, 2))
    bend = sign * 0.15 * np.sin(inputs[:, 0])
    fitted = fit_residual(inputs, bend + 0.01 * rng.standard_normal(40))
    fresh = rng.uniform(0.5, 4.5, size=(30, 2))
    mean, _ = fitted.at(fresh)

    assert np.abs(mean - sign * 0.15 * np.sin(fresh[:, 0])).mean() < 0.01
    assert fitted.settings.lengths[1] > 3 * fitted.settings.lengths[0]


def test_points_must_suffice() -> None:
    """Twenty at least, and five per length."""
    assert suffices(20, 4)
    assert not suffices(19, 1)
    assert not suffices(20, 5)
    with pytest.raises(InvalidInput, match="19 points"):
        fit_residual(np.zeros((19, 1)), np.zeros(19))


def test_columns_of_a_group_share_a_length() -> None:
    """A column per model, three models: one length for all, beside that of the load."""
    rng = np.random.default_rng(13)
    load, model = rng.uniform(0, 3, 45), np.arange(45) % 3
    inputs = np.column_stack([load, np.eye(3)[model]])
    offsets = np.array([-0.1, 0.0, 0.12])
    fitted = fit_residual(
        inputs, offsets[model] + 0.01 * rng.standard_normal(45), tied=(0, 1, 1, 1)
    )
    mean, _ = fitted.at(np.column_stack([np.full(3, 1.5), np.eye(3)]))

    assert len(fitted.settings.lengths) == 2
    assert mean == pytest.approx(offsets, abs=0.01)


@pytest.mark.parametrize("kind", list(Kernel))
def test_the_kernels_slopes_are_those_of_its_values(kind: Kernel) -> None:
    """Against finite differences in the logarithm of each length."""
    inputs = np.random.default_rng(14).uniform(0, 2, size=(6, 3))
    length = np.array([0.7, 1.6])
    kernel = SharedLengths(length, (0.1, 10.0), (0, 1, 1), smooth=kind is Kernel.RBF)
    values, slopes = kernel(inputs, eval_gradient=True)
    for place in range(2):
        moved = length.copy()
        moved[place] *= np.exp(1e-6)
        other = SharedLengths(moved, (0.1, 10.0), (0, 1, 1), smooth=kind is Kernel.RBF)(inputs)
        assert (other - values) / 1e-6 == pytest.approx(slopes[:, :, place], abs=1e-5)


def test_repeats_tell_the_noise() -> None:
    """The pooled variance within conditions; nothing repeated tells nothing."""
    assert repeat_noise(["a", "a", "b"], [0.0, 0.2, 5.0]) == pytest.approx(0.02)
    assert repeat_noise(["a", "b"], [0.0, 0.2]) is None


def test_more_work_is_never_shorter() -> None:
    """A dip along an axis is levelled half-way; other groups and rising values are left alone."""
    axes = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [1.0, 2.0]])
    levelled = monotone(np.array([1.0, 3.0, 2.0, 5.0]), axes)

    assert levelled == pytest.approx([1.0, 2.5, 2.5, 5.0])
    assert monotone(np.array([3.0, 2.0]), axes[:2], ["a", "b"]) == pytest.approx([3.0, 2.0])


def test_levelled_values_rise_along_every_axis() -> None:
    """Random values on a grid: no pair ordered on all axes is left the wrong way round."""
    rng = np.random.default_rng(12)
    axes = np.array([(b, s) for b in range(6) for s in range(6)], dtype=np.float64)
    values = monotone(rng.standard_normal(36), axes)
    below = (axes[:, None, :] <= axes[None, :, :]).all(axis=2)

    assert (np.where(below, values[None, :] - values[:, None], 0) >= -1e-12).all()


def test_settings_that_cannot_be_are_refused() -> None:
    """No variance, or inputs of another width."""
    with pytest.raises(InvalidInput):
        KernelSettings(variance=0.0, lengths=(1.0,), noise=0.1)
    settings = KernelSettings(variance=0.1, lengths=(1.0,), noise=0.1)
    with pytest.raises(InvalidInput):
        conditioned(np.zeros((2, 2)), np.zeros(2), settings)
