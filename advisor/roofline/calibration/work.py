"""Observations as seconds at a device's peaks: what a fit multiplies by one over its shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


class Form(StrEnum):
    """Whether reading and computing of one operation add up or overlap (handbook 3.3)."""

    SUM = "sum"
    MAX = "max"

    def joined(self, first: Floats, second: Floats) -> Floats:
        """Time of an operation with so much reading and so much computing."""
        return first + second if self is Form.SUM else np.maximum(first, second)

    def shares_of(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        """What each of them adds to `joined`."""
        if self is Form.SUM:
            return first, second
        longer = first >= second
        return np.where(longer, first, 0.0), np.where(longer, 0.0, second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a number of observations need, in seconds at the peaks of the device.

    Shapes: `steps`, `requests`, `prefill_s` and `known_s` ``[observations]``; the latter is known
    and not fitted (messages among ranks). `read_s` and `multiply_s` are
    weights and products ``[entries]``, `cache_s` and `attend_s` keys and values of decodes; the
    observation that an entry belongs to stands in `product_of` and `attention_of`.
    """

    steps: Floats
    requests: Floats
    prefill_s: Floats
    known_s: Floats
    read_s: Floats
    multiply_s: Floats
    product_of: Indices
    cache_s: Floats
    attend_s: Floats
    attention_of: Indices

    @property
    def count(self) -> int:
        """Observations."""
        return len(self.steps)

    def chosen(self, indices: Sequence[int]) -> "Work":
        """Some of the observations, in that order, each at most once."""
        order = np.asarray(indices, dtype=np.intp)
        place = np.full(self.count, -1, dtype=np.intp)
        place[order] = np.arange(len(order))
        product, attention = place[self.product_of] >= 0, place[self.attention_of] >= 0
        return Work(
            steps=self.steps[order],
            requests=self.requests[order],
            prefill_s=self.prefill_s[order],
            known_s=self.known_s[order],
            read_s=self.read_s[product],
            multiply_s=self.multiply_s[product],
            product_of=place[self.product_of[product]],
            cache_s=self.cache_s[attention],
            attend_s=self.attend_s[attention],
            attention_of=place[self.attention_of[attention]],
        )

    def floor_s(self) -> Floats:
        """Seconds that no engine can be faster than: every operation at the peaks, no host."""
        products = np.maximum(self.read_s, self.multiply_s)
        attention = np.maximum(self.cache_s, self.attend_s)
        return self.known_s + self.prefill_s + self.summed(products, attention)

    def summed(self, products: Floats, attention: Floats) -> Floats:
        """Entries summed by observation."""
        return summed_by(self.product_of, products, self.count) + summed_by(
            self.attention_of, attention, self.count
        )


def joined_work(parts: Sequence[Work]) -> Work:
    """Observations of several models one after another."""
    if not parts:
        raise InvalidInput("work", "has no observations")
    starts = np.cumsum([0, *(part.count for part in parts[:-1])])
    shifted = list(zip(parts, starts, strict=True))
    return Work(
        steps=np.concatenate([part.steps for part in parts]),
        requests=np.concatenate([part.requests for part in parts]),
        prefill_s=np.concatenate([part.prefill_s for part in parts]),
        known_s=np.concatenate([part.known_s for part in parts]),
        read_s=np.concatenate([part.read_s for part in parts]),
        multiply_s=np.concatenate([part.multiply_s for part in parts]),
        product_of=np.concatenate([part.product_of + start for part, start in shifted]),
        cache_s=np.concatenate([part.cache_s for part in parts]),
        attend_s=np.concatenate([part.attend_s for part in parts]),
        attention_of=np.concatenate([part.attention_of + start for part, start in shifted]),
    )


def summed_by(of: Indices, values: Floats, count: int) -> Floats:
    """Sums of the `values` that belong to each of `count` observations."""
    return np.asarray(np.bincount(of, values, count), dtype=np.float64)
