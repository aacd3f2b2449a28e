"""`rooftune user` and `rooftune key`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from api.cli.answer import Column, Json, console, emit, print_json
from api.cli.connection import connect

users = typer.Typer(help="People.", no_args_is_help=True)
keys = typer.Typer(help="API keys of people.", no_args_is_help=True)
USER_COLUMNS = (
    Column(title="id", path="id"),
    Column(title="name", path="name"),
    Column(title="role", path="role"),
)


@users.callback()
def _users() -> None:
    """People."""


@users.command("add")
def add_user(
    ctx: typer.Context,
    name: str,
    *,
    role: Annotated[str, typer.Option(help="viewer, submitter, reviewer, operator, admin.")],
    as_json: Json = False,
) -> None:
    """Add a user to your project."""
    with connect(ctx) as client:
        emit(client.create_user(name, role), USER_COLUMNS, as_json=as_json)


@keys.command("create")
def create_key(
    ctx: typer.Context,
    user: str,
    *,
    label: Annotated[str, typer.Option(help="What it is for.")],
    days: Annotated[int | None, typer.Option(help="Until it expires; default: never.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key for a user; it is shown once."""
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with connect(ctx) as client:
        made = client.create_key(user, label, expires_at=expires_at)
    emit(
        made,
        (Column(title="id", path="key.id"), Column(title="key", path="plaintext")),
        as_json=as_json,
    )


@keys.command("revoke")
def revoke_key(ctx: typer.Context, key: str, *, as_json: Json = False) -> None:
    """Make a key useless."""
    with connect(ctx) as client:
        client.revoke_key(key)
    if as_json:
        print_json({"revoked": key})
    else:
        console().print(f"revoked {key}")
