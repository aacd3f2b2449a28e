"""`rooftune compare`: two servers, or two settings of an engine started here, load by load."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.measurement.asked import (
    CompareOrder,
    Endpoint,
    MeasuredServer,
    MeasurePlan,
    Salt,
    Stop,
)
from advisor.measurement.comparison import ComparisonReport, worst_change
from advisor.measurement.protocol.pairs import Change
from api.cli.answer import Exit, Json, console, print_json
from api.cli.compared_text import print_compared
from api.cli.measure_options import (
    Answers,
    Budget,
    Cap,
    Default,
    Effort,
    Folder,
    KeyFile,
    Launcher,
    Loads,
    Model,
    Out,
    Own,
    Pace,
    Python,
    Rates,
    Requests,
    Salts,
    Seed,
    Speeds,
    Stops,
    WorkloadFile,
    engine_of,
    key_of,
    loop_of,
    plan_of,
)
from api.cli.measure_progress import bars_of, earlier_report, keeper
from api.cli.reading import Columns, Format, SessionLengths, TimeUnit, options_of
from api.codec import json_value
from api.measuring import MeasureListener, run_comparison

_CODES = {
    Change.HELPS: Exit.OK,
    Change.NEUTRAL: Exit.OK,
    Change.HURTS: Exit.NEGATIVE,
    Change.UNKNOWN: Exit.INCONCLUSIVE,
}
# A comparison repeats by pairs: its loads ask for no precision of their own.
_PRECISION = 0.05
_LEAST_SPAN = "30s"

UrlA = Annotated[str | None, typer.Argument(help="What runs today: http://host:8000.")]
UrlB = Annotated[str | None, typer.Argument(help="What it is compared with.")]
Pairs = Annotated[int, typer.Option(min=2, help="Pairs of loads at each level.")]
ModelB = Annotated[str | None, typer.Option(help="Served name at B, where it is another one.")]
KeyFileB = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="File with B's key, if another.")
]
ServeA = Annotated[str | None, typer.Option(help='Settings of A: "vllm serve ...".')]
ServeB = Annotated[str | None, typer.Option(help='Settings of B: "vllm serve ...".')]
PythonB = Annotated[Path | None, typer.Option(help="Python of B's engine, where it is another.")]
FolderB = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="Model folder of B, where it is another."),
]


def compare(
    url_a: UrlA = None,
    url_b: UrlB = None,
    *,
    workload: WorkloadFile,
    pairs: Pairs = 5,
    model: Model = None,
    model_b: ModelB = None,
    api_key_file: KeyFile = None,
    api_key_file_b: KeyFileB = None,
    concurrency: Loads = "8",
    rate: Rates = None,
    speed: Speeds = None,
    requests: Requests = 100,
    budget: Budget = "1h",
    salt: Salts = Salt.AUTO,
    stop: Stops = Stop.RECORDED,
    max_tokens: Cap = 2048,
    default_tokens: Default = 128,
    engine: Python = None,
    engine_b: PythonB = None,
    model_folder: Folder = None,
    model_folder_b: FolderB = None,
    serve_a: ServeA = None,
    serve_b: ServeB = None,
    launcher: Launcher = None,
    seed: Seed = 0,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Is B better than A on your traffic? Pairs of loads, A B B A, of servers or of settings.

    Exits 0 when nothing hurts, 1 when something does, 3 when a server cannot be used, 4 when the
    pairs do not decide. With --engine an engine is started here anew for every load.
    """
    own = (
        Own(engine, model_folder, serve_a, launcher),
        Own(engine_b or engine, model_folder_b or model_folder, serve_b, launcher),
    )
    running = _endpoints((url_a, url_b), (model, model_b), (api_key_file, api_key_file_b))
    a, b = _sides(running, own)
    order = CompareOrder(
        plan=_plan(
            (concurrency, rate, speed),
            Effort(requests, _PRECISION, budget, _LEAST_SPAN, seed),
            Answers(salt, stop, max_tokens, default_tokens),
        ),
        a=a,
        b=b,
        pairs=pairs,
        workload=str(workload.absolute()),
        options=options_of(columns, time_unit, session_lengths, file_format),
        tokenizer=None if model_folder is None else str(model_folder.absolute()),
    )
    _answer(_compared(order, out, quiet=as_json), as_json=as_json)


def _answer(report: ComparisonReport, *, as_json: bool) -> None:
    """Print the report and exit with what it answers."""
    if as_json:
        print_json(json_value(report))
    else:
        print_compared(console(), report)
    code = ending(report)
    if code != Exit.OK:
        raise typer.Exit(code)


def _plan(
    loads: tuple[str | None, str | None, str | None], effort: Effort, answers: Answers
) -> MeasurePlan:
    concurrency, rate, speed = loads
    closed = None if rate or speed else concurrency
    return plan_of(loop_of(closed, rate, speed, Pace("poisson", None)), None, effort, answers)


def _endpoints(
    urls: tuple[str | None, str | None],
    models: tuple[str | None, str | None],
    key_files: tuple[Path | None, Path | None],
) -> tuple[Endpoint, Endpoint]:
    """Both servers; what B has no model or key of its own for is A's."""
    a, b = (
        Endpoint(url=url or "", model=model or models[0], api_key=key_of(file or key_files[0]))
        for url, model, file in zip(urls, models, key_files, strict=True)
    )
    return a, b


def _sides(
    running: tuple[Endpoint, Endpoint], own: tuple[Own, Own]
) -> tuple[MeasuredServer, MeasuredServer]:
    """Both endpoints, or both engines to start."""
    if own[0].python is None:
        if not all(side.url for side in running):
            raise InvalidInput("URL", "name two servers, or an engine to start: --engine")
        return running
    if any(side.url for side in running):
        raise InvalidInput("URL", "two servers that run, or --engine: not both")
    a, b = engine_of(own[0]), engine_of(own[1])
    if a == b:
        raise InvalidInput("--serve-b", "both sides are the same: give B other settings")
    return a, b


def _compared(order: CompareOrder, out: Path | None, *, quiet: bool) -> ComparisonReport:
    """Compare, keep the report after every pair, show what goes on."""
    earlier = earlier_report(out, ComparisonReport)
    keep: Callable[[ComparisonReport], None] = keeper(out)
    with bars_of(order.plan.kind, quiet=quiet) as told:
        return run_comparison(order, earlier, MeasureListener(progress=told, report=keep))


def ending(report: ComparisonReport) -> Exit:
    """What the command exits with."""
    return _CODES[worst_change(report.levels)] if report.levels else Exit.INCONCLUSIVE
