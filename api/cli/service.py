"""`rooftune up` and `rooftune demo`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from api import demo as whole_job
from api.cli.answer import Exit, Json, print_json
from api.cli.connection import options_of
from api.up import Supervisor, run_until_signal


def up(
    ctx: typer.Context,
    *,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.")] = None,
    port_base: Annotated[int | None, typer.Option(help="API; proxy and dashboard follow.")] = None,
    as_json: Json = False,
) -> None:
    """Run the whole service on this machine until it is told to stop (Ctrl-C)."""
    narrator = Console(stderr=True, highlight=False)
    supervisor = Supervisor(
        data_dir=data_dir or options_of(ctx).data_dir,
        port_base=port_base,
        notify=lambda line: narrator.print(line, markup=False),
    )

    def ready() -> None:
        if as_json:
            print_json(supervisor.state())
            return
        narrator.print(f"API        {supervisor.urls.api}/docs")
        narrator.print(f"dashboard  {supervisor.urls.dashboard}")
        narrator.print(f"serving    {supervisor.urls.proxy}/serve/<deployment>/v1")
        narrator.print(f"key        in {supervisor.key_file}")
        narrator.print("Ctrl-C stops everything.")

    run_until_signal(supervisor, ready)


def demo(
    ctx: typer.Context,
    *,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept.")] = None,
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Leave it up.")] = False,
    as_json: Json = False,
) -> None:
    """Do the whole job on the sample traffic: upload, study, review, deploy, ask."""
    code = whole_job.run(
        data_dir=data_dir or options_of(ctx).data_dir,
        keep_running=keep_running,
        as_json=as_json,
        console=Console(stderr=True, highlight=False),
    )
    if code != Exit.OK:
        raise typer.Exit(code)
