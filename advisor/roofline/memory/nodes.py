"""How many machines a model needs at least, and answers that cannot be right (case M-14)."""

import math
from dataclasses import dataclass

from advisor.errors import InvalidInput

_ABSURD = 2  # times the larger bound: an answer above it is for a person to look at


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBounds:
    """Nodes that weights need, and that the load needs (None: not known)."""

    memory: int
    throughput: int | None = None

    @property
    def least(self) -> int:
        """The larger of the known bounds."""
        return max(self.memory, self.throughput or 1)

    def is_absurd(self, answer: int) -> bool:
        """Whether an answer exceeds the bounds so far that it needs a review."""
        return answer > _ABSURD * self.least


def node_bounds(
    *,
    weight_bytes: float,
    device_bytes: float,
    devices_per_node: int,
    utilization: float,
    throughput_nodes: float | None = None,
) -> NodeBounds:
    """Bounds from weights alone and from the load: neither activations nor cache are counted."""
    if weight_bytes <= 0 or device_bytes <= 0 or devices_per_node < 1 or not 0 < utilization <= 1:
        raise InvalidInput("nodes", "weights, memory, devices and share are positive")
    node_bytes = device_bytes * devices_per_node * utilization
    return NodeBounds(
        memory=max(1, math.ceil(weight_bytes / node_bytes)),
        throughput=None if throughput_nodes is None else max(1, math.ceil(throughput_nodes)),
    )
