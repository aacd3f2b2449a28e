"""Where a gain turns into a loss as the load rises (case E-01)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from advisor.errors import InvalidInput
from advisor.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Between two measured loads next to each other: a gain at `below`, none at `above`.

    Or the other way round where `gains_above`. `probe_next` is the load between them that would
    halve the bracket, None where none lies between.
    """

    below: int
    above: int
    gains_above: bool
    probe_next: int | None

    @property
    def text(self) -> str:
        """For a person."""
        side = "above" if self.gains_above else "below"
        more = "" if self.probe_next is None else f"; {self.probe_next} is what to measure next"
        return f"gains {side} a load between {self.below} and {self.above} in flight{more}"


def crossovers(gains: Mapping[int, Estimate]) -> tuple[Crossover, ...]:
    """Changes of sign between neighbouring loads, ascending; nothing is said beyond the measured.

    A gain whose interval holds 1 is no sign, and the bracket spans it.
    """
    if any(load < 1 for load in gains):
        raise InvalidInput("load", "is a number of requests in flight")
    signed = [
        (load, gain.low > 1)
        for load, gain in sorted(gains.items())
        if gain.low > 1 or gain.high < 1
    ]
    return tuple(
        _between(low, high, gains_above=better)
        for (low, better_before), (high, better) in pairwise(signed)
        if better is not better_before
    )


def gain_at(gains: Mapping[int, Estimate], load: int) -> bool | None:
    """Whether there is a gain at a load: as at the measured ones around it, None if those differ.

    Beyond the highest measured load its sign goes on where a loss was measured there: a loss of a
    fuller batch does not turn back. A gain is not carried on to higher loads, nor either sign to
    lower ones.
    """
    signs = {at: gain.low > 1 for at, gain in gains.items() if gain.low > 1 or gain.high < 1}
    if load in gains:
        return signs.get(load)
    below, above = (
        max((at for at in gains if at < load), default=None),
        min((at for at in gains if at > load), default=None),
    )
    if below is None:
        return None
    if above is None:
        return False if signs.get(below) is False else None
    return signs.get(below) if signs.get(below) is signs.get(above) else None


def _between(low: int, high: int, *, gains_above: bool) -> Crossover:
    middle = round(math.sqrt(low * high))
    return Crossover(
        below=low,
        above=high,
        gains_above=gains_above,
        probe_next=middle if low < middle < high else None,
    )
