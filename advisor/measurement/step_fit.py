"""An affine step fitted to timed steps, with intervals and its error on loads left out.

The terms are those of `roofline.calibration.affine` and one more, which that fit has not: what a
timed run costs around its steps (a request's way in and out). Non-negative least squares on
relative errors (handbook 14.2). Where an engine's peaks are known, `observations` go to
`roofline.calibration.fit` as well, which weighs them against priors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from advisor.estimate import Estimate, Prediction, Source
from advisor.measurement.noise import NoiseFit
from advisor.roofline.calibration.affine import FEATURES, AffineModel, counts
from advisor.roofline.calibration.conformal import Width, width
from advisor.roofline.calibration.stretches import Observation, Stretch
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import AffineStep

Floats = NDArray[np.float64]

RESAMPLES = 400
_KNEES = (0.0, *np.unique(np.geomspace(8, 1024, 30).round()).tolist())
_ROUNDS = 3
_LEAST = 1e-3  # of a measured time, below which no fitted one is taken for its logarithm
_NOTHING = 1e-300
# A knee must explain this many variances more than a step without one, which bends nowhere.
_KNEE_PRICE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedSteps:
    """Measured seconds of all `stretches`, with what is around `runs` runs (0 for a difference).

    `variance` is the squared relative error in units of that of one timing.
    """

    stretches: tuple[Stretch, ...]
    seconds: float
    variance: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """The step ``T0 + c_t T + c_kv context + c_pf pairs + c_r requests`` with 95 % intervals.

    `coefficients` are by the names of `AffineStep`, and "run_s": seconds around a run. `error` is
    the mean relative error on each load by a fit without it, `width` the interval that these
    errors give a predicted step. `observations` are the timed steps less what is around them.
    """

    model: AffineModel
    coefficients: dict[str, Estimate]
    error: float
    width: Width
    loads: int
    observations: tuple[Observation, ...]

    def predict(self, batch: StepBatch) -> Prediction:
        """Seconds of one step."""
        return self.width.around(
            self.model.seconds(batch),
            about=f"affine step fitted to {self.loads} timed loads",
            not_modelled=self.model.not_modelled,
        )


def fit_steps(rows: Sequence[TimedSteps], noise: NoiseFit, *, seed: int = 0) -> StepFit | str:
    """The fit, or why there is none: fewer loads than terms leave nothing to check them by."""
    terms = len(FEATURES) + 1
    if len(rows) <= terms:
        return f"{len(rows)} timed loads do not fix {terms} terms"
    system = _System.of(rows)
    price = _KNEE_PRICE * noise.scale**2
    knee, found = system.best(price)
    errors = _left_out(system, price)
    ends = _resampled(system, (knee, found), noise, np.random.default_rng(seed))
    run_s = float(found[-1])
    return StepFit(
        model=_model(found, knee),
        coefficients={
            name: _estimate(found[at], ends[:, at], len(rows))
            for at, name in enumerate((*FEATURES, "run_s"))
        },
        error=float(np.mean(np.abs(np.expm1(-errors)))),
        width=width(np.abs(errors).tolist(), about="loads left out"),
        loads=len(rows),
        observations=tuple(_observation(row, run_s) for row in rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _System:
    """Least squares: `designs` by knee, shape ``[rows, terms]``, `weights` one over variance."""

    designs: dict[float, Floats]
    seconds: Floats
    weights: Floats

    @classmethod
    def of(cls, rows: Sequence[TimedSteps]) -> "_System":
        """The designs with a column of runs behind the features."""
        runs = np.array([[float(row.runs)] for row in rows])
        stretches = [row.stretches for row in rows]
        return cls(
            designs={knee: np.hstack((counts(stretches, knee), runs)) for knee in _KNEES},
            seconds=np.array([row.seconds for row in rows]),
            weights=1 / np.array([row.variance for row in rows]),
        )

    def without(self, at: int) -> "_System":
        """All rows but one."""
        kept = np.arange(len(self.seconds)) != at
        return _System(
            designs={knee: design[kept] for knee, design in self.designs.items()},
            seconds=self.seconds[kept],
            weights=self.weights[kept],
        )

    def best(self, price: float) -> tuple[float, Floats]:
        """The knee that fits best at its price (0: none) and the coefficients with it."""
        losses, solutions = {}, {}
        for knee in _KNEES:
            solutions[knee] = self.solved(knee)
            left = np.log(self.fitted(knee, solutions[knee]) / self.seconds)
            losses[knee] = float(self.weights @ left**2) + (price if knee else 0.0)
        knee = min(losses, key=lambda at: losses[at])
        return knee, solutions[knee]

    def fitted(self, knee: float, found: Floats) -> Floats:
        """Seconds of the rows by these coefficients."""
        return np.maximum(self.designs[knee] @ found, _LEAST * self.seconds)

    def solved(self, knee: float) -> Floats:
        """Coefficients; errors are over the root of measured times fitted, as logarithms have it.

        An error over the measured time alone prefers a fit that is too short.
        """
        size = np.maximum(self.designs[knee].max(axis=0), _NOTHING)
        level, found = self.seconds, np.zeros(len(size))
        for _ in range(_ROUNDS):
            roots = np.sqrt(self.weights / (self.seconds * level))
            design = self.designs[knee] / size * roots[:, np.newaxis]
            found = nnls(design, self.seconds * roots)[0] / size
            level = self.fitted(knee, found)
        return np.asarray(found)


def _left_out(system: _System, price: float) -> Floats:
    """Logarithm of measured over predicted of each load by a fit without it, knee and all."""
    found = np.zeros(len(system.seconds))
    for at, seconds in enumerate(system.seconds):
        knee, solution = system.without(at).best(price)
        predicted = float(system.designs[knee][at] @ solution)
        found[at] = math.log(seconds / max(predicted, _LEAST * seconds))
    return found


def _resampled(
    system: _System, fit: tuple[float, Floats], noise: NoiseFit, rng: np.random.Generator
) -> Floats:
    """Coefficients of resamples, shape ``[resamples, terms]``, their knees chosen anew.

    The fitted times with normal errors in logarithms, whose variance pools the repeats' with what
    the fit leaves over and is drawn itself, as few degrees of freedom know it badly. Resamples are
    solved without the bound at 0: at the bound they would scatter to one side only.
    """
    fitted, roots = system.fitted(*fit), np.sqrt(system.weights)
    left = float((system.weights * np.log(system.seconds / fitted) ** 2).sum())
    freedom = noise.degrees_of_freedom + max(0, len(fitted) - len(fit[1]))
    variance = (noise.degrees_of_freedom * noise.scale**2 + left) / freedom
    spread = np.sqrt(variance * freedom / rng.chisquare(freedom, RESAMPLES))
    drawn = spread * rng.standard_normal((len(fitted), RESAMPLES))
    targets = np.exp(drawn / roots[:, np.newaxis]) * roots[:, np.newaxis]
    least = np.full(RESAMPLES, np.inf)
    chosen = np.zeros((RESAMPLES, len(fit[1])))
    for knee, counted in system.designs.items():
        design = counted * (roots / fitted)[:, np.newaxis]
        size = np.maximum(design.max(axis=0), _NOTHING)
        solved = np.linalg.pinv(design / size) @ targets
        loss = ((targets - design / size @ solved) ** 2).sum(axis=0)
        loss += _KNEE_PRICE * variance if knee else 0.0
        better = loss < least
        least[better] = loss[better]
        chosen[better] = (solved / size[:, np.newaxis]).T[better]
    return chosen


def _estimate(value: float, drawn: Floats, loads: int) -> Estimate:
    low, high = np.maximum(0.0, np.percentile(drawn, (2.5, 97.5)))
    return Estimate(
        value=float(value),
        low=min(float(low), float(value)),
        high=max(float(high), float(value)),
        source=Source.MEASURED,
        basis=f"non-negative least squares over {loads} loads, residual bootstrap",
    )


def _model(found: Floats, knee: float) -> AffineModel:
    stated = dict(zip(FEATURES, found[: len(FEATURES)].tolist(), strict=True))
    return AffineModel(affine=AffineStep(**stated), knee=knee)


def _observation(row: TimedSteps, run_s: float) -> Observation:
    """Less what is around the steps, of which some time must be left."""
    return Observation(
        stretches=row.stretches,
        seconds=max(row.seconds - run_s * row.runs, _LEAST * row.seconds),
        weight=1 / row.variance,
    )
