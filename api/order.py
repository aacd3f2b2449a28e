"""How the API tells its child what to derive: the frames that both ends know."""

import json
from dataclasses import dataclass
from typing import Any

from advisor.traffic.sampling.synthesis import Recipe

# Frames of what is given: the report of a source, then its parts, source by source, then the order.
SOURCE, PART, ORDER = b"S", b"P", b"O"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to make of the sources, and what they are called."""

    names: tuple[str, ...]
    recipe: Recipe
    by_time: bool

    @classmethod
    def read(cls, body: bytes) -> "Order":
        """From the JSON of its fields."""
        held: dict[str, Any] = json.loads(body)
        return cls(
            names=tuple(held["names"]), recipe=Recipe(**held["recipe"]), by_time=held["by_time"]
        )
