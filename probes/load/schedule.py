"""When a load wants each request sent, and when it could be (case S-06)."""

import itertools
from dataclasses import dataclass

from advisor.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A closed loop of `concurrency` slots; with `offsets_s` requests also wait for their time.

    `offsets_s[i]` is the wanted send time of request i after the start, not decreasing. With
    `gang` no slot is filled again before all are empty: `concurrency` requests are sent at once,
    and the next ones when the last of them has ended (static batching).
    """

    concurrency: int
    offsets_s: tuple[float, ...] | None = None
    gang: bool = False

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidInput("concurrency", f"{self.concurrency} is below 1")
        if self.gang and self.offsets_s is not None:
            raise InvalidInput("gang", "gangs wait for each other, not for a time")
        for earlier, later in itertools.pairwise(self.offsets_s or ()):
            if later < earlier:
                raise InvalidInput("offsets_s", "times run backwards")

    def intended_s(self, index: int, *, start_s: float, free_s: float) -> float:
        """The time from which request `index` is late.

        Closed loop: when its slot fell free (`free_s`), which for a gang is when the last of the
        gang before ended. Timed: its own time, whether or not a
        slot was free then, so that waiting for a slot counts as latency.
        """
        if self.offsets_s is None:
            return free_s
        return start_s + self.offsets_s[index]
