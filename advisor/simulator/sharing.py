"""The closed form of an open load: what processor sharing says of it, if it may say anything."""

from dataclasses import dataclass

import numpy as np

from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.steptime import StepTime
from advisor.simulator.load import Load
from advisor.simulator.queueing import ProcessorSharing
from advisor.simulator.settings import SchedulerSettings

_ROUNDS = 12
_MOST_RUNNING = 4096
# Poisson arrivals have a coefficient of variation of 1.
_POISSON = (0.8, 1.25)
# Prompts must be small beside the tokens of a step.
_SMALL_PROMPT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Processor sharing with the step straightened at its own operating point.

    `reason` None: it may stand in for the simulator; else why it may not.
    """

    sharing: ProcessorSharing
    reason: str | None


def closed_form(
    load: Load, settings: SchedulerSettings, step: StepTime, *, shared: bool = False
) -> ClosedForm | None:
    """The closed form of an open load; None of a closed loop and of loads without a rate."""
    span_s = float(load.arrival_s[-1] - load.arrival_s[0]) if len(load) > 1 else 0.0
    if load.concurrency is not None or span_s <= 0:
        return None
    outputs = load.output_tokens.astype(np.float64)
    prompts = load.prompt_tokens.astype(np.float64)
    # Length-biased: long answers are met more often (handbook 4.1).
    context = float((prompts * outputs + outputs**2 / 2).sum() / outputs.sum())
    running = 1.0
    found = None
    for _ in range(_ROUNDS):
        found = _straightened(
            step,
            context=context,
            prompt=float(prompts.mean()),
            output=float(outputs.mean()),
            rate=(len(load) - 1) / span_s,
            running=running,
        )
        running = min(_MOST_RUNNING, max(1.0, found.running))
    if found is None:
        return None
    return ClosedForm(sharing=found, reason=_why_not(found, load, settings, shared=shared))


def _straightened(
    step: StepTime, *, context: float, prompt: float, output: float, rate: float, running: float
) -> ProcessorSharing:
    few, many = max(1, int(running / 2)), max(2, int(2 * running))
    low, high = (step.seconds(StepBatch(decode_contexts=(context,) * n)) for n in (few, many))
    each = max(0.0, (high - low) / (many - few))
    beside = StepBatch(decode_contexts=(context,) * few, prefills=(Prefill(new_tokens=prompt),))
    return ProcessorSharing(
        arrival_rate_per_s=rate,
        output_tokens=output,
        fixed_s=max(low - few * each, low * 1e-6),
        request_s=each,
        prompt_s=max(0.0, step.seconds(beside) - low),
    )


def _why_not(
    found: ProcessorSharing, load: Load, settings: SchedulerSettings, *, shared: bool
) -> str | None:
    gaps = np.diff(load.arrival_s)
    variation = float(gaps.std() / gaps.mean())
    tokens = float((load.prompt_tokens + load.output_tokens).mean())
    cache = settings.num_blocks * settings.block_size / tokens
    cap = int(min(settings.max_num_seqs, cache))
    reasons = (
        (not _POISSON[0] <= variation <= _POISSON[1], "arrivals are not like Poisson's"),
        (shared and settings.enable_prefix_caching, "prompts share blocks"),
        (settings.speculation is not None, "drafts"),
        (settings.static_batch is not None, "static batches"),
        (
            float(load.prompt_tokens.max()) > _SMALL_PROMPT * settings.max_num_batched_tokens,
            "long prompts take whole steps",
        ),
        (not found.stable, "the queue grows without end"),
        (not found.exact_enough(cap), f"the cap of {cap} requests is reached, or nearly"),
    )
    return next((why for holds, why in reasons if holds), None)
