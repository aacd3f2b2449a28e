"""A fitted machine as a step model: single steps, whole runs, and the simulator's tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from advisor.estimate import Prediction
from advisor.roofline.calibration.conformal import Width
from advisor.roofline.calibration.parameters import StepParameters
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.stretches import Stretch
from advisor.roofline.calibration.work import Floats, Form
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import StepTables, StepTime, TableLimits

NOT_MODELLED = (
    "padding to CUDA graph sizes",
    "contexts of one batch as they differ",
    "cache reads of prompt chunks",
    "host work beside the device",
)
_RATIO = 1.04


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedRoofline:
    """`parameters` on the peaks of `machine`."""

    machine: PeakMachine
    parameters: StepParameters
    form: Form
    not_modelled: tuple[str, ...] = NOT_MODELLED

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step; an empty one takes none."""
        if not batch.rows:
            return 0.0
        return float(self.run_seconds([(Stretch.of(batch),)])[0])

    def run_seconds(self, runs: Sequence[Sequence[Stretch]]) -> Floats:
        """Seconds of whole runs, shape ``[runs]``."""
        return self.parameters.seconds(self.machine.work(runs), self.form)

    def tables(self, limits: TableLimits) -> StepTables:
        """The model on fine grids; between their points it is all but linear."""
        tokens, rows = _grid(limits.max_tokens), _grid(limits.max_requests)
        contexts = np.concatenate([[0.0], _grid(limits.max_context)])
        new = _grid(limits.max_tokens)
        shares, machine = self.parameters, self.machine
        return StepTables(
            tokens=tokens,
            dense_s=self._products(machine.dense(tokens)).sum(axis=0) + machine.messages(tokens),
            rows=rows,
            head_s=self._products(machine.head(rows)),
            requests=rows,
            contexts=contexts,
            decode_s=self._decodes(rows[:, None], contexts[None, :]),
            new=new,
            cached=contexts,
            prefill_s=machine.prefills(new[:, None], contexts[None, :]) / shares.prefill,
            draft_s=np.zeros_like(rows),
            host_s=shares.host_s,
            host_request_s=shares.request_s,
        )

    def _products(self, read_multiply: tuple[Floats, Floats]) -> Floats:
        read, multiply = read_multiply
        return self.form.joined(read / self.parameters.memory, multiply / self.parameters.compute)

    def _decodes(self, requests: Floats, contexts: Floats) -> Floats:
        cache, attend = self.machine.decodes(requests, contexts)
        shares = self.parameters
        both = self.form.joined(cache / shares.cache, attend / shares.attention)
        return np.asarray(both.sum(axis=0))


class RunTime(StepTime, Protocol):
    """A model of a step that also adds up whole runs."""

    def run_seconds(self, runs: Sequence[Sequence[Stretch]]) -> Floats:
        """Seconds of whole runs, shape ``[runs]``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A fitted step model with the `width` of its held-out errors: itself a step model.

    `about` says which points it was fitted to and in which form; it opens every basis. `rejected`
    says of each form that was fitted and not believed why.
    """

    step: RunTime
    form: Form
    width: Width
    about: str
    rejected: tuple[str, ...] = ()

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What the step model leaves out."""
        return self.step.not_modelled

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step."""
        return self.step.seconds(batch)

    def tables(self, limits: TableLimits) -> StepTables:
        """The step model on grids."""
        return self.step.tables(limits)

    def predict(self, batch: StepBatch) -> Prediction:
        """One step with its interval."""
        return self.predict_run((Stretch.of(batch),))

    def predict_run(self, stretches: Sequence[Stretch]) -> Prediction:
        """A whole run with its interval."""
        return self.width.around(
            float(self.step.run_seconds([stretches])[0]),
            about=self.about,
            not_modelled=self.not_modelled,
        )


def _grid(most: float) -> Floats:
    """Whole numbers from 1, each at most 4 % above the one before once that is a step."""
    top = max(2, int(np.ceil(most)))
    count = max(2, int(np.ceil(np.log(top) / np.log(_RATIO))))
    return np.unique(np.geomspace(1, top, count).round())
