"""Holding the device: the lease with its fencing token, kept alive by a thread while work runs."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from advisor.errors import Unavailable

TICK_S = 0.2
WATCH_S = 1.0
RENEWALS_PER_TTL = 3


class Interruption:
    """Why the work in hand must end. `event` is set with the first reason and stays set."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason: str | None = None

    def set(self, reason: str) -> None:
        """End the work; the first reason is kept."""
        if not self.event.is_set():
            self.reason = reason
            self.event.set()


class Renewals(Protocol):
    """The database side of one lease."""

    def renew(self) -> bool:
        """Prolong the lease; False when it now belongs to somebody else.

        Raises `Unavailable` while the database does not answer.
        """

    def release(self) -> None:
        """Give the lease back."""


class DeviceHold:
    """A granted lease. While it is entered a thread renews it and watches for reasons to stop.

    `stop` is the agent's own stop event, `watch` is asked about once a second and answers with a
    reason to end the work (a cancelled study, a deployment no longer wanted) or None. `lost` is
    true once a renewal failed: from then on nothing may be written under its token.
    """

    def __init__(
        self,
        *,
        token: int,
        renewals: Renewals,
        ttl_s: float,
        stop: threading.Event,
        watch: Callable[[], str | None],
    ) -> None:
        self.token = token
        self.lost = False
        self.interruption = Interruption()
        self._renewals = renewals
        self._ttl_s = ttl_s
        self._stop = stop
        self._watch = watch
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="device-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and give the lease back, unless it was lost."""
        self._ended.set()
        self._thread.join()
        if not self.lost:
            self._renewals.release()

    def _keep(self) -> None:
        unrenewed_s = to_renewal_s = to_watch_s = 0.0
        while not self._ended.wait(TICK_S):
            if self._stop.is_set():
                self.interruption.set("the agent stops")
            unrenewed_s, to_renewal_s = unrenewed_s + TICK_S, to_renewal_s + TICK_S
            to_watch_s += TICK_S
            if to_renewal_s >= self._ttl_s / RENEWALS_PER_TTL:
                to_renewal_s = 0.0
                unrenewed_s = self._renewed(unrenewed_s)
            if self.lost:
                self.interruption.set("the device lease was lost")
                return
            if to_watch_s >= WATCH_S:
                to_watch_s = 0.0
                self._ask()

    def _renewed(self, unrenewed_s: float) -> float:
        """Renew; the seconds since the last success. An unanswered lease runs out as a lost one."""
        try:
            self.lost = not self._renewals.renew()
        except Unavailable:
            self.lost = unrenewed_s >= self._ttl_s
            return unrenewed_s
        return 0.0

    def _ask(self) -> None:
        try:
            reason = self._watch()
        except Unavailable:
            return  # the database is away; it is asked again in a second
        if reason is not None:
            self.interruption.set(reason)
