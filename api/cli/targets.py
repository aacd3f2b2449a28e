"""`rooftune engine` and `rooftune target`."""

import time
from typing import Annotated

import typer

from advisor.serving import FunctionalSettings
from advisor.states import TargetState
from api.cli.answer import Column, Exit, Json, emit, emit_page
from api.cli.connection import connect
from api.cli.listing import list_command
from api.schemas import Page

engines = typer.Typer(help="Installed engines.", no_args_is_help=True)
app = typer.Typer(help="Models on a device with an engine.", no_args_is_help=True)
LOOK_S = 1.0
ENGINE_COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="version", path="version"),
    Column(title="build", path="build"),
    Column(title="host", path="host"),
)
FAILURE_COLUMNS = (
    Column(title="at", path="failed_at"),
    Column(title="kind", path="kind"),
    Column(title="setting", path="setting"),
    Column(title="bound", path="bound"),
    Column(title="detail", path="detail"),
)
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="model", path="model"),
    Column(title="device", path="device_class"),
    Column(title="state", path="state"),
    Column(title="error", path="error"),
)


list_command(
    engines,
    "Engines that agents registered.",
    ENGINE_COLUMNS,
    page_of=lambda client, limit, cursor: client.engines(limit=limit, cursor=cursor),
)
list_command(
    app,
    "Targets, newest first.",
    COLUMNS,
    page_of=lambda client, limit, cursor: client.targets(limit=limit, cursor=cursor),
)


@engines.command("failures")
def failures(ctx: typer.Context, engine: str, *, as_json: Json = False) -> None:
    """Show what an engine failed at; no study starts it with that again."""
    with connect(ctx) as client:
        found = client.engine_failures(engine)
    emit_page(Page(items=found, next=None), FAILURE_COLUMNS, as_json=as_json)


@engines.command("forget")
def forget(ctx: typer.Context, engine: str) -> None:
    """Forget what an engine failed at: the next study tries it again."""
    with connect(ctx) as client:
        client.forget_failures(engine)


@app.command("add")
def add(
    ctx: typer.Context,
    name: str,
    *,
    model: Annotated[str, typer.Option(help="Path under the allow-list, or demo.")],
    engine: Annotated[str | None, typer.Option(help="Engine id; without one the newest.")] = None,
    device_class: Annotated[str | None, typer.Option(help="Needed if there are several.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Kept in every trial.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it was inspected.")] = False,
    as_json: Json = False,
) -> None:
    """Have an agent inspect a model."""
    with connect(ctx) as client:
        made = client.create_target(
            name=name,
            model=model,
            engine_id=engine,
            device_class=device_class,
            functional=FunctionalSettings(max_model_len=max_model_len),
        )
        while wait and made.state is TargetState.PENDING:
            time.sleep(LOOK_S)
            made = client.target(made.id)
    emit(made, COLUMNS, as_json=as_json)
    if made.state is TargetState.FAILED:
        raise typer.Exit(Exit.NEGATIVE)
