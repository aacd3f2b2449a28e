"""Fitted and assumed numbers of the step model: the only file that holds any.

A roofline divides by peaks; engines reach a share of them. Before a study has measured anything
those shares are ranges wide enough to hold what handbook 3.2 lists for measured kernels.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts

# Outside of these shares it is the peak that is wrong (handbook 3.3).
_LEAST_SHARE, _MOST_SHARE = 0.05, 1.05


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Shares of a device's peaks that an engine reaches, and what each step costs besides.

    `memory` multiplies the bandwidth, `compute` the matrix rate in linear layers, `attention` the
    matrix rate in attention; `overhead_s` is scheduling, sampling and launching of one step.
    """

    memory: Estimate
    compute: Estimate
    attention: Estimate
    overhead_s: Estimate

    def __post_init__(self) -> None:
        for name in ("memory", "compute", "attention"):
            share: Estimate = getattr(self, name)
            if not _LEAST_SHARE <= share.low <= share.high <= _MOST_SHARE:
                raise InvalidInput(
                    f"efficiency.{name}", f"is outside {_LEAST_SHARE} to {_MOST_SHARE} of the peak"
                )
        if self.overhead_s.low < 0:
            raise InvalidInput("efficiency.overhead_s", "is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """What a machine does inside an engine, at one point of every range.

    `linear_flops_per_s` is the rate in the layers of the blocks, which quantized weights change;
    `matrix_flops_per_s` the one in the head.
    """

    bandwidth_bytes_per_s: float
    matrix_flops_per_s: float
    linear_flops_per_s: float
    attention_flops_per_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """At which point of its range each share is taken; HIGH is always the fast end."""

    memory: Level = Level.CENTRE
    compute: Level = Level.CENTRE
    overhead: Level = Level.CENTRE


CENTRE = Levels()
FAST = Levels(memory=Level.HIGH, compute=Level.HIGH, overhead=Level.HIGH)
SLOW = Levels(memory=Level.LOW, compute=Level.LOW, overhead=Level.LOW)
_OPPOSITE = {Level.LOW: Level.HIGH, Level.CENTRE: Level.CENTRE, Level.HIGH: Level.LOW}


def _prior(value: float, low: float, high: float, basis: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, source=Source.LITERATURE, basis=basis)


_MEMORY = _prior(0.78, 0.55, 0.95, "range of kernels measured on six devices, handbook 3.2")
_COMPUTE = _prior(0.65, 0.45, 0.90, "range of kernels measured on six devices, handbook 3.2")
# A micro-benchmark's rate is itself an achieved one: an engine loses little of it in large
# products and more in narrow ones.
_MEMORY_MEASURED = _prior(0.85, 0.55, 1.0, "against a measured bandwidth; assumed")
_COMPUTE_MEASURED = _prior(0.85, 0.50, 1.0, "against a measured matrix rate; assumed")
_ATTENTION = _prior(0.45, 0.15, 0.67, "causal prefill attention at 1k to 16k, handbook 3.2")
# Small CPU models spend a third of a step outside of matrix products; a GPU's host share is one
# to a few ms without graphs and a tenth of that with them.
_OVERHEAD = {
    "cpu": _prior(5e-3, 1e-3, 15e-3, "assumed for a CPU engine"),
    "cuda": _prior(1.2e-3, 0.1e-3, 4e-3, "per-step overhead of a fitted engine, handbook 3.3"),
}

# From launch to healthy, with and without compilation; for planning until a start was timed.
_START_S = {
    ("cpu", True): 35.0,
    ("cpu", False): 100.0,
    ("cuda", True): 45.0,
    ("cuda", False): 120.0,
}


def assumed_start_s(device: DeviceFacts, *, eager: bool) -> float:
    """Seconds to expect from launching an engine until it is healthy."""
    return _START_S[device.kind, eager]


def prior_efficiency(device: DeviceFacts) -> Efficiency:
    """The ranges to assume before anything was measured through an engine on this device."""
    rates = device.matrix_rate_flops_per_s.values()
    rates_measured = all(rate.source is Source.MEASURED for rate in rates)
    bandwidth_measured = device.bandwidth_bytes_per_s.source is Source.MEASURED
    return Efficiency(
        memory=_MEMORY_MEASURED if bandwidth_measured else _MEMORY,
        compute=_COMPUTE_MEASURED if rates_measured else _COMPUTE,
        attention=_ATTENTION,
        overhead_s=_OVERHEAD[device.kind],
    )


def exact_efficiency(
    *, memory: float = 1.0, compute: float = 1.0, attention: float = 1.0, overhead_s: float = 0.0
) -> Efficiency:
    """Known shares without a range; the defaults give the speed of light of a device."""
    return Efficiency(
        memory=_prior(memory, memory, memory, "given"),
        compute=_prior(compute, compute, compute, "given"),
        attention=_prior(attention, attention, attention, "given"),
        overhead_s=_prior(overhead_s, overhead_s, overhead_s, "given"),
    )


def achieved(
    device: DeviceFacts,
    dtype: str,
    efficiency: Efficiency,
    levels: Levels = CENTRE,
    *,
    linear_dtype: str | None = None,
) -> Achieved:
    """The machine at one point of all ranges; a dtype nobody measured raises `UnknownName`.

    `linear_dtype` names the units that multiply quantized blocks, None: those of `dtype`.
    """
    rate = levels.compute.of(device.rate(dtype))
    linear_rate = levels.compute.of(device.rate(linear_dtype or dtype))
    bandwidth = levels.memory.of(device.bandwidth_bytes_per_s)
    return Achieved(
        bandwidth_bytes_per_s=bandwidth * levels.memory.of(efficiency.memory),
        matrix_flops_per_s=rate * levels.compute.of(efficiency.compute),
        linear_flops_per_s=linear_rate * levels.compute.of(efficiency.compute),
        attention_flops_per_s=rate * levels.compute.of(efficiency.attention),
        overhead_s=_OPPOSITE[levels.overhead].of(efficiency.overhead_s),
    )
