"""One process of ours under a guardian: start it, look at it, start it again, end it."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

from advisor.errors import Unavailable
from db import guardian

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
LOG_LIMIT_BYTES = 16 << 20
STOP_MARGIN_S = 15.0
ORPHAN_GRACE_S = 2.0  # the database is going as well: nothing orderly is left to do
ASK_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. `health_url` answers 200 once it works; None: being alive is all there is."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log_path: Path
    health_url: str | None
    grace_s: float


class Child:
    """A process that is kept running until `stop`."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._due_s: float | None = None

    @property
    def pid(self) -> int | None:
        """The guardian's process id."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Run it now, its output appended to its log."""
        log_path = self.plan.log_path
        if log_path.exists() and log_path.stat().st_size > LOG_LIMIT_BYTES:
            log_path.replace(log_path.with_suffix(".log.1"))
        opened = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(opened, "ab") as log:
            self._process = subprocess.Popen(
                guardian.command(
                    self.plan.argv,
                    grace_s=self.plan.grace_s,
                    orphan_grace_s=min(self.plan.grace_s, ORPHAN_GRACE_S),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self.plan.environment),
            )
        self._started_s = self._clock()
        self._due_s = None

    def restart_if_due(self) -> bool:
        """Whether it had ended and was started again; pauses double while it keeps ending."""
        if self._process is None or self._process.poll() is None:
            return False
        now = self._clock()
        if self._due_s is None:
            if now - self._started_s > STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            self._due_s = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            return False
        if now < self._due_s:
            return False
        self.start()
        return True

    def stop(self) -> None:
        """Orderly, then by force; returns when it is gone."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self.plan.grace_s + STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def check_free(port: int, name: str) -> None:
    """Raise `Unavailable` when somebody listens on this loopback port already."""
    with socket.socket() as probe:
        # As a server would: a connection that is closing does not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise Unavailable(
                f"port {port} (for the {name}) is taken",
                "stop what uses it, or choose other ports with --port-base",
            ) from None


def answers(url: str) -> bool:
    """Whether a GET is answered with success."""
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=ASK_TIMEOUT_S).is_success
    return False
