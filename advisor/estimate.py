"""A number with an interval and a source. What was not measured is not called measured."""

import math
from dataclasses import dataclass
from enum import StrEnum

from advisor.errors import InvalidInput


class Source(StrEnum):
    """Where a number comes from, strongest first."""

    MEASURED = "measured here"
    MEASURED_OUTSIDE = "measured from outside"
    IMPORTED = "measured by another tool"
    SIMULATED = "simulated"
    CALIBRATED_ROOFLINE = "calibrated roofline"
    ROOFLINE = "roofline"
    LITERATURE = "literature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """`value` lies in ``[low, high]``, at the nominal 95 % level unless `basis` says otherwise.

    `basis` is one phrase on how the interval was made, e.g. "3 repeats, t interval".
    """

    value: float
    low: float
    high: float
    source: Source
    basis: str

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), ("low", self.low), ("high", self.high)):
            if not math.isfinite(number):
                raise InvalidInput(f"estimate.{name}", f"{number} is not a finite number")
        if not self.low <= self.value <= self.high:
            raise InvalidInput("estimate", f"{self.value} is outside [{self.low}, {self.high}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Estimate):
    """An estimate from a model of cost; `not_modelled` names what the model leaves out."""

    not_modelled: tuple[str, ...] = ()


def weaker(first: Source, second: Source) -> Source:
    """The source of a number computed from two others."""
    order = list(Source)
    return max(first, second, key=order.index)
