"""What a simulation saw: a timeline per request, and the queue over time."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Arrays by request, in the load's order; times in seconds on the load's clock.

    A request that can never be served (`refused`, longer than the model or the whole pool) has
    NaN times. `steps`, `step_*` and `queue_*` are by step, or by sampled step where there are many:
    end of the step, its positions, running and waiting requests, used blocks.
    """

    sent_s: Floats
    scheduled_s: Floats
    first_token_s: Floats
    last_token_s: Floats
    cached_tokens: Ints
    preemptions: Ints
    refused: NDArray[np.bool_]
    steps: int
    step_end_s: Floats
    step_tokens: Ints
    running: Ints
    waiting: Ints
    used_blocks: Ints
    usable_blocks: int
    busy_s: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def ttft_s(self) -> Floats:
        """Time to first token, queueing included."""
        return self.first_token_s - self.sent_s

    @property
    def e2e_s(self) -> Floats:
        """Time to last token."""
        return self.last_token_s - self.sent_s

    def tpot_s(self, output_tokens: Ints) -> Floats:
        """(last - first) / (n - 1), NaN for one-token answers."""
        following = np.where(output_tokens > 1, output_tokens - 1, 1).astype(np.float64)
        gaps = (self.last_token_s - self.first_token_s) / following
        return np.where(output_tokens > 1, gaps, np.nan)

    @property
    def duration_s(self) -> float:
        """First sending to last token."""
        if not len(self.sent_s) or bool(np.isnan(self.last_token_s).all()):
            return 0.0
        return float(np.nanmax(self.last_token_s) - np.nanmin(self.sent_s))
