"""Which draft lengths pay at which batch, on the engine that was asked about."""

from dataclasses import replace

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.roofline.speculation import (
    Acceptance,
    DraftSchedule,
    MeasuredDrafter,
    Speculating,
    draft_schedule,
)
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.simulator.engine import EngineModel, SchedulerWords
from advisor.simulator.load import Load

_METHOD = "ngram"


def paying_drafts(
    engine: EngineModel, words: SchedulerWords, load: Load, *, source: Source
) -> DraftSchedule | None:
    """VLLM's schedule of draft lengths for this load; None without drafts or without an engine.

    Decoding alone, at the mean context of the load and the centre of the step model: prompts in
    the same steps leave less room for drafts. `source` is where the acceptance comes from. Looking
    drafts up takes no time here and switches async scheduling off, which a GPU would have.
    """
    if not words.survival or not engine.levels:
        return None
    ahead = engine.plan.device.kind == "cuda"
    low, centre, high = sorted(level.step.machine.overhead_s for level in engine.levels)
    speculating = Speculating(
        steps=tuple(
            _without_drafts(level.step, ahead=ahead)
            for level in (engine.centre, engine.fast, engine.slow)
        ),
        acceptance=Acceptance(
            survival=tuple(_known(share, source) for share in words.survival),
            coverage=_known(words.coverage, source),
        ),
        drafter=MeasuredDrafter(name=_METHOD),
        lost_async_s=(low, centre, high) if ahead else (0.0, 0.0, 0.0),
    )
    context = float(np.mean(load.prompt_tokens + load.output_tokens / 2))
    seats = engine.centre.settings.max_num_seqs
    return draft_schedule(speculating, context, max_num_seqs=seats)


def _without_drafts(step: RooflineStep, *, ahead: bool) -> RooflineStep:
    machine = replace(step.machine, async_scheduling=ahead)
    return replace(step, machine=machine, drafted=0.0)


def _known(share: float, source: Source) -> Estimate:
    return Estimate(value=share, low=share, high=share, source=source, basis="as given")
