"""`rooftune workload`: look into a traffic file without a service, upload it, list, delete."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from advisor.canonical import as_json as plain
from advisor.traffic.formats import read_trace
from advisor.traffic.summary import summarise
from advisor.traffic.trace import ClassSummary, Quantiles, TraceReport, TrafficSummary
from api.cli.answer import Column, Json, console, emit, print_json
from api.cli.connection import connect
from api.cli.listing import list_command

app = typer.Typer(help="Traffic samples.", no_args_is_help=True)
BLOCK_SIZE = 16
SHOWN_REJECTS = 20
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="requests", path="requests"),
    Column(title="format", path="report.format"),
    Column(title="rejected", path="report.rejected"),
    Column(title="created", path="created_at"),
)
File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]


@app.command("inspect")
def inspect(file: File, *, as_json: Json = False) -> None:
    """Read a traffic file here, without a service: format, rows, rejects, warnings, summary."""
    with file.open("rb") as stream:
        trace = read_trace(stream, filename=file.name)
    summary = summarise(trace.requests, None, block_size=BLOCK_SIZE)
    if as_json:
        print_json({"report": plain(trace.report), "summary": plain(summary)})
        return
    _print_report(trace.report)
    _print_summary(summary)


def _print_report(report: TraceReport) -> None:
    out = console()
    out.print(f"format    {report.format}, {report.encoding}")
    out.print(f"rows      {report.rows}: {report.accepted} accepted, {report.rejected} rejected")
    for reject in report.rejects[:SHOWN_REJECTS]:
        out.print(f"  line {reject.line}: {reject.field}: {reject.reason}", markup=False)
    if report.rejected > SHOWN_REJECTS:
        out.print(f"  and {report.rejected - SHOWN_REJECTS} more (--json lists up to 1,000)")
    for warning in report.warnings:
        out.print(f"warning   {warning}", markup=False)


def _print_summary(summary: TrafficSummary) -> None:
    out = console()
    table = Table(title=f"{summary.requests} requests, {summary.with_text} with text")
    for title in ("class", "requests", "prompt p50", "p95", "output p50", "p95", "shared prefix"):
        table.add_column(title)
    for item in (summary.overall, *summary.classes):
        table.add_row(*_class_line(item))
    out.print(table)
    if summary.arrivals is not None:
        rate, ratio = summary.arrivals.rate_per_s, summary.arrivals.burstiness_ratio
        out.print(f"arrivals  {rate:.3g} per s, busiest window {ratio:.2g} times the mean")
    for what, why in summary.unmeasurable.items():
        out.print(f"unknown   {what}: {why}", markup=False)


def _class_line(item: ClassSummary) -> tuple[str, ...]:
    sharing = item.prefix_sharing
    return (
        item.label,
        str(item.requests),
        *_tokens(item.prompt_tokens),
        *_tokens(item.output_tokens),
        "-" if sharing is None else f"{sharing.hit_share.value:.0%}",
    )


def _tokens(quantiles: Quantiles | None) -> tuple[str, str]:
    if quantiles is None:
        return "-", "-"
    return f"{quantiles.p50:.0f}", f"{quantiles.p95:.0f}"


@app.command("upload")
def upload(
    ctx: typer.Context,
    file: File,
    *,
    name: Annotated[str | None, typer.Option(help="Without one, the file's.")] = None,
    target: Annotated[str | None, typer.Option(help="Target whose tokenizer counts.")] = None,
    as_json: Json = False,
) -> None:
    """Upload a traffic file."""
    with connect(ctx) as client:
        made = client.upload_workload(file, name=name or file.stem, target_id=target)
    emit(made, COLUMNS, as_json=as_json)


list_command(
    app,
    "Uploaded samples, newest first.",
    COLUMNS,
    page_of=lambda client, limit, cursor: client.workloads(limit=limit, cursor=cursor),
)


@app.command("show")
def show(
    ctx: typer.Context,
    workload: str,
    *,
    target: Annotated[str | None, typer.Option(help="Target whose tokenizer counts.")] = None,
    as_json: Json = False,
) -> None:
    """One sample: what reading it found and what it says."""
    with connect(ctx) as client:
        found = client.workload(workload)
        summary = found.summary if target is None else client.workload_summary(workload, target)
    if as_json:
        emit(found if target is None else summary, COLUMNS, as_json=as_json)
        return
    emit(found, COLUMNS, as_json=as_json)
    _print_report(found.report)
    _print_summary(summary)


@app.command("delete")
def delete(ctx: typer.Context, workload: str, *, as_json: Json = False) -> None:
    """Delete a sample and everything derived from it."""
    with connect(ctx) as client:
        client.delete_workload(workload)
    if as_json:
        print_json({"deleted": workload})
    else:
        console().print(f"deleted {workload}")
