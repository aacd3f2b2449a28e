"""Options of the commands that make loads, and what they mean together."""

import re
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from advisor.baseline_command import parse_serve_command
from advisor.errors import InvalidInput
from advisor.measurement.asked import ARRIVALS, MeasurePlan, OwnEngine, Salt, Stop
from advisor.measurement.records import LoopKind
from advisor.measurement.slo import Slo
from advisor.serving import ServingConfig

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
Seed = Annotated[int, typer.Option(help="Of what is drawn: requests, send times.")]


class Pace(NamedTuple):
    """Send times of an open loop."""

    arrivals: str
    cv: float | None


class Loop(NamedTuple):
    """Kind of loop, its levels, its send times."""

    kind: LoopKind
    levels: tuple[float, ...]
    pace: Pace


class Effort(NamedTuple):
    """How much is measured; times as they were typed."""

    requests: int
    precision: float
    budget: str
    least_span: str
    seed: int


class Answers(NamedTuple):
    """What is sent, and where answers end."""

    salt: Salt
    stop: Stop
    most_tokens: int
    default_tokens: int


class Own(NamedTuple):
    """An engine to start, as far as it was named."""

    python: Path | None
    model_folder: Path | None
    serve: str | None
    launcher: Path | None


def plan_of(loop: Loop, slo: Slo | None, effort: Effort, answers: Answers) -> MeasurePlan:
    """The loads of a measurement; `InvalidInput` names what cannot be."""
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


def loop_of(concurrency: str | None, rate: str | None, speed: str | None, pace: Pace) -> Loop:
    """The kind of loop, its levels and its arrivals; only one option may name levels."""
    recorded = pace.arrivals == "recorded"
    if sum(given is not None for given in (concurrency, rate, speed)) > 1:
        raise InvalidInput("--concurrency, --rate, --speed", "only one of them makes a load")
    if rate is not None and recorded:
        raise InvalidInput("--rate", "recorded arrivals have their own: give --speed")
    if rate is not None:
        return Loop(LoopKind.OPEN, numbers("--rate", rate), pace)
    if speed is not None or recorded:
        levels = (1.0,) if speed is None else numbers("--speed", speed)
        return Loop(LoopKind.OPEN, levels, pace._replace(arrivals="recorded"))
    given = concurrency or DEFAULT_CONCURRENCY
    return Loop(LoopKind.CLOSED, numbers("--concurrency", given), pace)


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


def key_of(file: Path | None) -> str | None:
    """The key in the file."""
    if file is None:
        return None
    key = file.read_text(encoding="utf-8").strip()
    if not key or not key.isprintable() or " " in key:
        raise InvalidInput("--api-key-file", "holds no single key on one line")
    return key


def engine_of(own: Own) -> OwnEngine:
    """The engine to start."""
    if own.python is None:
        raise InvalidInput("--engine", "name the Python of the engine to start")
    if own.model_folder is None:
        raise InvalidInput("--model-folder", "is needed to start an engine")
    config = ServingConfig()
    if own.serve is not None:
        parsed = parse_serve_command(own.serve)
        config = ServingConfig(functional=parsed.functional, levers=parsed.levers)
    return OwnEngine(
        python=str(own.python.absolute()),
        model_folder=str(own.model_folder.absolute()),
        config=config,
        launcher=None if own.launcher is None else str(own.launcher.absolute()),
    )
