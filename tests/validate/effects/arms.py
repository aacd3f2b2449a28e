"""An arm of a published comparison: what was toggled, for which goal, measured and predicted."""

from dataclasses import dataclass
from enum import StrEnum

from advisor.estimate import Estimate, Source

# Stated before any prediction: serving benchmarks repeat within a few per cent, and nobody changes
# a command for less.
BAND = 0.05


class Sign(StrEnum):
    """What a technique does to a goal."""

    HELPS = "helps"
    NEUTRAL = "neutral"
    HURTS = "hurts"
    UNKNOWN = "unknown"


def sign(gain: float) -> Sign:
    """Of a gain above 1 for better: neutral within the band, in ratio to both sides."""
    if gain > 1 + BAND:
        return Sign.HELPS
    return Sign.HURTS if gain < 1 / (1 + BAND) else Sign.NEUTRAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One comparison. Gains above 1 are better for the goal, whatever its unit.

    `predicted` None: the product has no model of the technique.
    """

    source: str
    label: str
    technique: str
    goal: str
    measured: float
    predicted: Estimate | None

    @property
    def told(self) -> Sign:
        """The sign of the prediction's centre."""
        return Sign.UNKNOWN if self.predicted is None else sign(self.predicted.value)

    @property
    def right(self) -> bool:
        """Whether the sign that was told is the measured one."""
        return self.told is sign(self.measured)

    @property
    def loser_called_winner(self) -> bool:
        """Whether an arm that lost was recommended."""
        return self.told is Sign.HELPS and sign(self.measured) is Sign.HURTS


def between(gains: list[float], basis: str) -> Estimate:
    """Gains at the centre and at the ends of what is uncertain; the first is the centre."""
    return Estimate(
        value=gains[0], low=min(gains), high=max(gains), source=Source.ROOFLINE, basis=basis
    )
