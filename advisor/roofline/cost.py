"""Arithmetic and memory traffic, and the time that a machine needs for them at least."""

import math
from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """FLOP (a multiply-add counts 2) and bytes moved. Costs of one kernel add up."""

    flops: float = 0.0
    bytes: float = 0.0

    def __post_init__(self) -> None:
        for name, amount in (("flops", self.flops), ("bytes", self.bytes)):
            if not (math.isfinite(amount) and amount >= 0):
                raise InvalidInput(f"cost.{name}", f"{amount} is not a finite number from 0 up")

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(flops=self.flops + other.flops, bytes=self.bytes + other.bytes)

    def time_s(self, *, rate_flops_per_s: float, bandwidth_bytes_per_s: float) -> float:
        """The slower of computing and moving bytes (roofline: Williams et al., 2009)."""
        return max(self.flops / rate_flops_per_s, self.bytes / bandwidth_bytes_per_s)

    def is_compute_bound(self, *, ridge_flops_per_byte: float) -> bool:
        """Whether computing takes longer than moving: intensity above the ridge."""
        return self.flops > ridge_flops_per_byte * self.bytes


def decode_floor_s(weight_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Least time of one decode step: all weights pass the memory bus once."""
    return Cost(bytes=weight_bytes).time_s(
        rate_flops_per_s=math.inf, bandwidth_bytes_per_s=bandwidth_bytes_per_s
    )
