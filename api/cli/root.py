"""The command tree, and what every ending of a command exits with."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import RooftuneError
from api.cli import (
    compare,
    derive,
    doctor,
    exports,
    forecast,
    measure,
    measurements,
    people,
    purge,
    record,
    service,
    serving,
    simulate,
    studies,
    targets,
    workloads,
)
from api.cli.answer import Exit, fail
from api.cli.connection import Options
from api.settings import CliSettings

app = typer.Typer(
    name="rooftune",
    help="Learn which ways of making LLM generation faster help your traffic.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(service.up)
app.command("demo")(service.demo)
app.command("record")(record.record)
app.command("doctor")(doctor.doctor)
workloads.app.command("purge")(purge.purge)
workloads.app.command("derive")(derive.derive)
app.add_typer(workloads.app, name="workload")
app.command("forecast")(forecast.forecast)
app.command("simulate")(simulate.simulate)
app.command("measure")(measure.measure)
app.command("compare")(compare.compare)
app.add_typer(measurements.app, name="measurement")
app.add_typer(targets.engines, name="engine")
app.add_typer(targets.app, name="target")
app.add_typer(studies.app, name="study")
serving.recommendations.command("export")(exports.export)
app.add_typer(serving.recommendations, name="recommendation")
app.add_typer(serving.reviews, name="review")
app.command("deploy")(serving.deploy)
app.add_typer(serving.deployments, name="deployment")
app.add_typer(people.users, name="user")
app.add_typer(people.keys, name="key")


@app.callback()
def begin(
    ctx: typer.Context,
    *,
    url: Annotated[str | None, typer.Option(help="The service (or ROOFTUNE_URL).")] = None,
    key: Annotated[str | None, typer.Option(help="API key (or ROOFTUNE_API_KEY).")] = None,
    project: Annotated[str | None, typer.Option(help="Project id (or ROOFTUNE_PROJECT).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Data folder of a local service.")] = None,
) -> None:
    """Options that every subcommand understands."""
    ctx.obj = Options(
        url=url, key=key, project=project, data_dir=data_dir or CliSettings().data_dir
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code (0 ok, 1 negative, 2 usage, 3 unavailable, 4 inconclusive)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(args=given, prog_name="rooftune")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.OK
    except RooftuneError as error:
        return fail(error, as_json="--json" in given)
    return Exit.OK
