"""Which request is to be sent next, and when: no clock and no waiting, times are passed in.

Times are seconds on one clock, whichever; the client's is monotonic, a test's is its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from probes.load.plan import PlannedRequest
from probes.load.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A request to send now: the one at `index` of the plan.

    `intended_s` is the time from which its latency counts. Closed loop: when its slot fell free.
    Timed: its own time, whether or not a slot was free then, so that waiting for a slot counts as
    latency (case S-06). Neither is before the answer of the turn before has come and been thought
    about. `could_s` is when nothing but the client itself kept it from going out.
    """

    index: int
    intended_s: float
    could_s: float


class Dispatcher:
    """Hands out the requests of a plan in order, as slots, send times and turns allow.

    Timed requests go by their time, others by their place in the plan. While a session thinks, its
    slot serves others.
    """

    def __init__(
        self, requests: Sequence[PlannedRequest], schedule: Schedule, *, start_s: float
    ) -> None:
        self._requests = requests
        self._schedule = schedule
        self._start_s = start_s
        self._following = following_turns(requests)
        later = set(self._following.values())
        self._pending = [(self._wanted_s(i), i) for i in range(len(requests)) if i not in later]
        heapify(self._pending)
        self._ready: list[tuple[float, int, float]] = []
        offsets_s = schedule.slot_offsets_s()
        self._slots = None if offsets_s is None else [start_s + offset for offset in offsets_s]
        self._in_flight = 0
        self._gang_end_s = start_s
        self._left = len(requests)

    @property
    def left(self) -> int:
        """Requests that have not been handed out."""
        return self._left

    def take(self, now_s: float) -> Due | None:
        """A request that is to be sent at `now_s` at the latest; None when there is none."""
        while self._pending and self._pending[0][0] <= now_s:
            ready_s, index = heappop(self._pending)
            key = ready_s if self._schedule.timed else index
            heappush(self._ready, (key, index, ready_s))
        if not self._ready or not self._slot_is_free(now_s):
            return None
        _, index, ready_s = heappop(self._ready)
        could_s = ready_s if self._slots is None else max(ready_s, heappop(self._slots))
        self._left -= 1
        self._in_flight += 1
        intended_s = ready_s if self._schedule.timed else could_s
        return Due(index=index, intended_s=intended_s, could_s=could_s)

    def wake_s(self) -> float | None:
        """The earliest time at which `take` may have one; None: not before a request ends."""
        if self._slots is not None and not self._slots:
            return None
        free_s = self._start_s if self._slots is None else self._slots[0]
        if self._ready:
            return free_s
        return max(self._pending[0][0], free_s) if self._pending else None

    def ended(self, index: int, end_s: float) -> None:
        """The answer of request `index` is complete, or failed: its slot and its session go on."""
        self._in_flight -= 1
        if self._schedule.gang:
            self._gang_ended(end_s)
        elif self._slots is not None:
            heappush(self._slots, end_s)
        following = self._following.get(index)
        if following is not None:
            think_s = self._requests[following].think_s or 0.0
            ready_s = max(self._wanted_s(following), end_s + think_s)
            heappush(self._pending, (ready_s, following))

    def _gang_ended(self, end_s: float) -> None:
        self._gang_end_s = max(self._gang_end_s, end_s)
        if not self._in_flight:
            self._slots = [self._gang_end_s] * (self._schedule.concurrency or 1)

    def _slot_is_free(self, now_s: float) -> bool:
        return self._slots is None or (bool(self._slots) and self._slots[0] <= now_s)

    def _wanted_s(self, index: int) -> float:
        offsets_s = self._schedule.offsets_s
        return self._start_s + (0.0 if offsets_s is None else offsets_s[index])


def following_turns(requests: Sequence[PlannedRequest]) -> dict[int, int]:
    """By place in the plan the place of the session's next turn."""
    sessions: dict[str, list[tuple[int, int]]] = {}
    for index, request in enumerate(requests):
        if request.session is not None:
            sessions.setdefault(request.session, []).append((request.turn or 0, index))
    following: dict[int, int] = {}
    for turns in sessions.values():
        order = [index for _, index in sorted(turns)]
        following |= dict(pairwise(order))
    return following
