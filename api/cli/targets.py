"""`rooftune engine` and `rooftune target`."""

import time
from typing import Annotated

import typer

from advisor.serving import FunctionalSettings
from advisor.states import TargetState
from api.cli.answer import Column, Exit, Json, emit, emit_page
from api.cli.connection import connect

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
COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="model", path="model"),
    Column(title="device", path="device_class"),
    Column(title="state", path="state"),
    Column(title="error", path="error"),
)


@engines.command("list")
def list_engines(ctx: typer.Context, *, as_json: Json = False) -> None:
    """Engines that agents registered."""
    with connect(ctx) as client:
        emit_page(client.engines(), ENGINE_COLUMNS, as_json=as_json)


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


@app.command("list")
def list_targets(
    ctx: typer.Context,
    *,
    limit: int = 50,
    cursor: str | None = None,
    as_json: Json = False,
) -> None:
    """Targets, newest first."""
    with connect(ctx) as client:
        emit_page(client.targets(limit=limit, cursor=cursor), COLUMNS, as_json=as_json)
