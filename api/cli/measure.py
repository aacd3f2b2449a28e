"""`rooftune measure`: loads on a server that serves already, or on one started here; no service."""

from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.measurement.asked import Endpoint, MeasuredServer, MeasurePlan, Order, Salt, Stop
from advisor.measurement.report import MeasurementReport
from advisor.measurement.slo import Slo
from api.cli.answer import Exit, Json, console, print_json
from api.cli.measure_options import (
    Answers,
    Arrive,
    Budget,
    Cap,
    Cv,
    Default,
    Effort,
    Folder,
    KeyFile,
    Launcher,
    Limit,
    Loads,
    Model,
    Out,
    Own,
    Pace,
    Precision,
    Python,
    Rates,
    Requests,
    Salts,
    Seed,
    Serve,
    Share,
    Span,
    Speeds,
    Stops,
    Tokenizer,
    Url,
    WorkloadFile,
    engine_of,
    key_of,
    loop_of,
    numbers,
    plan_of,
)
from api.cli.measure_progress import bars_of, earlier_report, keeper
from api.cli.measured_text import print_measured
from api.cli.reading import Columns, Format, SessionLengths, TimeUnit, options_of
from api.codec import json_value
from api.measuring import MeasureListener, run_measurement

STEPS = "Of an engine started here also the time of its steps, and of verifying drafts of these"
STEPS += " lengths: 1,3,5; 0 for none."
Steps = Annotated[str | None, typer.Option(help=STEPS)]


def measure(
    url: Url = None,
    *,
    workload: WorkloadFile,
    model: Model = None,
    api_key_file: KeyFile = None,
    concurrency: Loads = None,
    rate: Rates = None,
    arrivals: Arrive = "poisson",
    cv: Cv = None,
    speed: Speeds = None,
    slo_ttft: Limit = None,
    slo_tpot: Limit = None,
    slo_e2e: Limit = None,
    attainment: Share = 0.9,
    requests: Requests = 100,
    precision: Precision = 0.05,
    budget: Budget = "10m",
    least_span: Span = "30s",
    salt: Salts = Salt.AUTO,
    stop: Stops = Stop.RECORDED,
    max_tokens: Cap = 2048,
    default_tokens: Default = 128,
    tokenizer: Tokenizer = None,
    engine: Python = None,
    model_folder: Folder = None,
    serve: Serve = None,
    launcher: Launcher = None,
    steps: Steps = None,
    seed: Seed = 0,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure a server with your own traffic: throughput, latency, the load that keeps your limits.

    Only the address that you name is asked; nothing is restarted or reset there. With --engine an
    engine is started here and stopped afterwards. Exits 0 when measured, 1 when no load keeps the
    limits, 3 when the server cannot be used, 4 when the question stays open.
    """
    loop = loop_of(concurrency, rate, speed, Pace(arrivals, cv))
    slo = _slo(slo_ttft, slo_tpot, slo_e2e, attainment)
    effort = Effort(requests, precision, budget, least_span, seed)
    plan = plan_of(loop, slo, effort, Answers(salt, stop, max_tokens, default_tokens))
    own = Own(engine, model_folder, serve, launcher)
    counted_by = tokenizer or model_folder
    lengths = () if steps is None else tuple(map(int, numbers("--steps", steps)))
    order = Order(
        plan=plan,
        server=_server(url, model, api_key_file, own),
        workload=str(workload.absolute()),
        options=options_of(columns, time_unit, session_lengths, file_format),
        tokenizer=None if counted_by is None else str(counted_by.absolute()),
        steps=steps is not None,
        verify=tuple(length for length in lengths if length),
    )
    _answer(_measured(order, out, quiet=as_json), plan, as_json=as_json)


def _answer(report: MeasurementReport, plan: MeasurePlan, *, as_json: bool) -> None:
    """Print the report and exit with what it answers."""
    if as_json:
        print_json(json_value(report))
    else:
        print_measured(console(), report)
    code = ending(report, plan)
    if code != Exit.OK:
        raise typer.Exit(code)


def _slo(
    ttft_s: float | None, tpot_s: float | None, e2e_s: float | None, attainment: float
) -> Slo | None:
    if ttft_s is None and tpot_s is None and e2e_s is None:
        return None
    return Slo(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s, attainment=attainment)


def _server(url: str | None, model: str | None, key_file: Path | None, own: Own) -> MeasuredServer:
    """The endpoint, or the engine to start."""
    if own.python is not None:
        if url is not None:
            raise InvalidInput("URL", "a server that runs, or --engine: one of them is measured")
        return engine_of(own)
    if not url:
        raise InvalidInput("URL", "name a server, or an engine to start: --engine")
    return Endpoint(url=url, model=model, api_key=key_of(key_file))


def _measured(order: Order, out: Path | None, *, quiet: bool) -> MeasurementReport:
    """Measure, keep the report after every load, show what goes on."""
    earlier = earlier_report(out, MeasurementReport)
    with bars_of(order.plan.kind, quiet=quiet) as told:
        return run_measurement(order, earlier, MeasureListener(progress=told, report=keeper(out)))


def ending(report: MeasurementReport, plan: MeasurePlan) -> Exit:
    """What the command exits with."""
    if not any(load.usable for load in report.loads) or not report.complete:
        return Exit.INCONCLUSIVE
    if plan.slo is None:
        return Exit.OK
    capacity = None if report.findings is None else report.findings.capacity
    if capacity is None or (capacity.load is None and capacity.fails_at is None):
        return Exit.INCONCLUSIVE
    return Exit.NEGATIVE if capacity.load is None else Exit.OK
