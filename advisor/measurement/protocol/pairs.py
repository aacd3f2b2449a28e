"""Comparison of two arms by pairs of loads, A B B A, over the same requests (handbook 11.3)."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from scipy.special import ndtri, stdtr, stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source

# An interval must clear 1 by this much: a bias common to all points of one start, such as where
# the operating system placed its memory, is not seen by repeats within the start.
MARGIN = 0.015
# Less than this either way is not worth an override to anybody who must keep it.
NEUTRAL_BAND = 0.05
_LEAST_PAIRS = 2
_POWER = 0.9


class Arm(StrEnum):
    A = "A"
    B = "B"


class Change(StrEnum):
    """What B is, against A."""

    HELPS = "helps"
    NEUTRAL = "neutral"
    HURTS = "hurts"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B against A: `gain` is a ratio, above 1 is better whatever was measured.

    `detectable` is the smallest change that as many pairs with this spread show nine times in ten.
    `blocks` counts what the interval is taken over: engine starts where blocks were named, else
    pairs. `chance` is how likely so clear a change is where there is none beyond the margin.
    """

    gain: Estimate
    change: Change
    pairs: int
    blocks: int
    detectable: float
    chance: float


def abba(pairs: int) -> tuple[tuple[Arm, Arm], ...]:
    """The order of loads for so many pairs: A B, B A, A B ...

    What drifts evenly (a machine that warms up) then takes from both arms alike.
    """
    if pairs < 1:
        raise InvalidInput("pairs", f"{pairs} is below 1")
    return tuple((Arm.A, Arm.B) if place % 2 == 0 else (Arm.B, Arm.A) for place in range(pairs))


def change_of(gain: Estimate, *, margin: float = MARGIN, band: float = NEUTRAL_BAND) -> Change:
    """Helps or hurts when the interval clears 1 by the margin, neutral inside the band."""
    if gain.low > 1 + margin:
        return Change.HELPS
    if gain.high < 1 - margin:
        return Change.HURTS
    if gain.low >= 1 - band and gain.high <= 1 + band:
        return Change.NEUTRAL
    return Change.UNKNOWN


def compare(
    pairs: Sequence[tuple[float, float]],
    *,
    higher_is_better: bool = True,
    blocks: Sequence[Hashable] | None = None,
    margin: float = MARGIN,
) -> Comparison:
    """B over A from pairs (a, b) of positive figures, each pair over the same requests.

    The geometric mean of the ratios with a t interval over pairs, or over the means of `blocks`
    (the engine start that each pair belongs to): pairs within a start do not narrow what starts
    spread. Below two pairs or two blocks `InvalidInput`.
    """
    logs = [_log_ratio(pair, higher_is_better=higher_is_better) for pair in pairs]
    units = logs if blocks is None else _block_means(logs, blocks)
    if len(units) < _LEAST_PAIRS:
        raise InvalidInput("pairs", f"{len(units)} is below {_LEAST_PAIRS}: nothing shows a spread")
    centre = sum(units) / len(units)
    freedom = len(units) - 1
    error = math.sqrt(sum((unit - centre) ** 2 for unit in units) / freedom / len(units))
    half = float(stdtrit(freedom, 0.975)) * error
    over = "pairs" if blocks is None else f"engine starts of {len(logs)} pairs"
    gain = _estimate(centre, half, f"{len(units)} {over}, same requests, t interval")
    shown = (float(stdtrit(freedom, 0.975)) + float(stdtrit(freedom, _POWER))) * error
    return Comparison(
        gain=gain,
        change=change_of(gain, margin=margin),
        pairs=len(logs),
        blocks=len(units),
        detectable=math.expm1(math.log1p(margin) + shown),
        chance=_chance(centre, error, freedom, margin),
    )


def holm(comparisons: Sequence[Comparison], *, level: float = 0.05) -> tuple[Change, ...]:
    """What each of several comparisons may be called when all are looked at together.

    The clearest must be clear at `level` over their number, the next at `level` over one fewer,
    until one is not (Holm, 1979): from there on helps and hurts become unknown.
    """
    order = sorted(range(len(comparisons)), key=lambda place: comparisons[place].chance)
    kept = [comparison.change for comparison in comparisons]
    failed = False
    for rank, place in enumerate(order):
        failed = failed or comparisons[place].chance > level / (len(order) - rank)
        if failed and kept[place] in {Change.HELPS, Change.HURTS}:
            kept[place] = Change.UNKNOWN
    return tuple(kept)


def pairs_needed(*, deviation: float, correlation: float, half_width: float) -> float:
    """Pairs for a 95 % interval of this half-width, ``z^2 2 s^2 (1 - r) / h^2``.

    `deviation` is that of one load and `correlation` that of the two loads of a pair; at 0 the
    count is that of loads in each of two arms that are not paired.
    """
    return float(ndtri(0.975)) ** 2 * 2 * deviation**2 * (1 - correlation) / half_width**2


def _log_ratio(pair: tuple[float, float], *, higher_is_better: bool) -> float:
    first, second = pair
    if first <= 0 or second <= 0:
        raise InvalidInput("pairs", f"{first} and {second}: a ratio needs figures above 0")
    ratio = math.log(second / first)
    return ratio if higher_is_better else -ratio


def _block_means(logs: Sequence[float], blocks: Sequence[Hashable]) -> list[float]:
    if len(blocks) != len(logs):
        raise InvalidInput("blocks", f"{len(blocks)} for {len(logs)} pairs")
    groups: dict[Hashable, list[float]] = {}
    for value, block in zip(logs, blocks, strict=True):
        groups.setdefault(block, []).append(value)
    return [sum(group) / len(group) for group in groups.values()]


def _estimate(centre: float, half: float, basis: str) -> Estimate:
    value = math.exp(centre)
    return Estimate(
        value=value,
        low=min(value, math.exp(centre - half)),
        high=max(value, math.exp(centre + half)),
        source=Source.MEASURED,
        basis=basis,
    )


def _chance(centre: float, error: float, freedom: int, margin: float) -> float:
    """Two-sided probability of a change this clear where the true one is at the margin."""
    beyond = abs(centre) - (math.log1p(margin) if centre > 0 else -math.log1p(-margin))
    if beyond <= 0:
        return 1.0
    return 2 * float(stdtr(freedom, -beyond / error)) if error > 0 else 0.0
