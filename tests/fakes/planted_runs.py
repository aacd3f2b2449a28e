"""Timed runs of a planted step, as an engine would be timed from outside."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.measurement.step_plan import StepRun
from advisor.measurement.steps import StepTiming, prompt_steps
from advisor.roofline.step.batch import StepBatch
from tests.fakes.planted_steps import Law


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedRuns:
    """Runs of an engine with this step; `around_s` is what a run costs beside its steps.

    Each of the draft tokens of a verification costs `draft_s`, and none is accepted.
    """

    law: Law
    budget: int = 2048
    around_s: float = 3e-3
    draft_s: float = 1e-3

    def step_s(self, run: StepRun, context: float) -> float:
        """One decode step of the run."""
        batch = StepBatch(
            decode_contexts=(float(context),) * run.batch, draft_tokens=run.draft_tokens
        )
        return self.law(batch) + self.draft_s * run.draft_tokens

    def seconds(self, run: StepRun) -> float:
        """The whole run: prompts first, then all decode."""
        prompts = sum(
            self.law(StepBatch(prefills=step.prefills))
            for step in prompt_steps(run.batch, run.prompt_tokens, self.budget)
        )
        decodes = sum(
            self.step_s(run, run.prompt_tokens + place) for place in range(1, run.output_tokens)
        )
        return self.around_s + prompts + decodes

    def timed(
        self, plan: Sequence[StepRun], *, noise: float, seed: int, repeats: int = 3
    ) -> list[StepTiming]:
        """Every run so many times with lognormal noise."""
        rng = np.random.default_rng(seed)
        return [
            StepTiming(run=run, seconds=seconds * float(np.exp(noise * rng.standard_normal())))
            for run, seconds in ((run, self.seconds(run)) for run in plan)
            for _ in range(repeats)
        ]
