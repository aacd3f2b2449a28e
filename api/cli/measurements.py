"""`rooftune measurement`: results of other load clients, beside what studies measure."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from advisor.canonical import as_json as plain
from advisor.errors import InvalidInput
from advisor.measurement.imports import TOOLS, read_result
from advisor.measurement.report import MeasurementReport
from api.cli.answer import Column, Json, console, emit, print_json
from api.cli.connection import connect
from api.cli.listing import list_command
from api.documents.outside import FIGURES, figures, load_text, tool_text

app = typer.Typer(help="Results of other load clients.", no_args_is_help=True)
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="tool", path="report.tool"),
    Column(title="version", path="report.tool_version"),
    Column(title="model", path="report.model"),
    Column(title="evidence", path="source"),
    Column(title="target", path="target_id"),
    Column(title="created", path="created_at"),
)
KNOWN = "; ".join(tool.files for tool in TOOLS)
File = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, readable=True, help=f"One of: {KNOWN}.")
]
Target = Annotated[str | None, typer.Option(help="The target that was measured.")]


class Form(StrEnum):
    """How a benchmark report is written."""

    YAML = "yaml"
    JSON = "json"


@app.command("inspect")
def inspect(file: File, *, as_json: Json = False) -> None:
    """Read a result file here, without a service: what it says in Rooftune's units and terms."""
    report = read_result(file.read_bytes())
    if as_json:
        print_json(plain(report))
        return
    _print(report, console())


@app.command("import")
def import_file(
    ctx: typer.Context, file: File, *, target: Target = None, as_json: Json = False
) -> None:
    """Keep the figures of a result file; the file, its prompts and answers are not kept."""
    with connect(ctx) as client:
        made = client.import_measurement(file, target_id=target)
    emit(made, COLUMNS, as_json=as_json)
    if not as_json:
        _print(made.report, console())


list_command(
    app,
    "Measurements, newest first.",
    COLUMNS,
    page_of=lambda client, limit, cursor: client.measurements(limit=limit, cursor=cursor),
)


@app.command("show")
def show(ctx: typer.Context, measurement: str, *, as_json: Json = False) -> None:
    """One measurement: where it comes from and what it says of each load."""
    with connect(ctx) as client:
        found = client.measurement(measurement)
    emit(found, COLUMNS, as_json=as_json)
    if not as_json:
        _print(found.report, console())


@app.command("export")
def export(
    ctx: typer.Context,
    measurement: Annotated[str | None, typer.Argument(help="A measurement's id.")] = None,
    *,
    study: Annotated[str | None, typer.Option(help="Instead: all usable loads of a study.")] = None,
    form: Annotated[Form, typer.Option("--format", help="What to write.")] = Form.YAML,
    load: Annotated[int | None, typer.Option(min=0, help="One load alone, from 0.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file; default: standard output.")] = None,
    as_json: Json = False,
) -> None:
    """Write llm-d benchmark reports (schema 0.2.1), one for each usable load."""
    if (measurement is None) == (study is None):
        raise InvalidInput("--study", "give a measurement's id or a study's, not both")
    with connect(ctx) as client:
        if study is not None:
            text = client.study_report(study, form.value, load=load)
        else:
            text = client.measurement_report(str(measurement), form.value, load=load)
    if out is not None:
        _write(out, text)
    if as_json:
        held = {"format": form.value, "file": None if out is None else str(out)}
        print_json(held | ({"content": text} if out is None else {"bytes": len(text.encode())}))
    elif out is None:
        print(text, end="")
    else:
        console().print(f"wrote {out}", markup=False, soft_wrap=True)


@app.command("delete")
def delete(ctx: typer.Context, measurement: str, *, as_json: Json = False) -> None:
    """Delete a measurement."""
    with connect(ctx) as client:
        client.delete_measurement(measurement)
    if as_json:
        print_json({"deleted": measurement})
    else:
        console().print(f"deleted {measurement}")


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput("--out", f"cannot be written: {error.strerror}") from error


def _print(report: MeasurementReport, out: Console) -> None:
    """A line of figures for each load, and what is to be known of it."""
    table = Table(title=tool_text(report), title_justify="left", box=None, pad_edge=False)
    for title in FIGURES:
        table.add_column(title, no_wrap=True)
    for point in report.points:
        table.add_row(*figures(point))
    out.print(table)
    for point in report.points:
        for remark in point.remarks:
            out.print(f"{load_text(point)}: {remark}", markup=False, soft_wrap=True)
    for remark in report.remarks:
        out.print(f"note: {remark}", markup=False, soft_wrap=True)
