"""The roofline's own unknowns: shares of the peaks, and what the host adds to each step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np

from advisor.errors import InvalidInput
from advisor.roofline.calibration.work import Floats, Form, Work, summed_by

# Handbook 3.3: a fit that implies other shares of the peaks is wrong, or the peaks are.
LEAST_SHARE, MOST_SHARE = 0.1, 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameters:
    """One machine: host seconds per step and per request in it, and shares of the peaks.

    `memory` and `compute` are of weights and products, `cache` of reading keys and values,
    `attention` of the arithmetic of decodes (which narrow query blocks leave far below the
    peak), `prefill` of causal attention.
    """

    host_s: float
    request_s: float
    memory: float
    compute: float
    cache: float
    attention: float
    prefill: float

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(f"parameters.{name}", f"{value} is not a number from 0 up")
        if min(self.memory, self.compute, self.cache, self.attention, self.prefill) <= 0:
            raise InvalidInput("parameters", "shares of a peak are positive")

    def seconds(self, work: Work, form: Form) -> Floats:
        """Seconds of each observation."""
        return np.asarray(self.parts(work, form).sum(axis=0) + work.known_s)

    def parts(self, work: Work, form: Form) -> Floats:
        """Seconds of each observation that each parameter accounts for, shape ``[7, n]``.

        In the order of `NAMES`. A part is proportional to its parameter or, of a share, to one
        over it, so it is also the slope over the parameter's logarithm, but for the sign.
        """
        product = form.shares_of(work.read_s / self.memory, work.multiply_s / self.compute)
        attention = form.shares_of(work.cache_s / self.cache, work.attend_s / self.attention)
        return np.array(
            [
                self.host_s * work.steps,
                self.request_s * work.requests,
                *(summed_by(work.product_of, part, work.count) for part in product),
                *(summed_by(work.attention_of, part, work.count) for part in attention),
                work.prefill_s / self.prefill,
            ]
        )

    def logs(self) -> Floats:
        """Logarithms in the order of `NAMES`."""
        return np.log([max(1e-12, getattr(self, name)) for name in NAMES])


NAMES = tuple(field.name for field in fields(StepParameters))
SIGNS = np.array([1.0 if name.endswith("_s") else -1.0 for name in NAMES])
BOUNDED = ("memory", "compute", "cache")  # shares of which a calibration may not exceed the peak


def from_logs(logs: Floats) -> StepParameters:
    """The inverse of `StepParameters.logs`."""
    return StepParameters(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


def implausible(shares: Mapping[str, float]) -> str | None:
    """Names each share outside of 0.1 to 1.05 of its peak; None where none is."""
    reasons = [
        f"it implies {share:.0%} of the {name}"
        for name, share in shares.items()
        if not LEAST_SHARE <= share <= MOST_SHARE
    ]
    return " and ".join(reasons) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormal:
    """A positive number that is `median` give or take a factor of e to the `log_sd`."""

    median: float
    log_sd: float

    def __post_init__(self) -> None:
        if self.median <= 0 or self.log_sd <= 0:
            raise InvalidInput("prior", "median and spread are positive")


# Handbook 11.5 gives memory and compute; 3.2 the range of kernels that cache and prefill span;
# 3.3 and 3.4 the host's part, which engines of 2024 exceed several times. Decode attention at its
# bandwidth computes about 1 % of the peak with four queries per key head.
PRIORS: Mapping[str, LogNormal] = MappingProxyType(
    {
        "host_s": LogNormal(median=1.2e-3, log_sd=1.0),
        "request_s": LogNormal(median=2e-5, log_sd=1.5),
        "memory": LogNormal(median=0.8, log_sd=0.2),
        "compute": LogNormal(median=0.6, log_sd=0.3),
        "cache": LogNormal(median=0.7, log_sd=0.4),
        "attention": LogNormal(median=0.03, log_sd=1.0),
        "prefill": LogNormal(median=0.45, log_sd=0.4),
    }
)
