"""A step as ``T0 + c_t T + c_kv sum(context) + c_pf pairs + c_r requests`` of one model.

Handbook 3.3 gives the form and 14.2 the fit: non-negative, relative, robust. In the max form a
step of fewer than `knee` positions costs as much as one of `knee`: reading weights hides them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import nnls

from advisor.errors import InvalidInput
from advisor.roofline.calibration.parameters import implausible
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.stretches import Observation, Stretch, seconds_of, weights_of
from advisor.roofline.calibration.work import Floats, Form
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits

FEATURES = ("fixed_s", "token_s", "context_s", "pair_s", "request_s")
NOT_MODELLED = ("padding to CUDA graph sizes", "communication", "host work beside the device")
# Where a product turns from reading to computing (handbook 3.2 lists 136 to 347 positions).
_KNEES = tuple(np.unique(np.geomspace(16, 1024, 13).round()).tolist())
_HUBER, _TUKEY = 1.345, 4.685
_ROUNDS, _LEAST_SCALE = 25, 0.003
# Tukey's rule drops a point altogether, which a handful of points cannot afford.
_TUKEY_POINTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineModel:
    """The coefficients as an affine step; up to `knee` positions cost the same (0: sum form)."""

    affine: AffineStep
    knee: float = 0.0
    not_modelled: tuple[str, ...] = field(default=NOT_MODELLED)

    @property
    def form(self) -> Form:
        """Max where there is a knee."""
        return Form.MAX if self.knee else Form.SUM

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step; an empty one takes none."""
        if not batch.rows:
            return 0.0
        hidden = self.affine.token_s * max(0.0, self.knee - batch.tokens)
        return self.affine.seconds(batch) + hidden

    def run_seconds(self, runs: Sequence[Sequence[Stretch]]) -> Floats:
        """Seconds of whole runs, shape ``[runs]``."""
        coefficients = [getattr(self.affine, name) for name in FEATURES]
        return np.asarray(counts(runs, self.knee) @ coefficients)

    def tables(self, limits: TableLimits) -> StepTables:
        """Exact but for the pairs of prompts (see `AffineStep.tables`)."""
        tables = self.affine.tables(limits)
        if not self.knee:
            return tables
        tokens = np.array([0.0, self.knee, 2 * self.knee])
        dense = self.affine.token_s * np.maximum(tokens, self.knee)
        return replace(tables, tokens=tokens, dense_s=dense)

    def implied(self, machine: PeakMachine) -> dict[str, float]:
        """Shares of the peaks that the coefficients imply; one of 0 implies none.

        Of the memory: reading all weights in the fixed part, or in the flat part below the knee.
        """
        one = np.array([1.0])
        dense, head = machine.dense(one), machine.head(one)
        cache, _ = machine.decodes(one, one)
        read_s = float(dense[0].sum() + head[0].sum())
        computed_s = float(dense[1].sum() + head[1].sum())
        flat_s = self.affine.token_s * self.knee if self.knee else self.affine.fixed_s
        stated = {
            "memory bandwidth": (read_s, flat_s),
            "matrix rate": (computed_s, self.affine.token_s),
            "memory bandwidth in attention": (float(cache.sum()), self.affine.context_s),
        }
        return {name: peak / fitted for name, (peak, fitted) in stated.items() if fitted > 0}

    def implausible(self, machine: PeakMachine) -> str | None:
        """Why these coefficients cannot be right, None where they can (handbook 3.3)."""
        return implausible(self.implied(machine))


def counts(runs: Sequence[Sequence[Stretch]], knee: float = 0.0) -> Floats:
    """Steps, positions, keys, pairs and requests of each run, shape ``[runs, 5]``."""
    return np.array([np.sum([_counts(item, knee) for item in run], axis=0) for run in runs])


def _counts(stretch: Stretch, knee: float) -> list[float]:
    each = (
        1.0,
        max(stretch.tokens, knee),
        stretch.decodes * stretch.mean_context,
        stretch.pairs,
        float(stretch.requests),
    )
    return [stretch.steps * count for count in each]


def fit_affine(observations: Sequence[Observation], form: Form) -> AffineModel:
    """The coefficients in one form; the knee of the max form is the one that fits best."""
    if len(observations) < len(FEATURES):
        raise InvalidInput("observations", f"{len(observations)} do not fix {len(FEATURES)} costs")
    seconds, weights = seconds_of(observations), weights_of(observations)
    runs = [item.stretches for item in observations]
    fitted = {
        knee: _Robust(design=counts(runs, knee), seconds=seconds, weights=weights).fitted()
        for knee in ((0.0,) if form is Form.SUM else _KNEES)
    }
    knee = min(fitted, key=lambda knee: fitted[knee][1])
    stated = dict(zip(FEATURES, fitted[knee][0].tolist(), strict=True))
    return AffineModel(affine=AffineStep(**stated), knee=knee)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Robust:
    """NNLS on errors over the root of measured times fitted, reweighted until it stands.

    That quotient is to first order the error in logarithms, and like it takes a time three times
    too short as seriously as one three times too long.
    """

    design: Floats
    seconds: Floats
    weights: Floats

    def fitted(self) -> tuple[Floats, float]:
        """Coefficients and their robust loss: Huber's rule, then Tukey's from where it ended."""
        size = np.maximum(self.design.max(axis=0), 1e-300)
        trust, errors = np.ones(len(self.seconds)), np.ones(len(self.seconds))
        found, level, scale = np.zeros(len(size)), self.seconds, 1.0
        for rule in (_huber, _tukey) if len(self.seconds) >= _TUKEY_POINTS else (_huber,):
            for _ in range(_ROUNDS):
                roots = np.sqrt(self.weights * trust) / np.sqrt(self.seconds * level)
                before = found
                found = nnls(self.design / size * roots[:, None], self.seconds * roots)[0] / size
                level = np.maximum(self.design @ found, 1e-3 * self.seconds)
                errors = np.abs(np.log(level / self.seconds))
                if rule is _huber:
                    scale = max(_LEAST_SCALE, 1.4826 * float(np.median(errors)))
                trust = rule(errors / scale)
                if np.allclose(before, found, rtol=1e-4, atol=0):
                    break
        loss = np.where(
            errors < _HUBER * scale, errors**2 / 2, _HUBER * scale * (errors - _HUBER * scale / 2)
        )
        return found, float((self.weights * loss).sum())


def _huber(errors: Floats) -> Floats:
    return np.asarray(np.minimum(1.0, _HUBER / np.maximum(errors, 1e-12)))


def _tukey(errors: Floats) -> Floats:
    return np.asarray(np.maximum(1e-6, np.clip(1 - (errors / _TUKEY) ** 2, 0, 1) ** 2))
