"""Experts of a step from measured rows: tokens that a rank gets x experts that they touch."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.llm.feed_forward import Experts
from advisor.roofline.kernels.lattice import fill_along, on_grid
from advisor.roofline.kernels.rows import ExpertRows

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTimes:
    """The experts of all `layers` on one of `ranks` ranks that share them evenly.

    With `data_parallel` ranks each brings its own tokens, and every rank sees all of them
    (all-gather); a rank's experts then get ``active / ranks`` of the choices of each token, which
    is as much work as ``T / ranks`` tokens of the measured rows. Routing is uniform.
    """

    rows: ExpertRows
    experts: Experts
    layers: int
    ranks: int = 1
    data_parallel: int = 1

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.data_parallel < 1 or self.experts.experts % self.ranks:
            raise InvalidInput("experts.ranks", "do not share the experts evenly")
        if self.experts.active != self.rows.active:
            raise InvalidInput("experts.active", "is not what the rows were measured with")

    def step_seconds(self, tokens: Floats) -> Floats:
        """Seconds of all layers in a step of so many tokens on each data-parallel rank."""
        seen = tokens * self.data_parallel
        share = self.experts.active / self.experts.experts
        touched = self.experts.experts / self.ranks * (1 - (1 - share) ** seen)
        work = seen / self.ranks
        axes, grid = on_grid((self.rows.tokens, self.rows.touched), self.rows.seconds)
        for extend in (False, True):
            for axis in (0, 1):
                grid = fill_along(grid, axes[axis], axis=axis, power=False, extend=extend)
        found = np.array(
            [_bilinear(axes, grid, (w, t)) for w, t in zip(work, touched, strict=True)]
        )
        return np.where(tokens > 0, self.layers * found, 0.0)


def _bilinear(axes: tuple[Floats, ...], grid: Floats, at: tuple[float, float]) -> float:
    row = np.array([np.interp(at[1], axes[1], line) for line in grid])
    inside = float(np.interp(at[0], axes[0], row))
    beyond = max(at[0] - float(axes[0][-1]), 0.0)
    if beyond and len(row) > 1:
        inside += beyond * float(max(row[-1] - row[-2], 0.0) / (axes[0][-1] - axes[0][-2]))
    return inside
