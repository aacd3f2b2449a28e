"""A process that starts one command and makes sure that nothing of it outlives whoever asked.

Run as a script (``python -I -S guardian.py [options] -- argv...``; standard library only). The
command gets a session of its own. When the guardian is told to stop (SIGTERM, SIGINT, SIGHUP,
SIGQUIT) or its parent is gone, it sends the stop signal to the command, waits for the grace time,
then kills the command's process group and every descendant, checks that none is left, and exits
with the command's code (128 + n when signal n ended it). It does the same cleaning when the
command ends by itself.

On Linux the kernel tells it of its parent's death (``PR_SET_PDEATHSIG``) and hands it the orphans
of the tree (``PR_SET_CHILD_SUBREAPER``), so that a grandchild in a session of its own is found too.
``PR_SET_PDEATHSIG`` fires when the *thread* that spawned the guardian ends; a signal that comes
while the parent lives is ignored, and the parent is polled as well. Without prctl (macOS) only
polling is left, and only the command's own process group is killed.
"""

import argparse
import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.25
KILL_LIMIT_S = 10.0
CANNOT_RUN = 127
LEFT_BEHIND = 125
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
PARENT_DIED = signal.SIGUSR1


def command(
    argv: Sequence[str],
    *,
    stop_signal: int = signal.SIGTERM,
    grace_s: float = 10.0,
    orphan_grace_s: float | None = None,
    uid: int | None = None,
    gid: int | None = None,
) -> list[str]:
    """The argv that runs `argv` under a guardian, to be spawned by the calling process itself.

    `orphan_grace_s` is the grace when the caller is gone (default: the same as otherwise).
    """
    options = ["--parent", str(os.getpid())]
    options += ["--stop-signal", str(int(stop_signal)), "--grace", str(grace_s)]
    options += [] if orphan_grace_s is None else ["--orphan-grace", str(orphan_grace_s)]
    options += [] if uid is None else ["--uid", str(uid)]
    options += [] if gid is None else ["--gid", str(gid)]
    script = str(Path(__file__).resolve())
    return [sys.executable, "-I", "-S", script, *options, "--", *argv]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run, as whom, and how to end it."""

    argv: tuple[str, ...]
    parent: int
    stop_signal: int
    grace_s: float
    orphan_grace_s: float
    uid: int | None
    gid: int | None


def _prctl(option: int, value: int) -> bool:
    """Whether the kernel has prctl and took the option."""
    if sys.platform != "linux":
        return False
    done: int = ctypes.CDLL(None).prctl(option, int(value), 0, 0, 0)
    return done == 0


def _note(text: str) -> None:
    with contextlib.suppress(OSError):
        print(f"guardian[{os.getpid()}]: {text}", file=sys.stderr, flush=True)


def _exec(order: Order) -> None:
    """In the forked child: become the command; returns only by an exception."""
    os.setsid()
    for number in (*STOP_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, PARENT_DIED):
        signal.signal(number, signal.SIG_DFL)
    if order.gid is not None:
        os.setgroups([])
        os.setgid(order.gid)
    if order.uid is not None:
        os.setuid(order.uid)
    # After setuid, which clears it: should the guardian itself be killed, the command still ends.
    _prctl(PR_SET_PDEATHSIG, order.stop_signal)
    os.execvp(order.argv[0], order.argv)  # noqa: S606


def _spawn(order: Order) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _exec(order)
    except OSError as error:
        _note(f"cannot run {order.argv[0]}: {error.strerror}")
    finally:
        os._exit(CANNOT_RUN)


def _parents() -> dict[int, int]:
    """Parent of every process by pid; empty where there is no /proc."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may hold anything: the fields count from the last one.
            found[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(root: int) -> set[int]:
    """All processes below `root`, zombies included."""
    parents = _parents()
    found: set[int] = set()
    fresh = {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


class Guardian:
    """The loop around one command."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._code: int | None = None
        self._deadline: float | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGCHLD, PARENT_DIED):
            signal.signal(number, self._ignore)
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        _prctl(PR_SET_PDEATHSIG, PARENT_DIED)
        self._child = 0

    @staticmethod
    def _ignore(number: int, frame: FrameType | None) -> None:
        """Python's handler does nothing: the number arrives through the wake-up pipe."""

    def run(self) -> int:
        """Start the command, wait for its end or for a reason to end it; the exit code."""
        if self._orphaned():  # the parent died before the kernel was asked to tell
            return 128 + signal.SIGTERM
        self._child = _spawn(self._order)
        while self._code is None:
            self._wait()
            self._reap()
            if self._deadline is not None and time.monotonic() >= self._deadline:
                break
        clean = self._kill_all()
        if not clean:
            _note(f"processes survived SIGKILL: {sorted(descendants(os.getpid()))}")
            return LEFT_BEHIND
        return 128 + signal.SIGKILL if self._code is None else self._code

    def _orphaned(self) -> bool:
        return os.getppid() != self._order.parent

    def _wait(self) -> None:
        """Sleep until a signal, the poll interval or the deadline; begin to stop if asked."""
        pause = POLL_S
        if self._deadline is not None:
            pause = max(0.0, min(pause, self._deadline - time.monotonic()))
        select.select([self._wake_read], [], [], pause)
        asked = False
        with contextlib.suppress(BlockingIOError):
            asked = bool(STOP_SIGNALS.intersection(os.read(self._wake_read, 4096)))
        orphaned = self._orphaned()
        if self._deadline is None and (asked or orphaned):
            grace_s = self._order.orphan_grace_s if orphaned else self._order.grace_s
            self._deadline = time.monotonic() + grace_s
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, self._order.stop_signal)

    def _reap(self) -> None:
        """Collect ended children; as a subreaper also those that others left behind."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._child:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = code if code >= 0 else 128 - code

    def _kill_all(self) -> bool:
        """SIGKILL the group and all descendants until none is left; False after the limit."""
        limit = time.monotonic() + KILL_LIMIT_S
        while True:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
            left = descendants(os.getpid())
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            if not left and (self._code is not None or sys.platform == "linux"):
                return True
            if time.monotonic() >= limit:
                return False
            time.sleep(0.01)


def _parsed(arguments: Sequence[str]) -> Order:
    parser = argparse.ArgumentParser(prog="guardian", description=__doc__)
    parser.add_argument("--parent", type=int, default=os.getppid())
    parser.add_argument("--stop-signal", type=int, default=signal.SIGTERM)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--orphan-grace", type=float)
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("argv", nargs="+")
    got = parser.parse_args(arguments)
    return Order(
        argv=tuple(got.argv),
        parent=got.parent,
        stop_signal=got.stop_signal,
        grace_s=got.grace,
        orphan_grace_s=got.grace if got.orphan_grace is None else got.orphan_grace,
        uid=got.uid,
        gid=got.gid,
    )


def main() -> int:
    """Run as a script; the exit code is the command's."""
    order = _parsed(sys.argv[1:])
    # Out of the terminal's foreground group: Ctrl-C goes to the supervisor, which ends its
    # processes in order. A session leader is out of it already and may not do this.
    with contextlib.suppress(PermissionError):
        os.setpgid(0, 0)
    return Guardian(order).run()


if __name__ == "__main__":
    sys.exit(main())
