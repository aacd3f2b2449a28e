"""Ranges of what an engine reaches of a device's peaks, and the points of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.llm import WeightFormat

# Outside of these shares it is the peak that is wrong (handbook 3.3).
_LEAST_SHARE, _MOST_SHARE = 0.05, 1.05
# Units that quantized activations are multiplied in, and the two kinds of unpacking kernels.
NARROW_UNITS = ("float8", "int8", "float4")
UNPACKED_4, UNPACKED_8 = "4-bit weights unpacked", "8-bit weights unpacked"
_FOUR_BITS = 6


class Level(StrEnum):
    """Which point of an uncertain number's range is meant."""

    LOW = "low"
    CENTRE = "value"
    HIGH = "high"

    def of(self, estimate: Estimate) -> float:
        """That point of `estimate`."""
        match self:
            case Level.LOW:
                return estimate.low
            case Level.CENTRE:
                return estimate.value
            case Level.HIGH:
                return estimate.high
            case _:
                assert_never(self)


def known(value: float, basis: str = "given") -> Estimate:
    """A number without a range."""
    return Estimate(value=value, low=value, high=value, source=Source.LITERATURE, basis=basis)


NOTHING = known(0.0, "left to the shares")
_ALL = known(1.0)


def kernel_of(weights: WeightFormat) -> str:
    """The kind of kernel that multiplies such weights: its narrow units, or how it unpacks."""
    if weights.units in NARROW_UNITS:
        return weights.units
    return UNPACKED_8 if weights.bits > _FOUR_BITS else UNPACKED_4


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductEfficiency:
    """Shares of the peaks in matrix products of one weight format, and the cost of one product.

    Rows count in whole tiles of `tile` (handbook T3.4).
    """

    memory: Estimate
    compute: Estimate
    launch_s: Estimate = NOTHING
    tile: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares of a device's peaks that an engine reaches, and what each step costs besides.

    `memory` multiplies the bandwidth, `compute` the matrix rate in products, `attention` the
    matrix rate in prompt attention, times `attention_curve` (see `Machine`); `overhead_s` is
    scheduling, sampling and launching of one step, `request_s` the host's part of each request.
    `products` has its own shares for quantized weights, by `kernel_of`. `cache` is
    the share of the bandwidth in decode attention (None: `memory`), `narrow_cache` that of a cache
    of 8 bits; each with a latency per layer. `communication` scales all-reduce tables.
    """

    memory: Estimate
    compute: Estimate
    attention: Estimate
    overhead_s: Estimate
    launch_s: Estimate = NOTHING
    products: Mapping[str, ProductEfficiency] = field(default_factory=dict)
    cache: Estimate | None = None
    attention_latency_s: Estimate = NOTHING
    narrow_cache: Estimate | None = None
    narrow_latency_s: Estimate | None = None
    attention_curve: tuple[tuple[float, float], ...] = ()
    traffic: Estimate = NOTHING
    communication: Estimate = _ALL
    request_s: Estimate = NOTHING
    async_scheduling: bool = False

    def __post_init__(self) -> None:
        shares = {
            "memory": self.memory,
            "compute": self.compute,
            "attention": self.attention,
            "cache": self.cache,
            "narrow_cache": self.narrow_cache,
        }
        for name, share in shares.items():
            if share is not None and not _LEAST_SHARE <= share.low <= share.high <= _MOST_SHARE:
                raise InvalidInput(
                    f"efficiency.{name}", f"is outside {_LEAST_SHARE} to {_MOST_SHARE} of the peak"
                )
        if self.overhead_s.low < 0:
            raise InvalidInput("efficiency.overhead_s", "is negative")

    def product(self, weights: WeightFormat) -> ProductEfficiency | None:
        """Shares for a weight format, where it has its own."""
        return self.products.get(kernel_of(weights))

    def cache_read(self, *, narrow: bool) -> tuple[Estimate, Estimate]:
        """Share of the bandwidth and latency of decode attention; `narrow` caches have 8 bits."""
        share, latency_s = self.cache or self.memory, self.attention_latency_s
        if narrow:
            share, latency_s = self.narrow_cache or share, self.narrow_latency_s or latency_s
        return share, latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """At which point of its range each share is taken; HIGH is always the fast end."""

    memory: Level = Level.CENTRE
    compute: Level = Level.CENTRE
    overhead: Level = Level.CENTRE


CENTRE = Levels()
FAST = Levels(memory=Level.HIGH, compute=Level.HIGH, overhead=Level.HIGH)
SLOW = Levels(memory=Level.LOW, compute=Level.LOW, overhead=Level.LOW)
OPPOSITE = {Level.LOW: Level.HIGH, Level.CENTRE: Level.CENTRE, Level.HIGH: Level.LOW}
