"""Matrix products as straight lines in the positions of a step, priced on one machine.

A product reads its weights once and moves and computes a fixed amount for every position: with all
products in arrays a step costs a few array operations, however many kinds of layers there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.roofline.step.machine import Machine
from advisor.roofline.step.products import Floats, Product


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLines:
    """Products as arrays: bytes of all weights, bytes and FLOP per position, and what they are.

    `idle_share` is the chance that one position leaves an expert idle (0: no experts, all weights
    are read).
    """

    weight_bytes: Floats
    moved_bytes: Floats
    flops: Floats
    idle_share: Floats
    packed: NDArray[np.bool_]
    plain_count: int
    packed_count: int

    @classmethod
    def of(cls, products: Sequence[Product]) -> "ProductLines":
        """The lines of products."""
        one, many = np.array([1.0]), np.array([np.inf])
        experts = [product.matrix.routed for product in products]
        return cls(
            weight_bytes=np.array([p.read_bytes(many, 1.0)[0] for p in products]),
            moved_bytes=np.array([p.moved_bytes(one)[0] for p in products]),
            flops=np.array([p.flops(one)[0] for p in products]),
            idle_share=np.array([0.0 if e is None else 1 - e[0] / e[1] for e in experts]),
            packed=np.array([p.packed for p in products]),
            plain_count=sum(p.count for p in products if not p.packed),
            packed_count=sum(p.count for p in products if p.packed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProducts:
    """Seconds by product: `read_s` of all its weights, `moved_s` and `computed_s` per position.

    `idle_share` is that of the lines (None: no experts at all), `tile` the rows that arithmetic is
    rounded up to (None: none is). `launch_s` is of all products together.
    """

    read_s: Floats
    moved_s: Floats
    computed_s: Floats
    idle_share: Floats | None
    tile: Floats | None
    launch_s: float
    routing: float
    overlap: float

    def seconds(self, positions: Floats) -> Floats:
        """Seconds of all products for so many positions, element by element."""
        rows = np.asarray(positions, dtype=np.float64)[..., None]
        read = self.read_s
        if self.idle_share is not None:
            # The first position reads its own experts, however skewed the routing.
            routed = np.minimum(rows, np.maximum(1.0, rows * self.routing))
            read = read * (1 - np.power(self.idle_share, routed))
        counted = rows if self.tile is None else self.tile * np.ceil(rows / self.tile)
        moved, computed = read + rows * self.moved_s, counted * self.computed_s
        busy = np.maximum(moved, computed)
        if self.overlap < 1:
            busy = busy + (1 - self.overlap) * np.minimum(moved, computed)
        return np.asarray(np.where(positions > 0, busy.sum(axis=-1) + self.launch_s, 0.0))


def priced(lines: ProductLines, machine: Machine) -> PricedProducts:
    """The products on a machine."""
    packed = lines.packed
    memory = np.where(packed, *_pair(machine.packed_memory, machine.memory))
    compute = np.where(packed, *_pair(machine.packed_compute, machine.compute))
    rates = np.where(packed, *_pair(machine.packed_rate_flops_per_s, machine.rate_flops_per_s))
    bandwidth = memory * machine.bandwidth_bytes_per_s
    has_experts = lines.idle_share.any()
    tile = None
    if machine.packed_tile > 1 and lines.packed_count:
        # Grouped products of experts have tiles of their own, by expert.
        tile = np.where(packed & (lines.idle_share == 0), float(machine.packed_tile), 1.0)
    return PricedProducts(
        read_s=lines.weight_bytes / bandwidth,
        moved_s=lines.moved_bytes * machine.traffic / bandwidth,
        computed_s=lines.flops / (compute * rates),
        idle_share=lines.idle_share if has_experts else None,
        tile=tile,
        launch_s=lines.plain_count * machine.product_launch_s(packed=False)
        + lines.packed_count * machine.product_launch_s(packed=True),
        routing=machine.routing,
        overlap=machine.overlap,
    )


def _pair(packed: float | None, plain: float) -> tuple[float, float]:
    return (plain if packed is None else packed), plain
