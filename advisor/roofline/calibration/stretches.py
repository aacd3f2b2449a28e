"""What was timed: single steps, or whole runs as stretches of equal steps (handbook 14.2).

A run of a batch is its prompt steps and then decode steps whose contexts grow by one token each,
so sums over its steps have closed forms: the middle step of a stretch stands for all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.step.batch import Prefill, StepBatch

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """`steps` steps in a row with the same requests, each decode's context one longer every step.

    `decodes` requests see `context_tokens` in the mean in the first step; `prefills` run in each
    step. `draft_tokens` as in `StepBatch`.
    """

    steps: float = 1.0
    decodes: int = 0
    context_tokens: float = 0.0
    prefills: tuple[Prefill, ...] = ()
    draft_tokens: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.decodes < 0 or self.context_tokens < 0:
            raise InvalidInput("stretch", "has at least one step, no fewer than 0 decodes and keys")
        if not self.decodes and not self.prefills:
            raise InvalidInput("stretch", "computes nothing")

    @classmethod
    def of(cls, batch: StepBatch) -> "Stretch":
        """One step; the mean of its contexts stands for all of them."""
        count = len(batch.decode_contexts)
        return cls(
            decodes=count,
            context_tokens=sum(batch.decode_contexts) / count if count else 0.0,
            prefills=batch.prefills,
            draft_tokens=batch.draft_tokens,
        )

    @property
    def mean_context(self) -> float:
        """Keys of one decode in the middle of the stretch."""
        return self.context_tokens + (self.steps - 1) / 2

    @property
    def tokens(self) -> float:
        """Positions through the blocks in each step."""
        new = sum(prefill.new_tokens for prefill in self.prefills)
        return self.decodes * (1 + self.draft_tokens) + new

    @property
    def rows(self) -> float:
        """Positions through the head in each step."""
        return self.decodes * (1 + self.draft_tokens) + len(self.prefills)

    @property
    def requests(self) -> int:
        """Requests in each step."""
        return self.decodes + len(self.prefills)

    @property
    def pairs(self) -> float:
        """Query-key pairs of the prompt chunks of each step."""
        return sum(
            p.new_tokens * p.cached_tokens + p.new_tokens * (p.new_tokens + 1) / 2
            for p in self.prefills
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Measured `seconds` of all `stretches` together; `weight` multiplies its squared error.

    `groups` names what it belongs to, the narrowest first, as `conformal.Score` has it.
    """

    stretches: tuple[Stretch, ...]
    seconds: float
    weight: float = 1.0
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.stretches:
            raise InvalidInput("observation", "has no steps")
        if not (np.isfinite(self.seconds) and self.seconds > 0 and self.weight > 0):
            raise InvalidInput("observation", "time and weight are positive")

    @classmethod
    def of(cls, batch: StepBatch, seconds: float, *, weight: float = 1.0) -> "Observation":
        """One timed step."""
        return cls(stretches=(Stretch.of(batch),), seconds=seconds, weight=weight)


def seconds_of(observations: Sequence[Observation]) -> Floats:
    """Measured seconds, shape ``[n]``."""
    return np.array([item.seconds for item in observations])


def weights_of(observations: Sequence[Observation]) -> Floats:
    """Weights, shape ``[n]``."""
    return np.array([item.weight for item in observations])
