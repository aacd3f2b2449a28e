"""Measured kernel times of one model on one device, as any profiler tells them."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCurve:
    """Seconds of one call of a kernel by how many rows it gets; `calls` of it in one step.

    `points` rise. Linear in between, the last slope goes on, the first value holds below.
    """

    name: str
    points: Floats
    seconds: Floats
    calls: int

    def __post_init__(self) -> None:
        if len(self.points) == 0 or self.points.shape != self.seconds.shape:
            raise InvalidInput(f"kernel.{self.name}", "needs as many times as points, at least one")
        if bool((np.diff(self.points) <= 0).any()):
            raise InvalidInput(f"kernel.{self.name}", "has points that do not rise")
        if bool((self.seconds < 0).any()) or not bool(np.isfinite(self.seconds).all()):
            raise InvalidInput(f"kernel.{self.name}", "has a time that is no time")

    def step_seconds(self, rows: Floats) -> Floats:
        """Seconds of all its calls in a step with so many rows; none without rows."""
        inside = np.interp(rows, self.points, self.seconds)
        if len(self.points) > 1:
            slope = (self.seconds[-1] - self.seconds[-2]) / (self.points[-1] - self.points[-2])
            inside = inside + np.maximum(rows - self.points[-1], 0.0) * max(slope, 0.0)
        return np.where(rows > 0, self.calls * inside, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRows:
    """Attention kernels of one layer, a row each, columns of one length.

    `new` prompt tokens after `cached` ones (0, 0: no prompt chunk) beside `requests` decodes at a
    context of `contexts` tokens each (0, 0: no decodes).
    """

    new: Floats
    cached: Floats
    requests: Floats
    contexts: Floats
    seconds: Floats

    def __post_init__(self) -> None:
        columns = (self.new, self.cached, self.requests, self.contexts, self.seconds)
        if len({len(column) for column in columns}) != 1 or not len(self.new):
            raise InvalidInput("attention", "has columns of different length, or no row")
        if any(bool((column < 0).any()) for column in columns):
            raise InvalidInput("attention", "has a negative number")
        if not bool(((self.new == 0) & (self.requests > 0)).any()):
            raise InvalidInput("attention", "has no row of decodes alone")
        if not bool(((self.new > 0) & (self.requests == 0)).any()):
            raise InvalidInput("attention", "has no row of a prompt chunk alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertRows:
    """The experts of one layer on one rank: seconds by tokens that it gets and experts they touch.

    Every token of a row chose `active` experts among those of the rank.
    """

    tokens: Floats
    touched: Floats
    seconds: Floats
    active: int

    def __post_init__(self) -> None:
        columns = (self.tokens, self.touched, self.seconds)
        if len({len(column) for column in columns}) != 1 or not len(self.tokens):
            raise InvalidInput("experts", "has columns of different length, or no row")
        if self.active < 1:
            raise InvalidInput("experts.active", f"{self.active} is below 1")
