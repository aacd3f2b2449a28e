"""The `list` command that every noun with pages has."""

from collections.abc import Callable, Sequence
from typing import Any

import typer

from api.cli.answer import Column, Json, emit_page
from api.cli.connection import connect
from api.client import Client, Page


def list_command(
    app: typer.Typer,
    about: str,
    columns: Sequence[Column],
    *,
    page_of: Callable[[Client, int, str | None], Page[Any]],
) -> None:
    """Give `app` the command; `page_of` asks for so many items after a cursor."""

    def listed(
        ctx: typer.Context, *, limit: int = 50, cursor: str | None = None, as_json: Json = False
    ) -> None:
        with connect(ctx) as client:
            emit_page(page_of(client, limit, cursor), columns, as_json=as_json)

    app.command("list", help=about)(listed)
