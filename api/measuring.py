"""The command line's side of a measurement: `python -m probes.measure` does it, as a child.

Neither side imports the other. The order goes to its standard input, with the endpoint's key in it,
so that no list of processes shows one.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Generic, TypeVar

from advisor import errors
from advisor.errors import RooftuneError, Unavailable
from advisor.measurement.asked import CompareOrder, Order
from advisor.measurement.comparison import ComparisonReport
from advisor.measurement.report import MeasurementReport
from api.codec import json_value, read_value
from api.settings import child_environment
from db import guardian

# An engine of ours must be ended and its last report written.
GRACE_S = 60.0
TAIL_CHARACTERS = 600
Report = TypeVar("Report", bound=MeasurementReport | ComparisonReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureProgress:
    """What is going on: `done` of `total` of a phase.

    `level` is the load being measured, of the side `arm` in a comparison.
    """

    phase: str
    done: int
    total: int
    spent_s: float
    budget_s: float
    level: float | None = None
    repeat: int | None = None
    arm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureListener(Generic[Report]):
    """Who is told; `report` gets the whole report after every load or pair and at the end."""

    progress: Callable[[MeasureProgress], None]
    report: Callable[[Report], None]


def run_measurement(
    order: Order, earlier: MeasurementReport | None, listener: MeasureListener[MeasurementReport]
) -> MeasurementReport:
    """Measure in a child and return the last report; Ctrl-C ends it early, with what there is.

    Raises what the child raised; `KeyboardInterrupt` when it was ended before the first load.
    """
    job = {"order": json_value(order), "earlier": None if earlier is None else json_value(earlier)}
    return _run(job, _Said(MeasurementReport), listener)


def run_comparison(
    order: CompareOrder,
    earlier: ComparisonReport | None,
    listener: MeasureListener[ComparisonReport],
) -> ComparisonReport:
    """Compare in a child, as `run_measurement` measures."""
    kept = None if earlier is None else json_value(earlier)
    job = {"comparison": json_value(order), "earlier": kept}
    return _run(job, _Said(ComparisonReport), listener)


def _run(
    job: Mapping[str, object], said: "_Said[Report]", listener: MeasureListener[Report]
) -> Report:
    argv = [sys.executable, "-P", "-m", "probes.measure"]
    with subprocess.Popen(
        guardian.command(argv, stop_signal=signal.SIGINT, grace_s=GRACE_S),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
    ) as process:
        lines: queue.Queue[bytes | None] = queue.Queue()
        tail: list[str] = []
        threads = [
            threading.Thread(target=_feed, args=(process.stdin, json.dumps(job).encode())),
            threading.Thread(target=_read, args=(process.stdout, lines)),
            threading.Thread(target=_read_tail, args=(process.stderr, tail)),
        ]
        for thread in threads:
            thread.start()
        try:
            while (line := _next_line(process, lines, said)) is not None:
                said.take(line, listener)
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait()
            for thread in threads:
                thread.join()
    return said.result(tail)


def _next_line(
    process: subprocess.Popen[bytes], lines: queue.Queue[bytes | None], said: "_Said[Report]"
) -> bytes | None:
    """The child's next line, None at its end.

    The first Ctrl-C asks it to end in good order, a second one does not wait for that.
    """
    while True:
        try:
            return lines.get()
        except KeyboardInterrupt:
            if said.interrupted:
                process.kill()
                raise
            said.interrupted = True
            process.terminate()


def _feed(stream: IO[bytes] | None, job: bytes) -> None:
    if stream is None:
        return
    try:
        stream.write(job)
        stream.close()
    except BrokenPipeError:
        return  # it ended early; what it said is reported


def _read(stream: IO[bytes] | None, lines: queue.Queue[bytes | None]) -> None:
    for line in stream or ():
        lines.put(line)
    lines.put(None)


def _read_tail(stream: IO[bytes] | None, tail: list[str]) -> None:
    """Keep what the last line begins with: the name of an error, never its message."""
    for line in stream or ():
        tail[:] = [line.decode(errors="replace").partition(":")[0].strip()]


class _Said(Generic[Report]):
    """What the child said so far; its reports are of this kind."""

    def __init__(self, kind: type[Report]) -> None:
        self._kind = kind
        self.interrupted = False
        self._report: Report | None = None
        self._failure: RooftuneError | None = None

    def take(self, line: bytes, listener: MeasureListener[Report]) -> None:
        """One line of the child."""
        said: dict[str, Any] = json.loads(line)
        match said["kind"]:
            case "progress":
                listener.progress(read_value(said["progress"], MeasureProgress))
            case "report":
                self._report = read_value(said["report"], self._kind)
                listener.report(self._report)
            case "failed":
                self._failure = raised(said["failure"])
            case kind:
                raise Unavailable(f"the measuring process said {kind!r}", "run it again")

    def result(self, tail: Sequence[str]) -> Report:
        """The last report, or what went wrong."""
        if self._failure is not None and not self.interrupted:
            raise self._failure
        if self._report is not None:
            return self._report
        if self.interrupted:
            raise KeyboardInterrupt
        error = tail[0][:TAIL_CHARACTERS] if tail else "no error"
        raise Unavailable(
            f"the measuring process ended without a report ({error})",
            "run the command again; if it stays so, report it",
        )


def raised(failure: Mapping[str, Any]) -> RooftuneError:
    """The error that the child raised."""
    kind = getattr(errors, str(failure["error"]), None)
    if isinstance(kind, type) and issubclass(kind, RooftuneError):
        try:
            return kind(**failure["data"])
        except TypeError:  # one whose data are not its arguments
            pass
    return Unavailable(str(failure["message"]), "see `rooftune measure --help`")
