"""This workload's prefill and decode on the device's roofline (Williams et al., 2009)."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.roofline.cost import Cost
from advisor.roofline.step.batch import Prefill, StepBatch
from advisor.roofline.step.operations import operations
from advisor.roofline.step.served import ServedModel, served_model
from advisor.roofline.throughput import TrafficShape, batch_limit
from advisor.serving import ServingConfig

PREFILL, DECODE = "prefill", "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePoint:
    """One phase of this workload on the device's roofline.

    `intensity_flops_per_byte` follows from the model and the batch, `achieved_flops_per_s` from a
    measured time; `attainable_flops_per_s` is the roof above it.
    """

    phase: str
    concurrency: int
    intensity_flops_per_byte: float
    achieved_flops_per_s: float | None
    attainable_flops_per_s: float


def roofline_points(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    *,
    shape: TrafficShape,
    prefill_s: float | None,
    rungs: Sequence[tuple[int, float | None]],
) -> tuple[RooflinePoint, ...]:
    """The prefill of the mean prompt alone, then a decode step at each load of a ladder.

    `prefill_s` is the measured time to first token of one request alone, `rungs` are loads with
    their measured time per output token in seconds, None where there is none. Contexts are the
    mean ones, half of the answer done. A measured time per token holds the prompts that ran in
    between, so that what decoding achieves is at least the point's. A dtype whose rate nobody
    measured raises `UnknownName`.
    """
    served = served_model(model, config)
    rate = device.rate(served.computed_dtype).value
    limit = batch_limit(model, device, config, shape.prompt_tokens + shape.output_tokens)
    context = shape.prompt_tokens + shape.output_tokens / 2

    def placed(phase: str, load: int, batch: StepBatch, measured_s: float | None) -> RooflinePoint:
        cost = _total(served, batch)
        intensity = cost.flops / cost.bytes
        roof = min(rate, device.bandwidth_bytes_per_s.value * intensity)
        return RooflinePoint(
            phase=phase,
            concurrency=load,
            intensity_flops_per_byte=intensity,
            achieved_flops_per_s=cost.flops / measured_s if measured_s else None,
            attainable_flops_per_s=roof,
        )

    prompt = StepBatch(prefills=(Prefill(new_tokens=max(1.0, shape.prompt_tokens)),))
    decodes = (
        placed(DECODE, load, StepBatch(decode_contexts=(context,) * min(load, limit)), tpot_s)
        for load, tpot_s in rungs
    )
    return (placed(PREFILL, 1, prompt, prefill_s), *decodes)


def _total(served: ServedModel, batch: StepBatch) -> Cost:
    return sum((operation.cost for operation in operations(served, batch)), Cost())
