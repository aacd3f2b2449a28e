"""Alembic's entry: runs migrations on the connection that `db.migrate` hands over."""

from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from db.address import parsed
from db.migrate import compared
from db.stored import Stored
from db.tables import ALL


def render_item(kind: str, item: object, autogen_context: AutogenContext) -> str | Literal[False]:
    """A revision names the column's storage, not our class: it must run when that is gone."""
    del autogen_context
    if kind == "type" and isinstance(item, Stored):
        return "sa.LargeBinary()"
    return False


def run() -> None:
    """Migrate on the given connection, or on the database named by ``-x url=...``."""
    connection = context.config.attributes.get("connection")
    if connection is None:
        url = context.get_x_argument(as_dictionary=True)["url"]
        with create_engine(parsed(url), poolclass=NullPool).begin() as own:
            _on(own)
    else:
        _on(connection)


def _on(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=ALL,
        render_item=render_item,
        include_object=compared,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
