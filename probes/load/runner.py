"""Runs the load client in processes of its own and collects what they saw."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import EngineFailed
from advisor.measurement.protocol.client import judge_client
from advisor.measurement.records import ClientHealth, RequestRecord
from advisor.states import FailureKind
from db import guardian
from probes.load.health import ProcessHealth, joined_health
from probes.load.lines import READY, plan_to_json, read_line
from probes.load.plan import LoadPlan
from probes.load.split import split_plan

_POLL_S = 0.1
_GRACE_S = 5.0
# From when all processes are told to when they begin; they read it within this.
_HEAD_START_S = 0.02
# Where the package lies, so that its module is found wherever this process was started.
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One load: its records in order of completion, and how well the client did."""

    records: tuple[RequestRecord, ...]
    health: ClientHealth


@dataclass(slots=True)
class _Collected:
    """What the processes have said so far."""

    records: list[RequestRecord] = field(default_factory=list)
    healths: list[ProcessHealth] = field(default_factory=list)
    ready: int = 0
    ended: int = 0


@dataclass(slots=True)
class _Client:
    """One client process; its lines go into a queue that all share, None when it ends."""

    process: subprocess.Popen[bytes]
    last_words: list[bytes] = field(default_factory=list)

    def say(self, line: bytes) -> None:
        """A line for its stdin."""
        if self.process.stdin is not None:
            try:
                self.process.stdin.write(line + b"\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                return  # the client ended early; its exit code is reported

    def read_lines(self, lines: "queue.Queue[bytes | None]") -> None:
        """Pass on what it prints."""
        for line in self.process.stdout or ():
            lines.put(line)
        lines.put(None)

    def read_errors(self) -> None:
        """Keep the last line only: a traceback's frames could show a request."""
        for line in self.process.stderr or ():
            self.last_words[:] = [line]


def run_load(
    plan: LoadPlan,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: threading.Event | None = None,
    processes: int = 1,
) -> Loaded:
    """Send the plan's requests from up to `processes` processes.

    `on_progress` gets (done, total) after each request. Raises `EngineFailed`: `CANCELLED` when
    `cancelled` was set (the requests in flight are dropped), `LOAD_FAILED` when a client broke.
    """
    parts = split_plan(plan, processes)
    lines: queue.Queue[bytes | None] = queue.Queue()
    with ExitStack() as stack:
        clients = [stack.enter_context(_started(part, lines)) for part in parts]
        seen = _collect(
            clients,
            lines,
            total=len(plan.requests),
            on_progress=on_progress,
            cancelled=cancelled,
        )
    if len(seen.records) != len(plan.requests) or len(seen.healths) != len(clients):
        raise EngineFailed(
            FailureKind.LOAD_FAILED,
            f"the load client ended with code {_worst_code(clients)} after {len(seen.records)} of"
            f" {len(plan.requests)} requests; {_error_name(clients)}",
        )
    return Loaded(records=tuple(seen.records), health=judge_client(joined_health(seen.healths)))


@contextmanager
def _started(plan: LoadPlan, lines: "queue.Queue[bytes | None]") -> Iterator[_Client]:
    """A client process with its plan; it is gone afterwards."""
    argv = guardian.command([sys.executable, "-m", "probes.load"], grace_s=_GRACE_S)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=_ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        client = _Client(process)
        threads = [
            threading.Thread(target=client.say, args=(plan_to_json(plan),), daemon=True),
            threading.Thread(target=client.read_lines, args=(lines,), daemon=True),
            threading.Thread(target=client.read_errors, daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield client
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()
            for thread in threads:
                thread.join()


def _collect(
    clients: Sequence[_Client],
    lines: "queue.Queue[bytes | None]",
    *,
    total: int,
    on_progress: Callable[[int, int], None] | None,
    cancelled: threading.Event | None,
) -> _Collected:
    """All that the clients say, until the last of them has ended."""
    seen = _Collected()
    while seen.ended < len(clients):
        if cancelled is not None and cancelled.is_set():
            raise EngineFailed(FailureKind.CANCELLED, "the load was cancelled")
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if _take(line, seen) and on_progress is not None:
            on_progress(len(seen.records), total)
        if line is not None and line.strip() == READY and seen.ready == len(clients):
            _begin(clients)
        if seen.ended and seen.ready < len(clients):
            break  # one died before the start: the others would wait for ever
    return seen


def _take(line: bytes | None, seen: _Collected) -> bool:
    """Note one line; whether it was a record."""
    if line is None:
        seen.ended += 1
    elif line.strip() == READY:
        seen.ready += 1
    else:
        said = read_line(line)
        if isinstance(said, RequestRecord):
            seen.records.append(said)
            return True
        seen.healths.append(said)
    return False


def _begin(clients: Sequence[_Client]) -> None:
    """Tell all the moment of the start, which is the same on the clock that they share."""
    start_s = time.monotonic() + (_HEAD_START_S if len(clients) > 1 else 0.0)
    for client in clients:
        client.say(repr(start_s).encode())


def _worst_code(clients: Sequence[_Client]) -> int:
    return max((client.process.returncode for client in clients), key=abs)


def _error_name(clients: Sequence[_Client]) -> str:
    """The name of a client's last exception, without its message, which could quote a prompt."""
    words = next((client.last_words[0] for client in clients if client.last_words), b"")
    return words.decode(errors="replace").strip().partition(":")[0][:80] or "it said nothing"
