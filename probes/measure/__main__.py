"""The process that measures: an order as JSON on stdin, one JSON object per line out.

Lines are `progress`, `report` (after every load and at the end, the whole of it) and `failed`.
SIGINT and SIGTERM end it in good order: what was measured is in the last report.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pydantic import TypeAdapter

from advisor.canonical import as_json
from advisor.errors import RooftuneError
from advisor.measurement.asked import Endpoint, Order, OwnEngine
from advisor.measurement.capacity import Tried
from advisor.measurement.findings import Findings
from advisor.measurement.records import LoadPoint
from advisor.measurement.report import MeasurementReport
from db.identity import utc_now
from probes.measure.attached import address_of, attach
from probes.measure.driver import Driver, Listener, Measured, Progress
from probes.measure.own import OwnServer
from probes.measure.own_start import own_server
from probes.measure.reporting import continued, plan_digest, report_of
from probes.measure.server import Server
from probes.measure.step_report import StepWork
from probes.measure.workload import Workload, read_workload
from probes.vllm.server import StartProgress

EXIT_OK, EXIT_FAILED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An order and the report of an earlier run of it, which is gone on with."""

    order: Order
    earlier: MeasurementReport | None = None


def _say(kind: str, body: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **body}, allow_nan=False) + "\n")
    sys.stdout.flush()


def _tell(progress: Progress) -> None:
    _say("progress", {"progress": as_json(progress)})


def _step(phase: str, done: float, total: float) -> None:
    """Progress of what comes before the first load, outside of the budget."""
    _tell(Progress(phase=phase, done=int(done), total=int(total), spent_s=0.0, budget_s=0.0))


@contextmanager
def _server(order: Order, cancelled: threading.Event) -> Iterator[Server]:
    match order.server:
        case Endpoint(url=url, model=model, api_key=key):
            yield attach(address_of(url, key), model)
        case OwnEngine():

            def starting(progress: StartProgress) -> None:
                _step(f"engine: {progress.phase}", progress.elapsed_s, progress.limit_s)

            with own_server(order.server, cancelled=cancelled, on_progress=starting) as server:
                yield server


def _config_of(order: Order) -> tuple[str, str | None]:
    """What names an engine of ours: the hash of its settings, and its model's folder."""
    if isinstance(order.server, OwnEngine):
        return order.server.config.hash, Path(order.server.model_folder).name
    return "", None


def measure(job: Job, cancelled: threading.Event) -> None:
    """Do the job; lines go to standard output. Every trouble is a `RooftuneError`."""
    order = job.order
    workload = read_workload(
        Path(order.workload),
        order.options,
        tokenizer=None if order.tokenizer is None else Path(order.tokenizer),
        progress=lambda done, total: _step("reading", done, total),
    )
    steps = StepWork(order=order, vocab_size=workload.vocab_size, cancelled=cancelled, told=_step)
    wanted = order.steps or bool(order.verify)
    with _server(order, cancelled) as server:
        report = _driven(job, server, workload, cancelled)
        wanted = wanted and report.complete and isinstance(server, OwnServer)
        if wanted and isinstance(server, OwnServer):
            steps.base(server)
    if wanted and isinstance(order.server, OwnEngine):
        steps.verification(order.server)
        found = replace(report.findings or Findings(), steps=steps.table())
        told = (*report.remarks, *steps.remarks)
        _say("report", {"report": as_json(replace(report, findings=found, remarks=told))})


def _driven(
    job: Job, server: Server, workload: Workload, cancelled: threading.Event
) -> MeasurementReport:
    plan = job.order.plan
    config_hash, folder = _config_of(job.order)
    wanted = plan_digest(plan, server, workload.digest, config_hash)
    found = None if job.earlier is None else job.earlier.findings
    started = utc_now()

    def told(measured: Measured) -> MeasurementReport:
        report = report_of(
            measured,
            server,
            plan,
            wanted=wanted,
            model=folder or server.identity.model,
            started=started,
        )
        _say("report", {"report": as_json(report)})
        return report

    def taken(_point: LoadPoint, _tried: Tried | None) -> None:
        told(driver.so_far())

    driver = Driver(
        server=server,
        workload=workload,
        plan=plan,
        listener=Listener(progress=_tell, taken=taken),
        cancelled=cancelled,
        loads=list(continued(job.earlier, wanted)),
        tried=[] if found is None else list(found.tried),
    )
    return told(driver.run())


def failure(error: RooftuneError) -> dict[str, object]:
    """The error as data, from which the other side makes the same one again."""
    data = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {"error": type(error).__name__, "message": str(error), "data": as_json(data)}


def main(text: bytes, on_signal: Callable[[threading.Event], None]) -> int:
    """Run one job; 0 when there is a report, 1 when there is an error."""
    cancelled = threading.Event()
    on_signal(cancelled)
    try:
        measure(TypeAdapter(Job).validate_json(text), cancelled)
    except RooftuneError as error:
        _say("failed", {"failure": failure(error)})
        return EXIT_FAILED
    return EXIT_OK


def _signals(cancelled: threading.Event) -> None:
    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        cancelled.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read(), _signals))
