"""Timings of one served model on one device made into a step model with an interval.

Both forms of the affine step are fitted, the lower held-out error wins, and a form that implies
impossible shares of the peaks is rejected (handbook 3.3, 14.2). With five points or fewer, or no
form left, the shares of the peaks themselves are fitted under their priors (11.5).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.calibration.affine import FEATURES, fit_affine
from advisor.roofline.calibration.calibrated import Calibration, FittedRoofline, RunTime
from advisor.roofline.calibration.conformal import left_out, log_residuals, width
from advisor.roofline.calibration.parameters import PRIORS, LogNormal
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.posterior import fit_posterior
from advisor.roofline.calibration.stretches import Observation, seconds_of, weights_of
from advisor.roofline.calibration.work import Floats, Form

FEW = len(FEATURES)  # up to so many points, priors decide with them
_FOLDS = 10
_Fit: TypeAlias = Callable[[Sequence[Observation]], RunTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    step: RunTime
    form: Form
    errors: Floats
    about: str

    @property
    def error(self) -> float:
        """Mean relative error on held-out points; a single point leaves none out."""
        if not len(self.errors):
            return math.inf
        return float(np.mean(np.abs(np.expm1(-self.errors))))


def fit(
    observations: Sequence[Observation],
    machine: PeakMachine,
    *,
    priors: Mapping[str, LogNormal] = PRIORS,
) -> Calibration:
    """Calibrates the step of `machine`'s model; needs one observation at least."""
    if not observations:
        raise InvalidInput("observations", "there are none")
    rejected: list[str] = []
    candidates: list[_Candidate] = []
    if len(observations) > FEW:
        for form in Form:
            candidate, reason = _affine(observations, form, machine)
            if reason is None:
                candidates.append(candidate)
            else:
                rejected.append(f"{form} form: {reason}")
    if not candidates:
        candidates = [_roofline(observations, form, machine, priors) for form in Form]
    best = min(candidates, key=lambda candidate: candidate.error)
    return Calibration(
        step=best.step,
        form=best.form,
        width=width(np.abs(best.errors).tolist()),
        about=best.about,
        rejected=tuple(rejected),
    )


def _affine(
    observations: Sequence[Observation], form: Form, machine: PeakMachine
) -> tuple[_Candidate, str | None]:
    step = fit_affine(observations, form)
    candidate = _Candidate(
        step=step,
        form=form,
        errors=_errors(observations, lambda kept: fit_affine(kept, form)),
        about=f"affine step in {form} form fitted to {len(observations)} points",
    )
    return candidate, step.implausible(machine)


def _roofline(
    observations: Sequence[Observation],
    form: Form,
    machine: PeakMachine,
    priors: Mapping[str, LogNormal],
) -> _Candidate:
    def fitted(kept: Sequence[Observation]) -> FittedRoofline:
        posterior = fit_posterior(
            machine.work([item.stretches for item in kept]),
            seconds_of(kept),
            form,
            weights=weights_of(kept),
            priors=priors,
        )
        return FittedRoofline(machine=machine, parameters=posterior.parameters, form=form)

    several = len(observations) > 1
    return _Candidate(
        step=fitted(observations),
        form=form,
        errors=_errors(observations, fitted) if several else np.array([]),
        about=f"roofline in {form} form with priors fitted to {len(observations)} points",
    )


def _errors(observations: Sequence[Observation], fitted: _Fit) -> Floats:
    """Logarithm of measured over predicted of every point without it."""

    def without(indices: Sequence[int]) -> Callable[[int], float]:
        step = fitted([observations[index] for index in indices])
        return lambda index: float(step.run_seconds([observations[index].stretches])[0])

    held = left_out(without, len(observations), folds=_FOLDS)
    return log_residuals(seconds_of(observations).tolist(), held.tolist())
