"""Runs the load client in a process of its own and collects its records."""

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from advisor.errors import EngineFailed
from advisor.measurement.records import RequestRecord
from advisor.states import FailureKind
from db import guardian
from probes.load.lines import record_from_line
from probes.load.plan import LoadPlan

_POLL_S = 0.1
_GRACE_S = 5.0
# Where the package lies, so that its module is found wherever this process was started.
_ROOT = Path(__file__).resolve().parents[2]

Line = bytes | None


def run_load(
    plan: LoadPlan,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    cancelled: threading.Event | None = None,
) -> list[RequestRecord]:
    """Send the plan's requests; records come in order of completion.

    `on_progress` gets (done, total) after each request. Raises `EngineFailed`: `CANCELLED` when
    `cancelled` was set (the requests in flight are dropped), `LOAD_FAILED` when the client broke.
    """
    argv = guardian.command([sys.executable, "-m", "probes.load"], grace_s=_GRACE_S)
    with subprocess.Popen(
        argv,
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        lines: queue.Queue[Line] = queue.Queue()
        errors: list[bytes] = []
        readers = [
            threading.Thread(target=_feed, args=(process, plan.to_json()), daemon=True),
            threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True),
            threading.Thread(target=_read_tail, args=(process.stderr, errors), daemon=True),
        ]
        for reader in readers:
            reader.start()
        try:
            records = _collect(lines, len(plan.requests), on_progress, cancelled)
        finally:
            if process.poll() is None:
                process.terminate()
        code = process.wait()
        for reader in readers:
            reader.join()
    if len(records) != len(plan.requests):
        raise EngineFailed(
            FailureKind.LOAD_FAILED,
            f"the load client ended with code {code} after {len(records)} of"
            f" {len(plan.requests)} requests; {_error_name(errors)}",
        )
    return records


def _collect(
    lines: queue.Queue[Line],
    total: int,
    on_progress: Callable[[int, int], None] | None,
    cancelled: threading.Event | None,
) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    while True:
        if cancelled is not None and cancelled.is_set():
            raise EngineFailed(FailureKind.CANCELLED, "the load was cancelled")
        try:
            line = lines.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if line is None:
            return records
        records.append(record_from_line(line))
        if on_progress is not None:
            on_progress(len(records), total)


def _feed(process: subprocess.Popen[bytes], plan: bytes) -> None:
    if process.stdin is None:
        return
    try:
        process.stdin.write(plan)
        process.stdin.close()
    except BrokenPipeError:
        return  # the client ended early; its exit code is reported


def _read_lines(stream: IO[bytes] | None, lines: queue.Queue[Line]) -> None:
    for line in stream or ():
        lines.put(line)
    lines.put(None)


def _read_tail(stream: IO[bytes] | None, errors: list[bytes]) -> None:
    """Keep the last line only: a traceback's frames could show a request."""
    for line in stream or ():
        errors[:] = [line]


def _error_name(errors: list[bytes]) -> str:
    """The name of the client's last exception, without its message, which could quote a prompt."""
    last = errors[0].decode(errors="replace").strip() if errors else ""
    return last.partition(":")[0][:80] or "it said nothing"
