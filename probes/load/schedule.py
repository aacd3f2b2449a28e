"""When a load wants each request sent, and when it could be (case S-06)."""

import itertools
from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A closed loop of `concurrency` slots; with `offsets_s` requests also wait for their time.

    `offsets_s[i]` is the wanted send time of request i after the start, not decreasing; then
    `concurrency` may be None: an open loop without a limit. With `gang` no slot is filled again
    before all are empty: `concurrency` requests are sent at once, and the next ones when the last
    of them has ended (static batching). The slots begin one after the other, evenly over `ramp_s`
    seconds; `ramp_shift` moves them by that share of a step, so that the slots of several client
    processes lie between each other.
    """

    concurrency: int | None
    offsets_s: tuple[float, ...] | None = None
    gang: bool = False
    ramp_s: float = 0.0
    ramp_shift: float = 0.0

    def __post_init__(self) -> None:
        if self.concurrency is None and self.offsets_s is None:
            raise InvalidInput("concurrency", "without a limit every request needs a send time")
        if self.concurrency is not None and self.concurrency < 1:
            raise InvalidInput("concurrency", f"{self.concurrency} is below 1")
        if self.gang and (self.offsets_s is not None or self.ramp_s):
            raise InvalidInput("gang", "gangs wait for each other, not for a time")
        if not 0 <= self.ramp_s < float("inf") or not 0 <= self.ramp_shift < 1:
            raise InvalidInput("ramp_s", "must be finite and not negative")
        if self.ramp_s and self.concurrency is None:
            raise InvalidInput("ramp_s", "only slots can begin one after the other")
        for earlier, later in itertools.pairwise((0.0, *(self.offsets_s or ()))):
            if not earlier <= later < float("inf"):
                raise InvalidInput("offsets_s", "times run backwards")

    @property
    def timed(self) -> bool:
        """Whether requests have send times of their own."""
        return self.offsets_s is not None

    def slot_offsets_s(self) -> list[float] | None:
        """When each slot begins, in seconds after the start; None without a limit."""
        if self.concurrency is None:
            return None
        step_s = self.ramp_s / self.concurrency
        return [(slot + self.ramp_shift) * step_s for slot in range(self.concurrency)]
