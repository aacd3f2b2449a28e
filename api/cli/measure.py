"""`rooftune measure`: loads on a server that serves already, or on one started here; no service."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from advisor.baseline_command import parse_serve_command
from advisor.errors import InvalidInput
from advisor.measurement.asked import (
    ARRIVALS,
    Endpoint,
    MeasuredServer,
    MeasurePlan,
    Order,
    OwnEngine,
    Salt,
    Stop,
)
from advisor.measurement.records import LoopKind
from advisor.measurement.report import MeasurementReport
from advisor.measurement.slo import Slo
from advisor.serving import ServingConfig
from api.cli.answer import Exit, Json, console, print_json
from api.cli.measured_text import level_text, print_measured
from api.cli.reading import Columns, Format, SessionLengths, TimeUnit, options_of
from api.codec import json_text, json_value, read
from api.measuring import MeasureListener, MeasureProgress, run_measurement

DEFAULT_CONCURRENCY = "1,2,4,8,16"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

Url = Annotated[str | None, typer.Argument(help="A server: http://host:8000 or https://host.")]
WorkloadFile = Annotated[
    Path,
    typer.Option("--workload", exists=True, dir_okay=False, help="Traffic file of any format."),
]
Model = Annotated[str | None, typer.Option(help="Served name, where there are several.")]
KeyFile = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="File with the endpoint's API key.")
]
Loads = Annotated[str | None, typer.Option(help="Closed loop: requests in flight, as 1,2,4,8.")]
Rates = Annotated[str | None, typer.Option(help="Open loop: requests per second, as 0.5,1,2.")]
Arrive = Annotated[str, typer.Option(help=f"Send times of an open loop: {', '.join(ARRIVALS)}.")]
Cv = Annotated[float | None, typer.Option(help="Variation of the gaps of gamma arrivals.")]
Speeds = Annotated[str | None, typer.Option(help="Recorded arrivals: so many times as fast: 1,2.")]
Limit = Annotated[float | None, typer.Option(help="Limit for one request, in seconds.")]
Share = Annotated[float, typer.Option(help="Share of requests that must keep the limits.")]
Requests = Annotated[int, typer.Option(min=1, help="Usual number of requests of one load.")]
Precision = Annotated[float, typer.Option(help="Half width of intervals to measure down to.")]
Budget = Annotated[str, typer.Option(help="Time to spend: 90s, 10m, 1h.")]
Span = Annotated[str, typer.Option(help="An open load lasts at least so long.")]
SALTS = "Against prefixes that earlier loads cached: auto, field (vLLM's cache_salt), prompt, none."
Salts = Annotated[Salt, typer.Option("--salt", help=SALTS)]
Stops = Annotated[
    Stop, typer.Option("--stop", help="Answers end at recorded lengths, or by nature.")
]
Cap = Annotated[int, typer.Option(min=1, help="Most tokens of one answer.")]
Default = Annotated[int, typer.Option(min=1, help="Tokens of answers whose length is not known.")]
Tokenizer = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="Model folder to count tokens by.")
]
Python = Annotated[Path | None, typer.Option(help="Start an engine here: its Python.")]
Folder = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="Model folder of that engine.")
]
Serve = Annotated[str | None, typer.Option(help='Its settings: "vllm serve ...".')]
Launcher = Annotated[Path | None, typer.Option(hidden=True, exists=True, dir_okay=False)]
Out = Annotated[Path | None, typer.Option(dir_okay=False, help="Keep the report; goes on with it.")]
STEPS = "Of an engine started here also the time of its steps, and of verifying drafts of these"
STEPS += " lengths: 1,3,5; 0 for none."
Steps = Annotated[str | None, typer.Option(help=STEPS)]
Seed = Annotated[int, typer.Option(help="Of what is drawn: requests, send times.")]


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
    loop = _loop(concurrency, rate, speed, _Pace(arrivals, cv))
    slo = _slo(slo_ttft, slo_tpot, slo_e2e, attainment)
    effort = _Effort(requests, precision, budget, least_span, seed)
    plan = _plan(loop, slo, effort, _Answers(salt, stop, max_tokens, default_tokens))
    own = _Own(engine, model_folder, serve, launcher)
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


class _Pace(NamedTuple):
    arrivals: str
    cv: float | None


class _Loop(NamedTuple):
    kind: LoopKind
    levels: tuple[float, ...]
    pace: _Pace


class _Effort(NamedTuple):
    requests: int
    precision: float
    budget: str
    least_span: str
    seed: int


class _Answers(NamedTuple):
    salt: Salt
    stop: Stop
    most_tokens: int
    default_tokens: int


class _Own(NamedTuple):
    python: Path | None
    model_folder: Path | None
    serve: str | None
    launcher: Path | None


def _plan(loop: _Loop, slo: Slo | None, effort: _Effort, answers: _Answers) -> MeasurePlan:
    return MeasurePlan(
        kind=loop.kind,
        levels=loop.levels,
        requests=effort.requests,
        arrivals=loop.pace.arrivals,
        cv=loop.pace.cv,
        slo=slo,
        precision=effort.precision,
        budget_s=seconds("--budget", effort.budget),
        least_span_s=seconds("--least-span", effort.least_span),
        seed=effort.seed,
        salt=answers.salt,
        stop=answers.stop,
        cap_tokens=answers.most_tokens,
        default_tokens=min(answers.default_tokens, answers.most_tokens),
    )


def _answer(report: MeasurementReport, plan: MeasurePlan, *, as_json: bool) -> None:
    """Print the report and exit with what it answers."""
    if as_json:
        print_json(json_value(report))
    else:
        print_measured(console(), report)
    code = ending(report, plan)
    if code != Exit.OK:
        raise typer.Exit(code)


def _loop(concurrency: str | None, rate: str | None, speed: str | None, pace: _Pace) -> _Loop:
    """The kind of loop, its levels and its arrivals; only one option may name levels."""
    recorded = pace.arrivals == "recorded"
    if sum(given is not None for given in (concurrency, rate, speed)) > 1:
        raise InvalidInput("--concurrency, --rate, --speed", "only one of them makes a load")
    if rate is not None and recorded:
        raise InvalidInput("--rate", "recorded arrivals have their own: give --speed")
    if rate is not None:
        return _Loop(LoopKind.OPEN, numbers("--rate", rate), pace)
    if speed is not None or recorded:
        levels = (1.0,) if speed is None else numbers("--speed", speed)
        return _Loop(LoopKind.OPEN, levels, pace._replace(arrivals="recorded"))
    given = concurrency or DEFAULT_CONCURRENCY
    return _Loop(LoopKind.CLOSED, numbers("--concurrency", given), pace)


def numbers(option: str, text: str) -> tuple[float, ...]:
    """``1,2,4`` as numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(option, f"{text!r} is no list of numbers such as 1,2,4") from None


def seconds(option: str, text: str) -> float:
    """``90s``, ``10m`` or ``1h`` in seconds; a bare number is seconds."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(option, f"{text!r} is no time such as 90s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def _slo(
    ttft_s: float | None, tpot_s: float | None, e2e_s: float | None, attainment: float
) -> Slo | None:
    if ttft_s is None and tpot_s is None and e2e_s is None:
        return None
    return Slo(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=e2e_s, attainment=attainment)


def _key(file: Path | None) -> str | None:
    if file is None:
        return None
    key = file.read_text(encoding="utf-8").strip()
    if not key or not key.isprintable() or " " in key:
        raise InvalidInput("--api-key-file", "holds no single key on one line")
    return key


def _server(url: str | None, model: str | None, key_file: Path | None, own: _Own) -> MeasuredServer:
    """The endpoint, or the engine to start."""
    if own.python is not None:
        if url is not None:
            raise InvalidInput("URL", "a server that runs, or --engine: one of them is measured")
        return _engine(own.python, own)
    if not url:
        raise InvalidInput("URL", "name a server, or an engine to start: --engine")
    return Endpoint(url=url, model=model, api_key=_key(key_file))


def _engine(python: Path, own: _Own) -> OwnEngine:
    if own.model_folder is None:
        raise InvalidInput("--model-folder", "is needed to start an engine")
    config = ServingConfig()
    if own.serve is not None:
        parsed = parse_serve_command(own.serve)
        config = ServingConfig(functional=parsed.functional, levers=parsed.levers)
    return OwnEngine(
        python=str(python.absolute()),
        model_folder=str(own.model_folder.absolute()),
        config=config,
        launcher=None if own.launcher is None else str(own.launcher.absolute()),
    )


def _measured(order: Order, out: Path | None, *, quiet: bool) -> MeasurementReport:
    """Measure, keep the report after every load, show what goes on."""
    earlier = _earlier(out)
    with _bars(order.plan.kind, quiet=quiet) as told:
        return run_measurement(order, earlier, MeasureListener(progress=told, report=_keeper(out)))


def _earlier(out: Path | None) -> MeasurementReport | None:
    if out is None or not out.exists():
        return None
    try:
        return read(out.read_bytes(), MeasurementReport)
    except ValidationError:
        raise InvalidInput(
            "--out", f"{out.name} exists and is no report of ours: name another file"
        ) from None


def _keeper(out: Path | None) -> Callable[[MeasurementReport], None]:
    """Writes the report beside its place and moves it there: a cut one is never left."""
    if out is None:
        return lambda _report: None

    def keep(report: MeasurementReport) -> None:
        beside = out.with_name(out.name + ".part")
        beside.write_text(json_text(report) + "\n", encoding="utf-8")
        beside.replace(out)

    return keep


@dataclass
class _Shown:
    """Two bars on standard error: what is measured now, and how much of the budget is spent."""

    bars: Progress
    kind: LoopKind
    now: TaskID
    budget: TaskID

    def tell(self, progress: MeasureProgress) -> None:
        """Show it."""
        self.bars.update(
            self.now,
            description=self._text(progress),
            completed=progress.done,
            total=progress.total or None,
        )
        if progress.budget_s:
            left_s = max(0.0, progress.budget_s - progress.spent_s)
            self.bars.update(
                self.budget,
                visible=True,
                description=f"budget, at most {left_s:.0f} s left",
                completed=min(progress.spent_s, progress.budget_s),
                total=progress.budget_s,
            )

    def _text(self, progress: MeasureProgress) -> str:
        if progress.level is None:
            return progress.phase
        level = level_text(progress.level, self.kind)
        what = f"{level} in flight" if self.kind is LoopKind.CLOSED else f"rate {level}"
        return f"{what}, load {progress.repeat}"


@contextmanager
def _bars(kind: LoopKind, *, quiet: bool) -> Iterator[Callable[[MeasureProgress], None]]:
    """Bars while the work lasts; none when `quiet` or when nobody watches."""
    if quiet:
        yield lambda _progress: None
        return
    shown = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        now = bars.add_task("starting", total=None)
        budget = bars.add_task("budget", total=None, visible=False)
        yield _Shown(bars=bars, kind=kind, now=now, budget=budget).tell


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
