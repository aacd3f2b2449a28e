"""How commands read a traffic file here: options of the command line, progress, the summary."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from advisor.errors import InvalidInput
from advisor.llm import dtype_bytes
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.formats.options import SESSION_LENGTHS, TIME_UNITS, ReadOptions
from advisor.traffic.model_folder import ModelFolder, read_folder
from advisor.traffic.reading.reader import OpenTrace, open_trace
from advisor.traffic.sampling.synthesis import Recipe, derived_facts
from advisor.traffic.summary import TrafficTally
from advisor.traffic.tokens import ChatTokenizer, token_columns
from advisor.traffic.trace import Request, TraceReport

BLOCK_SIZE = 16
MODEL = "Folder with config.json; for traffic with text also with its tokenizer."

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]
Model = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help=MODEL)]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="OUR=THEIRS", help="Our field and the file's name for it."),
]
TimeUnit = Annotated[str | None, typer.Option(help=f"Unit of times: {', '.join(TIME_UNITS)}.")]
SessionLengths = Annotated[
    str | None,
    typer.Option(help=f"Whether a turn's length holds the history: {', '.join(SESSION_LENGTHS)}."),
]
Format = Annotated[str | None, typer.Option("--format", help="Name of the format, not detected.")]
BlockSize = Annotated[int, typer.Option(min=1, help="Tokens in a KV block.")]
MaxModelLen = Annotated[
    int | None, typer.Option(min=1, help="Length limit to say what it does not serve.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file that was read here."""

    report: TraceReport
    summary: TrafficSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """With what requests are counted, how many times as fast, which limits are told of."""

    tokenizer: ChatTokenizer | None = None
    block_size: int = BLOCK_SIZE
    draft_lengths: Sequence[int] = (4,)
    limits: Sequence[int] = ()
    rate: float = 1.0


class Steps:
    """Bars on standard error, one per step of the work."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars

    def of(self, step: str, total: int) -> Callable[[int], None]:
        """A bar that is told how much of `total` is done."""
        bars = self._bars
        if bars is None:
            return lambda _done: None
        task = bars.add_task(step, total=total or None)
        return lambda done: bars.update(task, completed=done)


def columns_of(pairs: Sequence[str] | None) -> Mapping[str, str]:
    """``["timestamp=created"]`` as a mapping of our names to theirs."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        ours, equals, theirs = pair.partition("=")
        if not equals or not ours.strip() or not theirs.strip():
            raise InvalidInput("--columns", f"{pair!r} is not our=theirs")
        found[ours.strip()] = theirs.strip()
    return found


def options_of(
    columns: Sequence[str] | None,
    time_unit: str | None,
    session_lengths: str | None,
    file_format: str | None,
) -> ReadOptions:
    """How a file is to be read, from the options of a command."""
    return ReadOptions(
        columns=columns_of(columns),
        time_unit=time_unit,
        session_lengths=session_lengths,
        format=file_format,
    )


def folder_of(model: Path, chat_template: str | None = None) -> ModelFolder:
    """Shape of a model folder, and its tokenizer where it has one; weights are not needed."""

    def read(name: str) -> bytes | None:
        file = model / name
        return file.read_bytes() if file.is_file() else None

    return read_folder(read, chat_template=chat_template, shape_only=True)


def kv_bytes_per_token(folder: ModelFolder) -> int:
    """Keys and values of one token in the checkpoint's own dtype."""
    return folder.shape.kv_bytes_per_token(dtype_bytes(folder.shape.dtype))


def limits_of(folder: ModelFolder | None, max_model_len: int | None) -> tuple[int, ...]:
    """The limit that was asked for and the model's own."""
    own = None if folder is None else folder.shape.max_position_embeddings
    return tuple(limit for limit in (max_model_len, own) if limit is not None)


def read_file(file: Path, options: ReadOptions, counting: Counting, *, quiet: bool) -> Reading:
    """The report on a file and what it says; shows its progress on standard error."""
    with (
        file.open("rb") as stream,
        tempfile.TemporaryFile() as spool,
        progress_bars(quiet=quiet) as progress,
    ):
        opened = open_trace(
            stream,
            filename=file.name,
            spool=spool,
            options=options,
            progress=progress.of("reading", file.stat().st_size),
        )
        return Reading(report=opened.report, summary=_summary(opened, counting, progress))


def _summary(opened: OpenTrace, counting: Counting, bars: Steps) -> TrafficSummary:
    report = opened.report
    tally = TrafficTally(
        block_size=counting.block_size,
        draft_lengths=tuple(counting.draft_lengths),
        limits=counting.limits,
        block_tokens=report.block_tokens,
    )
    recipe = Recipe(rate=counting.rate)
    facts = opened.facts
    # Columns do not hold block ids, which say what prompts share.
    if facts is not None and report.block_tokens is None:
        tally.add_facts(derived_facts([facts], recipe, [""]) if recipe.rate != 1 else facts)
        return tally.finish(report=report)
    done = 0
    told = bars.of("counting", report.accepted)
    for requests in opened.batches():
        tokens = None
        if counting.tokenizer is not None:
            tokens = token_columns(requests, counting.tokenizer)
        tally.add(_faster(requests, recipe.rate), tokens)
        done += len(requests)
        told(done)
    return tally.finish(report=report)


def _faster(requests: Sequence[Request], rate: float) -> Sequence[Request]:
    """The same requests with all gaps divided by `rate`."""
    if rate == 1:
        return requests
    return [
        request
        if request.arrival_s is None
        else replace(request, arrival_s=request.arrival_s / rate)
        for request in requests
    ]


@contextmanager
def progress_bars(*, quiet: bool) -> Iterator[Steps]:
    """Bars while the work lasts; none when `quiet` or when nobody watches."""
    if quiet:
        yield Steps(None)
        return
    shown = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*shown, console=Console(stderr=True), transient=True) as bars:
        yield Steps(bars)
