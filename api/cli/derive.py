"""`rooftune workload derive`: other traffic made of traffic files, without a service."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from advisor.errors import InvalidInput
from advisor.traffic.columns import requests_to_parquet
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading.reader import open_trace
from advisor.traffic.sampling.shelf import Derivation, Shelf, Source, derivation
from advisor.traffic.sampling.synthesis import Recipe
from api.cli.answer import Json, console, print_json
from api.cli.reading import Columns, Format, SessionLengths, TimeUnit, options_of

Files = Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, readable=True)]
Out = Annotated[Path, typer.Option("--out", help="JSON Lines to write.", dir_okay=False)]
Rate = Annotated[float, typer.Option(help="How many times as fast requests arrive.")]
Count = Annotated[
    int | None,
    typer.Option("--requests", min=1, help="Draw so many requests anew, sessions as a whole."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of what is drawn.")]
Outputs = Annotated[float, typer.Option(help="How many times as long answers are (lengths only).")]
ByFile = Annotated[bool, typer.Option("--label-by-file", help="Put the file before every class.")]
ByTime = Annotated[bool, typer.Option("--by-time", help="Keep files as far apart as their logs.")]


def derive(
    files: Files,
    *,
    out: Out,
    rate: Rate = 1.0,
    requests: Count = None,
    seed: Seed = 0,
    outputs: Outputs = 1.0,
    label_by_file: ByFile = False,
    by_time: ByTime = False,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    as_json: Json = False,
) -> None:
    """Write the same traffic faster, longer or shorter, or several files as one.

    Gaps are divided by the rate. Requests are drawn by sessions in stretches of time, so that
    bursts and think times stay. Ids, sessions and block ids of several files are kept apart. What
    is written is read back as it is by every other command.
    """
    recipe = Recipe(
        rate=rate,
        requests=requests,
        seed=seed,
        outputs=outputs,
        label_by_source=label_by_file,
    )
    options = options_of(columns, time_unit, session_lengths, file_format)
    if any(out.exists() and out.samefile(file) for file in files):
        raise InvalidInput("--out", f"{out.name} is one of the files to read")
    with ExitStack() as open_files:
        sources = [
            _source(open_files.enter_context(file.open("rb")), file.stem, options) for file in files
        ]
        made = derivation(sources, recipe, by_time=by_time)
        _write(out, made)
    _tell(made, recipe, [source.name for source in sources], out, as_json=as_json)


def _source(stream: BinaryIO, name: str, options: ReadOptions) -> Source:
    """A file as stored parts in memory, compressed."""
    with tempfile.TemporaryFile() as spool:
        opened = open_trace(stream, filename=name, spool=spool, options=options)
        parts = [requests_to_parquet(part) for part in opened.batches()]
    return Source(name=name, report=opened.report, shelf=Shelf(len(parts), parts.__getitem__))


def _write(out: Path, made: Derivation) -> None:
    """The whole file, or none: it has its name when it is complete."""
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in made.lines)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _tell(
    made: Derivation, recipe: Recipe, names: Sequence[str], out: Path, *, as_json: bool
) -> None:
    warnings = made.plan.warnings()
    if as_json:
        print_json(
            {
                "out": str(out),
                "requests": len(made.plan),
                "derived": recipe.described(names),
                "warnings": list(warnings),
            }
        )
        return
    lines = console()
    told = f"{len(made.plan):,} requests in {out}, {recipe.described(names)}"
    lines.print(told, markup=False, soft_wrap=True)
    for warning in warnings:
        lines.print(f"warning   {warning}", markup=False, soft_wrap=True)
