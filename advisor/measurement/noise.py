"""How far repeats of one load on one configuration differ, and what that does to a ratio."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy.special import chdtri, stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePrior:
    """Relative standard deviation expected before any repeat, worth so many degrees of freedom."""

    relative_sd: float
    degrees_of_freedom: int

    def __post_init__(self) -> None:
        if self.relative_sd <= 0 or self.degrees_of_freedom < 1:
            raise InvalidInput("noise prior", "needs a positive deviation and some weight")


# Between two starts of one engine throughput differed by about 2 %, TPOT by 4 % and TTFT by
# 14 %, on the small machine where the engine was first tried.
THROUGHPUT_PRIOR = NoisePrior(relative_sd=0.02, degrees_of_freedom=4)
TPOT_PRIOR = NoisePrior(relative_sd=0.04, degrees_of_freedom=4)
TTFT_PRIOR = NoisePrior(relative_sd=0.14, degrees_of_freedom=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFit:
    """Posterior of the relative variance between repeats: scaled inverse chi-square.

    `repeats` counts the values that had a partner to differ from; 0: the prior alone.
    """

    scale: float
    degrees_of_freedom: int
    repeats: int
    basis: str

    def half_width(self, *counts: int) -> float:
        """Half of the 95 % t interval of a log mean of so many values, or of a ratio of two."""
        if not counts or min(counts) < 1:
            raise InvalidInput("noise", "a mean needs at least one value on each side")
        quantile = float(stdtrit(self.degrees_of_freedom, 0.975))
        return quantile * self.scale * math.sqrt(sum(1 / count for count in counts))

    def relative_sd(self) -> Estimate:
        """The deviation with its 95 % interval; called measured only when repeats took part."""
        low, high = (
            self.scale
            * math.sqrt(self.degrees_of_freedom / float(chdtri(self.degrees_of_freedom, 1 - p)))
            for p in (0.975, 0.025)
        )
        return Estimate(
            value=self.scale,
            low=min(low, self.scale),
            high=max(high, self.scale),
            source=Source.MEASURED if self.repeats else Source.LITERATURE,
            basis=self.basis,
        )


def fit_noise(groups: Iterable[Sequence[float]], prior: NoisePrior = THROUGHPUT_PRIOR) -> NoiseFit:
    """Pool the repeats of each group (one load on one configuration) of positive values.

    Deviations are taken on logarithms, so groups of different size of figure can be pooled.
    """
    squares, freedom, repeats = 0.0, 0, 0
    for group in groups:
        logs = [math.log(value) for value in group]
        if len(logs) <= 1:
            continue
        mean = sum(logs) / len(logs)
        squares += sum((value - mean) ** 2 for value in logs)
        freedom += len(logs) - 1
        repeats += len(logs)
    total = prior.degrees_of_freedom + freedom
    scale = math.sqrt((prior.degrees_of_freedom * prior.relative_sd**2 + squares) / total)
    prior_text = (
        f"prior of {prior.relative_sd:.0%} worth {prior.degrees_of_freedom} degrees of freedom"
    )
    seen = (
        f"{repeats} repeated values and a {prior_text}" if repeats else f"no repeat; {prior_text}"
    )
    return NoiseFit(scale=scale, degrees_of_freedom=total, repeats=repeats, basis=seen)
