"""The process that measures: an order as JSON on stdin, one JSON object per line out.

Lines are `progress`, `report` (after every load and at the end, the whole of it) and `failed`.
SIGINT and SIGTERM end it in good order: what was measured is in the last report.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from pydantic import TypeAdapter

from advisor.canonical import as_json
from advisor.errors import RooftuneError
from advisor.measurement.asked import (
    CompareOrder,
    Endpoint,
    MeasuredServer,
    Order,
    OwnEngine,
)
from advisor.measurement.capacity import Tried
from advisor.measurement.comparison import ComparisonReport
from advisor.measurement.findings import Findings
from advisor.measurement.protocol.pairs import Arm
from advisor.measurement.records import LoadPoint
from advisor.measurement.report import MeasurementReport
from db.identity import utc_now
from probes.measure.attached import address_of, attach
from probes.measure.compared import compared_sides, continued_pairs, report_maker
from probes.measure.driver import Driver, Listener, Measured
from probes.measure.loader import Progress
from probes.measure.own import OwnServer
from probes.measure.own_start import own_server
from probes.measure.pairing import OpenSide, Paired, Pairing
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareJob:
    """A comparison and the report of an earlier run of it, which is gone on with."""

    comparison: CompareOrder
    earlier: ComparisonReport | None = None


def _say(kind: str, body: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **body}, allow_nan=False) + "\n")
    sys.stdout.flush()


def _tell(progress: Progress) -> None:
    _say("progress", {"progress": as_json(progress)})


def _step(phase: str, done: float, total: float) -> None:
    """Progress of what comes before the first load, outside of the budget."""
    _tell(Progress(phase=phase, done=int(done), total=int(total), spent_s=0.0, budget_s=0.0))


@contextmanager
def _server(
    asked: MeasuredServer, cancelled: threading.Event, label: str = "engine"
) -> Iterator[Server]:
    match asked:
        case Endpoint(url=url, model=model, api_key=key):
            yield attach(address_of(url, key), model)
        case OwnEngine():

            def starting(progress: StartProgress) -> None:
                _step(f"{label}: {progress.phase}", progress.elapsed_s, progress.limit_s)

            with own_server(asked, cancelled=cancelled, on_progress=starting) as server:
                yield server


def _config_of(asked: MeasuredServer) -> tuple[str, str | None]:
    """What names an engine of ours: the hash of its settings, and its model's folder."""
    if isinstance(asked, OwnEngine):
        return asked.config.hash, Path(asked.model_folder).name
    return "", None


def _workload(order: Order | CompareOrder) -> Workload:
    return read_workload(
        Path(order.workload),
        order.options,
        tokenizer=None if order.tokenizer is None else Path(order.tokenizer),
        progress=lambda done, total: _step("reading", done, total),
    )


def measure(job: Job, cancelled: threading.Event) -> None:
    """Do the job; lines go to standard output. Every trouble is a `RooftuneError`."""
    order = job.order
    workload = _workload(order)
    steps = StepWork(order=order, vocab_size=workload.vocab_size, cancelled=cancelled, told=_step)
    wanted = order.steps or bool(order.verify)
    with _server(order.server, cancelled) as server:
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
    config_hash, folder = _config_of(job.order.server)
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


def compare(job: CompareJob, cancelled: threading.Event) -> None:
    """Do the comparison; lines go to standard output. Every trouble is a `RooftuneError`."""
    order = job.comparison
    workload = _workload(order)
    asked = {Arm.A: order.a, Arm.B: order.b}
    with ExitStack() as stack:
        attached = {
            arm: stack.enter_context(_server(side, cancelled))
            for arm, side in asked.items()
            if isinstance(side, Endpoint)
        }

        def opened(arm: Arm) -> OpenSide:
            if arm in attached:
                return lambda: nullcontext(attached[arm])
            return lambda: _server(asked[arm], cancelled, f"engine {arm.value}")

        begun = compared_sides(order, attached, workload.digest)
        report = report_maker(order, begun, started=utc_now())

        def told(paired: Paired) -> None:
            _say("report", {"report": as_json(report(paired))})

        pairing = Pairing(
            sides={arm: opened(arm) for arm in Arm},
            workload=workload,
            plan=order.plan,
            pairs=order.pairs,
            repeats=begun.repeats,
            max_model_len=begun.max_model_len,
            progress=_tell,
            taken=told,
            cancelled=cancelled,
            loads=list(continued_pairs(job.earlier, begun.plan_digest)),
        )
        told(pairing.run())


def failure(error: RooftuneError) -> dict[str, object]:
    """The error as data, from which the other side makes the same one again."""
    data = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {"error": type(error).__name__, "message": str(error), "data": as_json(data)}


def main(text: bytes, on_signal: Callable[[threading.Event], None]) -> int:
    """Run one job; 0 when there is a report, 1 when there is an error."""
    cancelled = threading.Event()
    on_signal(cancelled)
    try:
        job = TypeAdapter(Job | CompareJob).validate_json(text)
        if isinstance(job, CompareJob):
            compare(job, cancelled)
        else:
            measure(job, cancelled)
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
