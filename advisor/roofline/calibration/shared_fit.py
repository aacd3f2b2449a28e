"""One machine calibrated by runs of several models on it: form, residual and intervals.

Every choice is made by errors on what was held out of the training points, in the folds that the
caller names: random ones where predictions lie among the trained loads, whole levels of batch or
whole models where they lie beyond. The form with the lower error wins (handbook 3.3), a Gaussian
process is added where points suffice and it lowers the error again (11.5), and the scores over
each point's own spread give the interval. Nothing of a fold reaches the fit that predicts it, the
lengths of the process included: intervals from lengths fitted to all points cover too little.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.estimate import Prediction
from advisor.roofline.calibration.calibrated import NOT_MODELLED, FittedRoofline
from advisor.roofline.calibration.conformal import Score, Width, grouped_width
from advisor.roofline.calibration.parameters import PRIORS, LogNormal
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.posterior import Posterior, fit_posterior
from advisor.roofline.calibration.residual import Residual, fit_residual, monotone, suffices
from advisor.roofline.calibration.work import Floats, Form, Indices, Work


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Samples:
    """Training points: their work, measured seconds, and inputs of a residual ``[n, d]``.

    `folds` labels what is held out together. `groups` names each point's kinds for `Score`.
    `rising` are columns of `inputs` along which a run of equal others cannot get shorter.
    `beyond` says that folds are whole levels and predictions lie outside of the trained ones:
    spreads, which only know the trained levels, are then left out of the scores. `tied` are the
    groups of input columns that share a length (`fit_residual`).
    """

    work: Work
    seconds: Floats
    inputs: Floats
    folds: Indices
    groups: tuple[tuple[str, ...], ...] = ()
    rising: tuple[int, ...] = ()
    beyond: bool = False
    tied: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        count = len(self.seconds)
        lengths = {self.work.count, len(self.inputs), len(self.folds), len(self.groups) or count}
        if lengths != {count}:
            raise InvalidInput("samples", f"{count} times, but other counts {sorted(lengths)}")
        if len(np.unique(self.folds)) < 2:  # noqa: PLR2004
            raise InvalidInput("samples.folds", "one fold leaves nothing to fit to")

    def chosen(self, indices: Sequence[int]) -> "Samples":
        """Some of them; their folds are kept and may be fewer."""
        order = list(indices)
        folds = np.arange(len(order), dtype=np.intp)
        return Samples(
            work=self.work.chosen(order),
            seconds=self.seconds[order],
            inputs=self.inputs[order],
            folds=folds,
            tied=self.tied,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Machine:
    """A posterior, with a residual or without."""

    posterior: Posterior
    residual: Residual | None

    def at(self, work: Work, inputs: Floats) -> tuple[Floats, Floats]:
        """Logarithm of the seconds, and its spread."""
        logs = np.log(self.posterior.seconds(work))
        variance = self.posterior.log_variance(work)
        if self.residual is None:
            return logs, np.sqrt(variance + self.posterior.error**2)
        mean, unsure = self.residual.at(inputs)
        return logs + mean, np.sqrt(variance + unsure + self.residual.settings.noise)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedFit:
    """A calibrated machine. `errors` are held-out mean errors of each candidate, in logarithms."""

    posterior: Posterior
    residual: Residual | None
    scores: tuple[Score, ...]
    errors: Mapping[str, float]
    rising: tuple[int, ...] = ()
    beyond: bool = False
    not_modelled: tuple[str, ...] = NOT_MODELLED

    @property
    def about(self) -> str:
        """Points and form, as every basis opens."""
        extra = "" if self.residual is None else " with a Gaussian-process residual"
        points = self.posterior.points
        return f"roofline in {self.posterior.form} form fitted to {points} runs{extra}"

    def step(self, machine: PeakMachine) -> FittedRoofline:
        """The step model of one served model on the calibrated machine, without the residual."""
        return FittedRoofline(
            machine=machine, parameters=self.posterior.parameters, form=self.posterior.form
        )

    def logs(self, work: Work, inputs: Floats) -> tuple[Floats, Floats]:
        """Logarithm of the seconds of each observation, and its spread, shapes ``[n]``."""
        machine = _Machine(posterior=self.posterior, residual=self.residual)
        logs, spreads = machine.at(work, inputs)
        if self.residual is not None and self.rising:
            others = np.delete(inputs, self.rising, axis=1)
            logs = monotone(logs, inputs[:, list(self.rising)], [tuple(row) for row in others])
        return logs, spreads

    def width(self, groups: Sequence[str] = ()) -> Width:
        """Of the interval in units of a point's spread."""
        return grouped_width(self.scores, groups)

    def predict(
        self, work: Work, inputs: Floats, groups: Sequence[Sequence[str]] | None = None
    ) -> tuple[Prediction, ...]:
        """Seconds of each observation with their intervals; `groups` as in `Score`."""
        logs, spreads = self.logs(work, inputs)
        kinds = groups or [()] * work.count
        if self.beyond:
            spreads = np.ones_like(spreads)
        return tuple(
            self.width(kind).around(
                float(np.exp(log)),
                scale=float(spread),
                about=self.about,
                not_modelled=self.not_modelled,
            )
            for log, spread, kind in zip(logs, spreads, kinds, strict=True)
        )


def fit_shared(
    samples: Samples,
    *,
    priors: Mapping[str, LogNormal] = PRIORS,
    least_noise: float = 1e-5,
) -> SharedFit:
    """Calibrates; `least_noise` is the variance of ln seconds that repeats show."""
    plain = {form: _held_out(samples, _Plan(form=form, priors=priors)) for form in Form}
    form = min(Form, key=lambda kind: _error(plain[kind][0]))
    errors = {str(kind): _error(plain[kind][0]) for kind in Form}
    plan, (left, spreads) = _Plan(form=form, priors=priors), plain[form]
    bent = _Plan(form=form, priors=priors, least_noise=least_noise)
    if bent.bends(samples):
        held = _held_out(samples, bent)
        errors[f"{form} with residual"] = _error(held[0])
        if _error(held[0]) < _error(left):
            plan, (left, spreads) = bent, held
    machine = plan.machine(samples)
    groups = samples.groups or ((),) * len(left)
    return SharedFit(
        posterior=machine.posterior,
        residual=machine.residual,
        scores=tuple(
            Score(residual=float(r), spread=1.0 if samples.beyond else float(s), groups=kinds)
            for r, s, kinds in zip(left, spreads, groups, strict=True)
        ),
        errors=errors,
        rising=samples.rising,
        beyond=samples.beyond,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    """How a machine is fitted; with `least_noise` it has a residual where points suffice."""

    form: Form
    priors: Mapping[str, LogNormal]
    least_noise: float | None = None

    def bends(self, samples: Samples) -> bool:
        """Whether the machine gets a residual."""
        points, columns = samples.inputs.shape
        lengths = columns if samples.tied is None else max(samples.tied) + 1
        return self.least_noise is not None and suffices(points, lengths)

    def machine(self, samples: Samples) -> _Machine:
        """All of it from these samples alone, hyperparameters of the residual included."""
        posterior = fit_posterior(samples.work, samples.seconds, self.form, priors=self.priors)
        if self.least_noise is None or not self.bends(samples):
            return _Machine(posterior=posterior, residual=None)
        over = np.log(samples.seconds / posterior.seconds(samples.work))
        residual = fit_residual(
            samples.inputs, over, tied=samples.tied, least_noise=self.least_noise
        )
        return _Machine(posterior=posterior, residual=residual)


def _held_out(samples: Samples, plan: _Plan) -> tuple[Floats, Floats]:
    """Errors in logarithms of each point without its fold, and their spreads."""
    left, spreads = np.zeros(len(samples.seconds)), np.ones(len(samples.seconds))
    for fold in np.unique(samples.folds):
        held = np.flatnonzero(samples.folds == fold)
        kept = np.flatnonzero(samples.folds != fold)
        machine = plan.machine(samples.chosen(kept.tolist()))
        logs, spread = machine.at(samples.work.chosen(held.tolist()), samples.inputs[held])
        left[held], spreads[held] = np.log(samples.seconds[held]) - logs, spread
    return left, spreads


def _error(logs: Floats) -> float:
    """Mean error in logarithms, in which the fit and the intervals are too."""
    return float(np.mean(np.abs(logs)))
