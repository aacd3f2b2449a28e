"""A step between the fast and the slow end of everything uncertain."""

from advisor.estimate import Prediction, Source
from advisor.hardware import AllReduce, DeviceFacts
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.efficiency import (
    CENTRE,
    FAST,
    SLOW,
    Efficiency,
    Levels,
    exact_efficiency,
    machine,
)
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel

BASIS = "serial roofline, all ranges at their ends (wider than 90 %)"


def roofline_step(
    served: ServedModel,
    device: DeviceFacts,
    efficiency: Efficiency,
    levels: Levels = CENTRE,
    *,
    all_reduce: AllReduce | None = None,
) -> RooflineStep:
    """The step model at one point of all ranges.

    `all_reduce` is needed where several ranks serve the model. A dtype whose rate is not known
    raises `UnknownName`.
    """
    return RooflineStep(
        served=served, machine=machine(device, served, efficiency, levels, all_reduce=all_reduce)
    )


def speed_of_light(
    served: ServedModel, device: DeviceFacts, *, all_reduce: AllReduce | None = None
) -> RooflineStep:
    """The floor: weights and cache pass the memory once at its peak, arithmetic at its peak.

    No engine is faster: no launches, no host, no activations through memory, the fewest experts.
    """
    return roofline_step(served, device, exact_efficiency(), FAST, all_reduce=all_reduce)


def predict_step(
    served: ServedModel,
    device: DeviceFacts,
    batch: StepBatch,
    efficiency: Efficiency,
    *,
    all_reduce: AllReduce | None = None,
) -> Prediction:
    """Seconds of one step, all ranges at their fast and at their slow end."""
    steps = [
        roofline_step(served, device, efficiency, levels, all_reduce=all_reduce)
        for levels in (FAST, CENTRE, SLOW)
    ]
    fast, centre, slow = (step.seconds(batch) for step in steps)
    return Prediction(
        value=centre,
        low=fast,
        high=slow,
        source=Source.ROOFLINE,
        basis=BASIS,
        not_modelled=steps[1].not_modelled,
    )
