"""What a roofline leaves over, as a Gaussian process of the load (handbook 11.5).

``y = ln measured - ln roofline`` over inputs such as (ln B, ln s, ln T, ln tp, one column per
model): far from every measured load it returns to 0, and the roofline stands alone. scikit-learn
is loaded when a process is fitted, not before: it takes seconds.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.optimize import minimize

from advisor.errors import InvalidInput
from advisor.roofline.calibration.work import Floats

# So many points at least, and so many per length, before a process is fitted.
LEAST_POINTS, LEAST_PER_LENGTH = 20, 5
_LENGTHS, _VARIANCES, _NOISES = (0.3, 100.0), (1e-5, 0.25), (1e-5, 1e-2)
_ITERATIONS = 40


class Kernel(StrEnum):
    """How smooth the residual is."""

    MATERN = "Matern 5/2"
    RBF = "RBF"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """Hyperparameters: variance of the residual, lengths, variance of noise.

    `tied` is the index into `lengths` of each input column; empty: a length per column.
    """

    variance: float
    lengths: tuple[float, ...]
    noise: float
    kernel: Kernel = Kernel.MATERN
    tied: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if min(self.variance, self.noise, *self.lengths) <= 0:
            raise InvalidInput("kernel", "variances and lengths are positive")
        if self.tied and set(self.tied) != set(range(len(self.lengths))):
            raise InvalidInput("kernel.tied", "does not name every length")

    @property
    def columns(self) -> tuple[int, ...]:
        """The index into `lengths` of each input column."""
        return self.tied or tuple(range(len(self.lengths)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residual:
    """A fitted process."""

    settings: KernelSettings
    process: Any

    def at(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Mean and variance (noise left out) at `inputs` ``[m, d]``, shapes ``[m]``."""
        mean, deviation = self.process.predict(inputs, return_std=True)
        return np.asarray(mean), np.asarray(deviation) ** 2


def suffices(points: int, lengths: int) -> bool:
    """Whether so many points carry a process of so many lengths."""
    return points >= max(LEAST_POINTS, LEAST_PER_LENGTH * lengths)


def conditioned(inputs: Floats, residuals: Floats, settings: KernelSettings) -> Residual:
    """The process with known hyperparameters given residuals ``[n]`` at `inputs` ``[n, d]``."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415

    if inputs.shape != (len(residuals), len(settings.columns)):
        raise InvalidInput("inputs", f"have the shape {inputs.shape}")
    process = GaussianProcessRegressor(
        _kernel(settings, fixed=True), alpha=settings.noise, optimizer=None
    )
    return Residual(settings=settings, process=process.fit(inputs, residuals))


def fit_residual(
    inputs: Floats,
    residuals: Floats,
    *,
    tied: Sequence[int] | None = None,
    least_noise: float = _NOISES[0],
    kernel: Kernel = Kernel.MATERN,
) -> Residual:
    """Hyperparameters by marginal likelihood; `least_noise` is the variance that repeats show.

    `tied` names a group for each column, from 0: columns of a group share a length (a column per
    model says one thing together). None: a length each. Too few points (`suffices`) raise
    `InvalidInput`.
    """
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    points, columns = inputs.shape
    groups = tuple(range(columns)) if tied is None else tuple(tied)
    lengths = max(groups) + 1
    if not suffices(points, lengths):
        raise InvalidInput("residuals", f"{points} points carry no process of {lengths} lengths")
    noise = float(np.clip(least_noise, *_NOISES))
    start = KernelSettings(
        variance=float(np.clip(np.var(residuals), *_VARIANCES)),
        lengths=(1.0,) * lengths,
        tied=groups,
        noise=noise,
        kernel=kernel,
    )
    process = GaussianProcessRegressor(
        _kernel(start, fixed=False, least_noise=noise), alpha=0.0, optimizer=_optimizer
    )
    # Matrices of a hundred rows: threads of the linear algebra take three times as long.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Lengths at their bound say that an input does not matter, which is an answer.
        warnings.simplefilter("ignore")
        process.fit(inputs, residuals)
    found = np.exp(process.kernel_.theta)
    settings = replace(
        start,
        variance=float(found[0]),
        lengths=tuple(found[1:-1].tolist()),
        noise=float(found[-1]),
    )
    return conditioned(inputs, residuals, settings)


def repeat_noise(conditions: Sequence[object], logs: Sequence[float]) -> float | None:
    """Variance of ln seconds among repeats of one condition; None where nothing was repeated."""
    groups: dict[object, list[float]] = {}
    for condition, value in zip(conditions, logs, strict=True):
        groups.setdefault(condition, []).append(value)
    repeated = [values for values in groups.values() if len(values) > 1]
    if not repeated:
        return None
    squares = sum(float(np.var(values)) * len(values) for values in repeated)
    return squares / sum(len(values) - 1 for values in repeated)


def monotone(values: Floats, axes: Floats, groups: Sequence[object] | None = None) -> Floats:
    """The nearest values that fall along no axis: a step with more work is not shorter.

    `values` ``[n]`` at `axes` ``[n, k]`` (batch, context), compared within equal `groups` only.
    Midway between the least rising values above and the greatest rising values below.
    """
    labels = [0] * len(values) if groups is None else list(groups)
    found = np.array(values, dtype=np.float64)
    for label in dict.fromkeys(labels):
        members = np.array([i for i, own in enumerate(labels) if own == label])
        below = (axes[members][:, None, :] >= axes[members][None, :, :]).all(axis=2)
        own = found[members]
        upper = np.where(below, own[None, :], -math.inf).max(axis=1)
        lower = np.where(below.T, own[None, :], math.inf).min(axis=1)
        found[members] = (upper + lower) / 2
    return found


def _kernel(settings: KernelSettings, *, fixed: bool, least_noise: float = _NOISES[0]) -> Any:
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel  # noqa: PLC0415

    from advisor.roofline.calibration.residual_kernel import SharedLengths  # noqa: PLC0415

    shape = SharedLengths(
        np.array(settings.lengths),
        "fixed" if fixed else _LENGTHS,
        settings.columns,
        smooth=settings.kernel is Kernel.RBF,
    )
    scaled = ConstantKernel(settings.variance, "fixed" if fixed else _VARIANCES) * shape
    if fixed:
        return scaled
    return scaled + WhiteKernel(settings.noise, (least_noise, max(_NOISES[1], 2 * least_noise)))


def _optimizer(objective: Any, start: Floats, bounds: Floats) -> tuple[Floats, float]:
    found = minimize(
        objective,
        start,
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
    )
    return found.x, float(found.fun)
