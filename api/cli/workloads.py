"""`rooftune workload`: look into a traffic file without a service, upload, list, delete."""

from typing import Annotated

import typer

from advisor.canonical import as_json as plain
from advisor.traffic.phrases import PRIVACY_WORDS
from advisor.traffic.trace import Privacy
from api.cli.answer import Column, Json, console, emit, print_json
from api.cli.connection import connect
from api.cli.listing import list_command
from api.cli.reading import (
    BLOCK_SIZE,
    BlockSize,
    Columns,
    Counting,
    File,
    Format,
    MaxModelLen,
    Model,
    SessionLengths,
    TimeUnit,
    columns_of,
    folder_of,
    kv_bytes_per_token,
    limits_of,
    options_of,
    progress_bars,
    read_file,
)
from api.cli.report_text import line, print_report
from api.cli.traffic_text import print_summary
from api.schemas import WorkloadView

app = typer.Typer(help="Traffic samples.", no_args_is_help=True)
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="requests", path="requests"),
    Column(title="format", path="report.format"),
    Column(title="rejected", path="report.rejected"),
    Column(title="privacy", path="privacy"),
    Column(title="created", path="created_at"),
)
MODES = "; ".join(f"{mode}: {words}" for mode, words in PRIVACY_WORDS.items())
PURGE = "Where a study used it: delete the text and all that was made of it, keep the figures."
Target = Annotated[str | None, typer.Option(help="Target whose tokenizer counts.")]
Mode = Annotated[Privacy, typer.Option(help=f"What is kept of the text. {MODES}.")]
Retention = Annotated[
    int | None, typer.Option(min=1, help="Days until the service purges the sample by itself.")
]


@app.command("inspect")
def inspect(
    file: File,
    *,
    model: Model = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    max_model_len: MaxModelLen = None,
    block_size: BlockSize = BLOCK_SIZE,
    as_json: Json = False,
) -> None:
    """Read a traffic file here, without a service or an engine: what it holds and what it says.

    With a model folder its tokenizer counts: prefix reuse and acceptance of drafts need that.
    """
    options = options_of(columns, time_unit, session_lengths, file_format)
    folder = None if model is None else folder_of(model)
    counting = Counting(
        tokenizer=None if folder is None else folder.counting(),
        block_size=block_size,
        limits=limits_of(folder, max_model_len),
    )
    found = read_file(file, options, counting, quiet=as_json)
    if as_json:
        print_json({"report": plain(found.report), "summary": plain(found.summary)})
        return
    out = console()
    print_report(out, found.report)
    per_token = None if folder is None else kv_bytes_per_token(folder)
    print_summary(out, found.summary, kv_bytes_per_token=per_token)
    if folder is None and found.summary.with_text:
        line(out, "hint", "--model FOLDER counts tokens: prefix reuse and drafts need a tokenizer")


@app.command("upload")
def upload(
    ctx: typer.Context,
    file: File,
    *,
    name: Annotated[str | None, typer.Option(help="Without one, the file's.")] = None,
    target: Target = None,
    privacy: Mode = Privacy.RAW,
    retention_days: Retention = None,
    columns: Columns = None,
    time_unit: TimeUnit = None,
    session_lengths: SessionLengths = None,
    file_format: Format = None,
    as_json: Json = False,
) -> None:
    """Upload a traffic file; `--privacy` says how much of its text the service may keep."""
    with connect(ctx) as client, progress_bars(quiet=as_json) as bars:
        made = client.upload_workload(
            file,
            name=name or file.name.split(".")[0],
            target_id=target,
            privacy=privacy,
            retention_days=retention_days,
            columns=columns_of(columns),
            time_unit=time_unit,
            session_lengths=session_lengths,
            format=file_format,
            progress=bars.of("sending", file.stat().st_size),
        )
    emit(made, COLUMNS, as_json=as_json)


list_command(
    app,
    "Uploaded samples, newest first.",
    COLUMNS,
    page_of=lambda client, limit, cursor: client.workloads(limit=limit, cursor=cursor),
)


@app.command("show")
def show(
    ctx: typer.Context, workload: str, *, target: Target = None, as_json: Json = False
) -> None:
    """One sample: what reading it found, what it says, what its privacy mode cannot support."""
    with connect(ctx) as client:
        found = client.workload(workload)
        summary = found.summary if target is None else client.workload_summary(workload, target)
    if as_json:
        emit(found if target is None else summary, COLUMNS, as_json=as_json)
        return
    emit(found, COLUMNS, as_json=as_json)
    out = console()
    _print_privacy(found)
    print_report(out, found.report)
    print_summary(out, summary)


def _print_privacy(found: WorkloadView) -> None:
    out = console()
    line(out, "privacy", f"{found.privacy}: {PRIVACY_WORDS[found.privacy]}")
    for limit in found.limits:
        line(out, "not possible", limit)
    if found.purged_at is not None:
        line(out, "purged", f"{found.purged_at:%Y-%m-%d %H:%M %Z}: only these figures are left")
    elif found.expires_at is not None:
        line(out, "kept until", f"{found.expires_at:%Y-%m-%d %H:%M %Z}, then purged")
    else:
        line(out, "kept until", "it is deleted by hand")
    for sweep in found.swept:
        when = "not yet" if sweep.at is None else f"{sweep.at:%Y-%m-%d %H:%M %Z}"
        line(out, "", f"{sweep.device} on {sweep.host}: {when}, {sweep.removed:,} removed")


@app.command("delete")
def delete(
    ctx: typer.Context,
    workload: str,
    *,
    purge: Annotated[bool, typer.Option("--purge", help=PURGE)] = False,
    as_json: Json = False,
) -> None:
    """Delete a sample and everything derived from it."""
    done = "purged" if purge else "deleted"
    with connect(ctx) as client:
        client.delete_workload(workload, purge=purge)
    if as_json:
        print_json({done: workload})
    else:
        console().print(f"{done} {workload}")
