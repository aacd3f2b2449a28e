"""What a machine does inside an engine, at one point of every range: plain numbers to replace.

A calibration replaces single numbers of a `Machine` (`dataclasses.replace`) and evaluates the step
model again; `machine` builds one from a device, the ranges of an `Efficiency` and the end of them.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware import AllReduce

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Peaks, the shares of them that each kind of operation reaches, and fixed costs, in seconds.

    `rate_flops_per_s` is the peak of the units that multiply in the model's dtype (head,
    attention, unquantised layers), `packed_rate_flops_per_s` that of quantized layers. `memory` and
    `compute` are the shares in matrix products, `launch_s` the fixed cost of one product; the
    `packed_` ones are those of quantized layers, None: as the others. Rows count in whole tiles
    of `packed_tile` in quantized products.

    `cache` is the share of the bandwidth in decode attention and `attention_latency_s` the fixed
    cost of attention per layer and step; `attention` the share of the rate in prompt attention,
    times `attention_curve` (FLOP of one layer against a share, rising; empty: 1 everywhere).

    `traffic` is the share of activation and elementwise bytes that the memory moves, `overlap` 1
    takes the longer of reading and computing in a product, 0 their sum. `communication` scales
    `all_reduce`. The host adds `overhead_s` per step and `request_s` per request, beside the
    device with `async_scheduling`, after it without.
    """

    bandwidth_bytes_per_s: float
    rate_flops_per_s: float
    packed_rate_flops_per_s: float | None = None
    memory: float = 1.0
    compute: float = 1.0
    launch_s: float = 0.0
    packed_memory: float | None = None
    packed_compute: float | None = None
    packed_launch_s: float | None = None
    packed_tile: int = 1
    cache: float = 1.0
    attention_latency_s: float = 0.0
    attention: float = 1.0
    attention_curve: tuple[tuple[float, float], ...] = ()
    traffic: float = 0.0
    overlap: float = 1.0
    routing: float = 1.0
    communication: float = 1.0
    all_reduce: AllReduce | None = None
    overhead_s: float = 0.0
    request_s: float = 0.0
    async_scheduling: bool = False

    def __post_init__(self) -> None:
        for name in ("bandwidth_bytes_per_s", "rate_flops_per_s"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"machine.{name}", "is not positive")
        for name in ("memory", "compute", "cache", "attention", "routing"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"machine.{name}", "is not positive")
        for name in ("traffic", "overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidInput(f"machine.{name}", "is not within 0 and 1")

    def product_launch_s(self, *, packed: bool) -> float:
        """Fixed cost of one product."""
        stated = self.packed_launch_s if packed else None
        return self.launch_s if stated is None else stated

    @property
    def best_attention(self) -> float:
        """Share of the rate in attention at its best, which decodes with much arithmetic reach."""
        return self.attention * max((share for _, share in self.attention_curve), default=1.0)

    def attention_share(self, flops: Floats) -> Floats:
        """Share of the rate in prompt attention of so many FLOP per layer."""
        if not self.attention_curve:
            return np.full_like(flops, self.attention)
        knots = np.log(np.array([point[0] for point in self.attention_curve]))
        shares = np.log(np.array([point[1] for point in self.attention_curve]))
        at = np.log(np.maximum(flops, 1.0))
        inside = np.interp(at, knots, shares)
        if len(knots) > 1:
            # Shorter prompts than any measured fill the device ever less.
            slope = min(1.0, float((shares[1] - shares[0]) / (knots[1] - knots[0])))
            inside = np.where(at < knots[0], shares[0] + slope * (at - knots[0]), inside)
        return np.asarray(self.attention * np.exp(inside))

    def messages_s(self, count: int, message_bytes: Floats) -> Floats:
        """Seconds of `count` all-reduces of a size each."""
        if self.all_reduce is None:
            raise InvalidInput("machine.all_reduce", "is not known for this number of ranks")
        return np.asarray(count * self.communication * self.all_reduce.seconds(message_bytes))

    def bytes_s(self, moved_bytes: Floats) -> Floats:
        """Seconds of elementwise work that passes through memory."""
        rate = self.memory * self.bandwidth_bytes_per_s
        return np.asarray(self.traffic * moved_bytes / rate)
