"""How often to repeat a load, and what repeats under several engine starts say together.

Starts of one engine differ by more than loads within a start do (handbook 11.1): a figure's
interval comes from how starts differ, however often each was repeated.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scipy.special import stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.noise import NoisePrior

# Handbook 11.1: starts differ by 1 to 3 %.
START_PRIOR = NoisePrior(relative_sd=0.02, degrees_of_freedom=4)
# With so many starts their own spread is used and nothing is assumed.
STARTS_ENOUGH = 3
# Two values that happen to agree are no measurement of how little they spread.
LEAST_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """Another repeat is worth it; `more` is a guess at how many are still needed."""

    found: Estimate | None
    more: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The interval is as narrow as asked."""

    found: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfBudget:
    """The next repeat would end after the budget does; `found` is None without any value."""

    found: Estimate | None


Decision: TypeAlias = GoOn | Done | OutOfBudget


def pooled(starts: Sequence[Sequence[float]], *, prior: NoisePrior = START_PRIOR) -> Estimate:
    """The geometric mean over starts, each with its repeats, of positive values.

    From three starts on a t interval over the means of starts. Below that, how starts differ is
    taken from `prior`, and from how the repeats differ: repeats alone cannot narrow it further.
    """
    logs = [[math.log(value) for value in start] for start in starts if start]
    if not logs:
        raise InvalidInput("repeats", "a mean needs at least one value")
    means = [sum(start) / len(start) for start in logs]
    centre = sum(means) / len(means)
    count = sum(len(start) for start in logs)
    if len(means) >= STARTS_ENOUGH:
        spread = sum((mean - centre) ** 2 for mean in means) / (len(means) - 1)
        half = float(stdtrit(len(means) - 1, 0.975)) * math.sqrt(spread / len(means))
        basis = f"{count} repeats under {len(means)} starts, t interval over starts"
        return _around(centre, half, basis)
    between = prior.relative_sd**2 / len(means)
    within, freedom = _within(logs)
    mean_variance = within * sum(1 / len(start) for start in logs) / len(logs) ** 2
    half = _summed_half(between, prior.degrees_of_freedom, mean_variance, freedom)
    said = f"{count} repeats under {len(means)} start{'s' if len(means) > 1 else ''}"
    basis = f"{said}; how starts differ is assumed, {prior.relative_sd:.0%}"
    if not freedom:
        basis += "; no repeat within a start"
    return _around(centre, half, basis)


def decide(
    starts: Sequence[Sequence[float]],
    *,
    precision: float,
    spent_s: float,
    budget_s: float,
    last_s: float,
) -> Decision:
    """Whether to repeat once more, after `spent_s` of `budget_s`; the last one took `last_s`.

    `precision` is the relative half-width asked for. Under one start it is that of the repeats
    (`pooled` adds what starts would spread, which no further repeat changes).
    """
    if precision <= 0:
        raise InvalidInput("precision", f"{precision} is not above 0")
    count = sum(len(start) for start in starts)
    found = pooled(starts) if count else None
    if found is not None and count >= LEAST_REPEATS and half_width(starts) <= precision:
        return Done(found=found)
    if spent_s + last_s > budget_s:
        return OutOfBudget(found=found)
    return GoOn(found=found, more=_more(starts, count, precision))


def half_width(starts: Sequence[Sequence[float]]) -> float:
    """Relative half-width that more repeats can narrow: infinite below two values."""
    groups = [[math.log(value) for value in start] for start in starts if start]
    if len(groups) >= STARTS_ENOUGH:
        means = [sum(start) / len(start) for start in groups]
        groups = [means]
    within, freedom = _within(groups)
    if not freedom:
        return math.inf
    variance = within * sum(1 / len(group) for group in groups) / len(groups) ** 2
    return math.expm1(float(stdtrit(freedom, 0.975)) * math.sqrt(variance))


def _more(starts: Sequence[Sequence[float]], count: int, precision: float) -> int:
    """Widths fall with the root of the count; the first repeats only show how wide it is."""
    width = half_width(starts)
    if count < LEAST_REPEATS or math.isinf(width):
        return max(1, LEAST_REPEATS - count)
    return max(1, math.ceil(count * (width / precision) ** 2) - count)


def _within(logs: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Variance of one repeat about the mean of its start, and its degrees of freedom."""
    squares = sum((value - sum(start) / len(start)) ** 2 for start in logs for value in start)
    freedom = sum(len(start) - 1 for start in logs)
    return (squares / freedom if freedom else 0.0), freedom


def _summed_half(first: float, first_freedom: int, second: float, second_freedom: int) -> float:
    """Half of a 95 % interval whose variance is a sum of two (Welch and Satterthwaite)."""
    total = first + second
    shares = first**2 / first_freedom + (second**2 / second_freedom if second_freedom else 0.0)
    return float(stdtrit(total**2 / shares, 0.975)) * math.sqrt(total)


def _around(centre: float, half: float, basis: str) -> Estimate:
    value = math.exp(centre)
    return Estimate(
        value=value,
        low=min(value, math.exp(centre - half)),
        high=max(value, math.exp(centre + half)),
        source=Source.MEASURED,
        basis=basis,
    )
