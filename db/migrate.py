"""Bring a database to this program's schema; configured in code, so it works installed too."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import SchemaItem

from advisor.errors import Unavailable
from db.address import parsed
from db.session import translated

MIGRATIONS = Path(__file__).with_name("migrations")
OLDEST_SERVER = 150000  # PostgreSQL 15, as `server_version_num` writes it
PROCRASTINATE = "procrastinate_"
UPGRADE_LOCK = 0x726F6F66  # one upgrade at a time per database


def upgrade(url: str, revision: str = "head") -> None:
    """Migrate to `revision`; several processes at once are fine, one does the work."""
    _migrated(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str = "base") -> None:
    """Undo migrations down to `revision`; data in dropped tables is lost."""
    _migrated(url, lambda config: command.downgrade(config, revision))


def current(url: str) -> str | None:
    """The revision a database is at; None before the first migration."""
    with translated(), create_engine(parsed(url), poolclass=NullPool).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head() -> str | None:
    """The newest revision that this program knows."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return ScriptDirectory.from_config(made).get_current_head()


def config(connection: Connection) -> Config:
    """Alembic's configuration for this package, on one connection."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


# The signature is Alembic's.
def compared(  # noqa: PLR0917
    item: SchemaItem,
    name: str | None,
    kind: str,
    reflected: bool,  # noqa: FBT001
    compare_to: SchemaItem | None,
) -> bool:
    """Whether a schema object is ours; procrastinate's come from its own schema file."""
    del item, kind, reflected, compare_to
    return not (name or "").removeprefix("idx_").startswith(PROCRASTINATE)


def check_server(connection: Connection) -> None:
    """Refuse a server that is older than PostgreSQL 15."""
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < OLDEST_SERVER:
        raise Unavailable(f"PostgreSQL {number // 10000} is too old", "use PostgreSQL 15 or newer")


def _migrated(url: str, work: Callable[[Config], None]) -> None:
    engine = create_engine(parsed(url), poolclass=NullPool)
    with translated(), engine.begin() as connection:
        check_server(connection)
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": UPGRADE_LOCK})
        work(config(connection))
