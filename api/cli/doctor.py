"""`rooftune doctor`: what is right and wrong with this machine and this installation."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from api import doctor as checks
from api.cli.answer import Exit, Json, console, print_json
from api.cli.connection import options_of
from api.codec import json_value
from api.doctor import Finding, Level
from api.settings import UpSettings, inherited_environment

STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def doctor(
    ctx: typer.Context,
    *,
    port_base: Annotated[int | None, typer.Option(help="API; proxy and dashboard follow.")] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and this installation; exit 1 when something fails, warnings allowed."""
    settings = UpSettings()
    if port_base is not None:
        settings = settings.model_copy(update={"port_base": port_base})
    findings = checks.examine(
        data_dir=options_of(ctx).data_dir, settings=settings, environment=inherited_environment()
    )
    ok = all(item.level is not Level.FAIL for item in findings)
    if as_json:
        held = {"ok": ok, "summary": checks.verdict(findings), "checks": json_value(findings)}
        print_json(held)
    else:
        console().print(table(findings))
        console().print(checks.verdict(findings))
    if not ok:
        raise typer.Exit(Exit.NEGATIVE)


def table(findings: Sequence[Finding]) -> Table:
    """A row per check; what to do stands below what was found."""
    made = Table(box=None, pad_edge=False)
    made.add_column("", no_wrap=True)
    made.add_column("check", no_wrap=True)
    made.add_column("found", overflow="fold")
    for item in findings:
        found = Text(item.found)
        if item.remedy:
            found.append(f"\n-> {item.remedy}", style="italic")
        made.add_row(Text(item.level.value, style=STYLES[item.level]), item.name, found)
    return made
