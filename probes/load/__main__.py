"""The load client's process: see `probes.load.lines` for what it reads and writes.

SIGTERM drops the requests in flight (their connections close) and ends with code 143.
"""

import asyncio
import gc
import queue
import signal
import sys
import threading
from contextlib import suppress

import uvloop

from advisor.measurement.records import RequestRecord
from probes.load.client import run_plan
from probes.load.health import ProcessHealth
from probes.load.lines import READY, health_to_line, read_plan, record_to_line
from probes.load.plan import LoadPlan

# Fewer and later collections: one that walks all the requests would hold up the frames.
_GC_THRESHOLDS = (50_000, 50, 100)


class _Writer:
    """Writes lines from a thread of its own, so that a slow reader does not hold up the load."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def __call__(self, line: bytes) -> None:
        self._lines.put(line)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            sys.stdout.buffer.write(line + b"\n")
            sys.stdout.buffer.flush()

    def close(self) -> None:
        """Return when everything is written."""
        self._lines.put(None)
        self._thread.join()


async def _run(plan: LoadPlan, start_s: float, write: _Writer) -> int:
    def tell(record: RequestRecord) -> None:
        write(record_to_line(record))

    task: asyncio.Task[ProcessHealth] = asyncio.create_task(
        run_plan(plan, on_record=tell, start_s=start_s)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        write(health_to_line(await task))
    return 128 + signal.SIGTERM if task.cancelled() else 0


def main() -> int:
    """Run the plan on stdin; the exit code."""
    plan = read_plan(sys.stdin.buffer.readline())
    write = _Writer()
    write(READY)
    start = sys.stdin.buffer.readline()
    if not start:
        return 1  # whoever asked is gone
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(_run(plan, float(start), write))
    write.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
