"""The load client's process: a plan as JSON on stdin, one line of JSON per finished request out.

SIGTERM drops the requests in flight (their connections close) and ends with code 143.
"""

import asyncio
import signal
import sys
from contextlib import suppress

from advisor.measurement.records import RequestRecord
from probes.load.client import run_plan
from probes.load.lines import record_to_line
from probes.load.plan import LoadPlan, read_plan


def _print(record: RequestRecord) -> None:
    sys.stdout.write(record_to_line(record) + "\n")
    sys.stdout.flush()


async def _run(plan: LoadPlan) -> int:
    task = asyncio.create_task(run_plan(plan, on_record=_print))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    return 128 + signal.SIGTERM if task.cancelled() else 0


def main() -> int:
    """Run the plan on stdin; the exit code."""
    return asyncio.run(_run(read_plan(sys.stdin.buffer.read())))


if __name__ == "__main__":
    sys.exit(main())
