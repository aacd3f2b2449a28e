"""Shares of the peaks from a few or many timings, with lognormal priors (handbook 11.5).

Maximum a posteriori in logarithms, relative errors, iteratively reweighted: beyond 1.3 robust
deviations a point counts in proportion to one over its error, and far less beyond six. With
hundreds of timings the priors only hold what the data cannot tell, as host time from weight reads
when all models have one size.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.calibration.parameters import (
    BOUNDED,
    LEAST_SHARE,
    MOST_SHARE,
    NAMES,
    PRIORS,
    SIGNS,
    LogNormal,
    StepParameters,
    from_logs,
)
from advisor.roofline.calibration.work import Floats, Form, Work

# Relative error of a step model before the residuals speak, worth so many points.
_EXPECTED_ERROR, _EXPECTED_WEIGHT = 0.04, 4.0
_HUBER = 1.345
_GROSS = 6.0
_ROUNDS, _STEPS, _SETTLED = 40, 3, 1e-4
_DAMPINGS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
# Parameters stay within so many spreads of their prior: the optimizer's walls, not the fit's.
_WALL = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The most probable parameters, their covariance in logarithms, and the relative error.

    `log_covariance` is in the order of `parameters.NAMES`, shape ``[7, 7]`` (Laplace).
    """

    form: Form
    parameters: StepParameters
    log_covariance: Floats
    error: float
    points: int

    def seconds(self, work: Work) -> Floats:
        """Seconds of each observation at the most probable parameters."""
        return self.parameters.seconds(work, self.form)

    def log_variance(self, work: Work) -> Floats:
        """Variance of each logarithm of `seconds` that the parameters' own leaves, first order."""
        slopes = _slopes(self.parameters, work, self.form)
        return np.asarray(np.einsum("ni,ij,nj->n", slopes, self.log_covariance, slopes))

    def draws(self, count: int, rng: np.random.Generator) -> tuple[StepParameters, ...]:
        """Parameters drawn from the normal approximation, for propagation of what is unknown."""
        logs = rng.multivariate_normal(
            self.parameters.logs(), self.log_covariance, size=count, method="eigh"
        )
        return tuple(from_logs(row) for row in logs)


def fit_posterior(
    work: Work,
    seconds: Floats,
    form: Form,
    *,
    weights: Floats | None = None,
    priors: Mapping[str, LogNormal] = PRIORS,
) -> Posterior:
    """Fits one machine to timings of any number of models on it; shapes ``[observations]``."""
    if work.count != len(seconds) or not len(seconds):
        raise InvalidInput("observations", f"{len(seconds)} times for {work.count} observations")
    problem = _Problem(
        work=work,
        target=np.log(seconds),
        form=form,
        weights=np.ones(len(seconds)) if weights is None else weights,
        centre=np.log([priors[name].median for name in NAMES]),
        spread=np.array([priors[name].log_sd for name in NAMES]),
    )
    logs, error = problem.centre, _EXPECTED_ERROR
    trust = np.ones(len(seconds))
    for _ in range(_ROUNDS):
        found = problem.minimum(logs, trust * problem.weights / error**2)
        moved = float(np.abs(found - logs).max())
        logs, errors = found, np.abs(problem.errors(found))
        error = _scale(errors, problem.weights)
        trust = _trust(errors / error)
        if moved < _SETTLED:
            break
    curvature, _ = problem.curvature(logs, trust * problem.weights / error**2)
    return Posterior(
        form=form,
        parameters=from_logs(logs),
        log_covariance=np.asarray(np.linalg.inv(curvature), dtype=np.float64),
        error=error,
        points=len(seconds),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Problem:
    """Squared errors in logarithms, weighted, and the squared distance from the priors."""

    work: Work
    target: Floats
    form: Form
    weights: Floats
    centre: Floats
    spread: Floats

    def errors(self, logs: Floats) -> Floats:
        """Logarithm of predicted over measured."""
        return np.asarray(np.log(from_logs(logs).seconds(self.work, self.form)) - self.target)

    def loss(self, logs: Floats, weights: Floats) -> float:
        """What `minimum` lowers."""
        prior = ((logs - self.centre) / self.spread) ** 2
        return float((weights * self.errors(logs) ** 2).sum() + prior.sum())

    def curvature(self, logs: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Gauss-Newton matrix and gradient of half the loss."""
        slopes = _slopes(from_logs(logs), self.work, self.form)
        weighted = slopes * weights[:, None]
        matrix = slopes.T @ weighted + np.diag(self.spread**-2.0)
        return matrix, weighted.T @ self.errors(logs) + (logs - self.centre) / self.spread**2

    def minimum(self, logs: Floats, weights: Floats) -> Floats:
        """Damped Gauss-Newton steps that stay within the walls."""
        low, high = _walls(self.centre, self.spread)
        loss = self.loss(logs, weights)
        for _ in range(_STEPS):
            matrix, gradient = self.curvature(logs, weights)
            free = ~(((logs <= low) & (gradient > 0)) | ((logs >= high) & (gradient < 0)))
            step = np.zeros_like(logs)
            step[free] = -np.linalg.solve(matrix[np.ix_(free, free)], gradient[free])
            for damping in _DAMPINGS:
                trial = np.clip(logs + damping * step, low, high)
                lower = self.loss(trial, weights)
                if lower < loss:
                    break
            else:
                return logs
            moved = float(np.abs(trial - logs).max())
            logs, loss = trial, lower
            if moved < _SETTLED:
                break
        return logs


def _trust(errors: Floats) -> Floats:
    """Weight of a point by its error in robust deviations: Huber's, and less beyond gross errors.

    A timing three times too long must not pull at a machine that it alone describes.
    """
    huber = np.minimum(1.0, _HUBER / np.maximum(errors, 1e-12))
    return np.asarray(huber * np.minimum(1.0, _GROSS / np.maximum(errors, 1e-12)) ** 2)


def _slopes(parameters: StepParameters, work: Work, form: Form) -> Floats:
    """Of the logarithm of the seconds over those of the parameters, shape ``[n, 7]``."""
    parts = parameters.parts(work, form)
    return np.asarray((SIGNS[:, None] * parts / (parts.sum(axis=0) + work.known_s)).T)


def _walls(centre: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Where the optimizer may go: shares of a peak no further than handbook 3.3 believes."""
    low, high = centre - _WALL * spread, centre + _WALL * spread
    for name in BOUNDED:
        place = NAMES.index(name)
        low[place], high[place] = math.log(LEAST_SHARE), math.log(MOST_SHARE)
    return low, high


def _scale(errors: Floats, weights: Floats) -> float:
    """A robust relative error: the median deviation, with the expected error mixed in."""
    deviation = 1.4826 * _weighted_median(np.abs(errors), weights)
    count = len(errors)
    mixed = _EXPECTED_WEIGHT * _EXPECTED_ERROR**2 + count * deviation**2
    return math.sqrt(mixed / (_EXPECTED_WEIGHT + count))


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
