"""What a load test of a served model can teach: scales of the roofline's parts, and fixed costs.

A handful of load points cannot tell all efficiencies apart; each number here has a prior, and what
the points do not tell stays at it (handbook 11.5: few scale parameters with lognormal priors).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.llm.mixers import Attention
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.products import layer_products
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.steptime import StepTables, TableLimits

Floats = NDArray[np.float64]
# vLLM captures decode graphs up to so many positions; larger steps are launched kernel by kernel.
GRAPH_TOKENS = 512
# A layer of a step without graphs: about twelve launches of 5 us each.
_LAYER_LAUNCH_S = 60e-6
# Coarse enough to be made again for every trial of a fit; products turn compute-bound in one knee.
_TOKEN_RATIO, _OTHER_RATIO = 1.25, 1.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Factors on a machine's times, 1 as assumed, and costs beside them.

    `memory`, `compute`, `cache` and `communication` multiply the time of reading weights, of
    arithmetic, of reading the cache in decodes and of all-reduces; `room` the tokens of the cache.
    `overhead_s` is the host's part of a step and `request_s` of each request in it, `launch_s`
    what a step too large for CUDA graphs takes longer, `delay_s` half of what passes between
    client and engine for one request and its first answer.
    """

    memory: float = 1.0
    compute: float = 1.0
    cache: float = 1.0
    communication: float = 1.0
    room: float = 1.0
    overhead_s: float = 0.0
    request_s: float = 0.0
    launch_s: float = 0.0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("memory", "compute", "cache", "communication", "room"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"scales.{name}", "is not positive")

    def logs(self) -> Floats:
        """Logarithms in the order of `NAMES`; a cost of 0 counts as a nanosecond."""
        return np.log([max(1e-9, getattr(self, name)) for name in NAMES])


NAMES = tuple(field.name for field in fields(Scales))


def from_logs(logs: Floats) -> Scales:
    """The inverse of `Scales.logs`."""
    return Scales(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far a scale may be from its prior, in logarithms.

    `shared` is the spread of what all series of a kind (one model and format on one card) have in
    common, `own` that of one series about it.
    """

    shared: float
    own: float


# Kernel shares vary by 15 to 25 % around handbook 3.2 (its fits miss by 6 to 15 %), a cache by the
# activation peak that nobody states; fixed costs are known within a factor of two or three, those
# of steps without graphs least: they depend on what an engine compiles and fuses.
SPREADS: Mapping[str, Spread] = MappingProxyType(
    {
        "memory": Spread(shared=0.15, own=0.08),
        "compute": Spread(shared=0.2, own=0.08),
        "cache": Spread(shared=0.25, own=0.1),
        "communication": Spread(shared=0.3, own=0.15),
        "room": Spread(shared=0.1, own=0.05),
        "overhead_s": Spread(shared=0.9, own=0.3),
        "request_s": Spread(shared=0.9, own=0.3),
        "launch_s": Spread(shared=1.2, own=0.6),
        "delay_s": Spread(shared=0.6, own=0.25),
    }
)
# Handbook 3.4: request overhead of 15.6 ms and 4 us per request in a fitted engine.
_DELAY_S, _REQUEST_S, _LEAST_OVERHEAD_S = 15.6e-3, 4e-6, 0.1e-3


def assumed_scales(served: ServedModel, machine: Machine) -> Scales:
    """What to assume before any load point: the machine as it is, and literature for the rest."""
    launched_s = sum(
        product.count * machine.product_launch_s(packed=product.packed)
        for product in layer_products(served)
    )
    attended_s = served.model.num_layers * machine.attention_latency_s
    return Scales(
        overhead_s=max(machine.overhead_s + launched_s + attended_s, _LEAST_OVERHEAD_S),
        request_s=max(machine.request_s, _REQUEST_S),
        launch_s=served.model.num_layers * _LAYER_LAUNCH_S,
        delay_s=_DELAY_S / 2,
    )


def scaled_machine(machine: Machine, scales: Scales) -> Machine:
    """The machine with its shares divided and its fixed costs replaced."""
    packed_memory, packed_compute = machine.packed_memory, machine.packed_compute
    return replace(
        machine,
        memory=machine.memory / scales.memory,
        compute=machine.compute / scales.compute,
        packed_memory=None if packed_memory is None else packed_memory / scales.memory,
        packed_compute=None if packed_compute is None else packed_compute / scales.compute,
        cache=machine.cache / scales.cache,
        attention=machine.attention / scales.compute,
        communication=machine.communication * scales.communication,
        launch_s=0.0,
        packed_launch_s=0.0,
        attention_latency_s=0.0,
        overhead_s=scales.overhead_s,
        request_s=scales.request_s,
    )


def scaled_tables(
    served: ServedModel, machine: Machine, scales: Scales, limits: TableLimits
) -> StepTables:
    """Step times under the scales, with the jump where CUDA graphs end."""
    step = RooflineStep(served=served, machine=scaled_machine(machine, scales))
    tokens = _grid(limits.max_tokens, _TOKEN_RATIO, GRAPH_TOKENS, GRAPH_TOKENS + 1)
    rows = np.array([0.0, 1.0, 64.0, 65.0 + limits.max_requests])
    requests = _grid(limits.max_requests, _OTHER_RATIO, 0)
    new = _grid(limits.max_tokens, _OTHER_RATIO)
    windows = [float(w) for w in _windows(served) if w < limits.max_context]
    contexts = _grid(limits.max_context, _OTHER_RATIO, 0, *windows)
    launch_s = np.where(tokens > GRAPH_TOKENS, scales.launch_s, 0.0)
    return StepTables(
        tokens=tokens,
        dense_s=step.dense_s(tokens) + launch_s,
        rows=rows,
        head_s=step.head_s(rows),
        requests=requests,
        contexts=contexts,
        decode_s=step.decode_s(requests[:, None], contexts[None, :]),
        new=new,
        cached=contexts,
        prefill_s=step.prefill_s(new[:, None], contexts[None, :]),
        draft_s=np.zeros_like(requests),
        host_s=scales.overhead_s,
        host_request_s=scales.request_s,
        async_scheduling=machine.async_scheduling,
    )


@lru_cache(maxsize=64)
def _grid(most: float, ratio: float, *more: float) -> Floats:
    """Geometric from 1 to `most`, and some points more."""
    top = max(2.0, float(most))
    count = int(np.ceil(np.log(top) / np.log(ratio))) + 1
    return np.unique(np.concatenate([np.geomspace(1.0, top, max(2, count)), more]))


def _windows(served: ServedModel) -> list[int]:
    mixers = (group.mixer for group in served.model.layers)
    return [
        mixer.window
        for mixer in mixers
        if isinstance(mixer, Attention) and mixer.window is not None
    ]
