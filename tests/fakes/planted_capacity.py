"""A planted engine that keeps its limits less often the more it is asked for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.measurement.capacity import Capacity, Search, Tried, TryLoad, next_load
from advisor.measurement.slo import Attained, Slo

SLO = Slo(ttft_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedCapacity:
    """Share of requests within limits: `top` below `knee`, falling by `slope` per doubling."""

    knee: float
    slope: float = 1.0
    top: float = 0.99

    def share(self, load: float) -> float:
        """Falls with the load, never rises."""
        return float(np.clip(self.top - self.slope * max(0.0, np.log2(load / self.knee)), 0, 1))

    @property
    def capacity(self) -> float:
        """Load at which the share is the wanted one."""
        return float(self.knee * 2 ** ((self.top - SLO.attainment) / self.slope))


def measured(share: float, requests: int, rng: np.random.Generator) -> tuple[Attained, ...]:
    """So many independent requests."""
    met = int(rng.binomial(requests, share))
    return (Attained(met=met, counted=requests, requests=requests, slo=SLO),)


def searched(search: Search, measure: Callable[[float], Tried]) -> tuple[Capacity, list[Tried]]:
    """Measure what is asked until the search ends."""
    tried: list[Tried] = []
    while isinstance(step := next_load(tried, search), TryLoad):
        tried.append(measure(step.load))
    return step, tried
