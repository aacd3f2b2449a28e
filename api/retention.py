"""Purges what is past its time, now and then, as long as the API runs."""

import logging
import threading
from collections.abc import Callable
from datetime import datetime

from advisor.errors import RooftuneError
from db import purges
from db.session import Sessions, transaction

log = logging.getLogger(__name__)


class Retention:
    """A thread that looks every `every_s` seconds; several API processes share the work."""

    def __init__(
        self, sessions: Sessions, clock: Callable[[], datetime], *, every_s: float
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Look at once, then again and again."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def look(self) -> int:
        """Purge everything that is past its time, each in a transaction; how many there were."""
        purged = 0
        while not self._stopping.is_set():
            with transaction(self._sessions) as session:
                found = purges.purge_expired(session, now=self._clock())
            if not found:
                break
            purged += found
        return purged

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if purged := self.look():
                    log.info("purged %d workloads past their time", purged)
            except RooftuneError as error:
                log.warning("retention looks again later: %s", type(error).__name__)
            self._stopping.wait(self._every_s)
