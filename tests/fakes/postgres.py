"""Fixtures for tests that need PostgreSQL: one server a session, a fresh database a test.

With DATABASE_URL set that server is used (its role must be allowed to create databases); else an
embedded one is started. Databases are cloned from a template that was migrated once.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from db.address import libpq, named
from db.embedded import EmbeddedPostgres
from db.migrate import upgrade
from db.session import Sessions, close_sessions, open_sessions

# A test server may lose its data with the machine; it is quicker so.
QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Address of the server's maintenance database."""
    given = os.environ.get("DATABASE_URL")  # noqa: TID251
    if given:
        yield libpq(given)
        return
    # pytest's own folders are 0700, which an unprivileged server could not pass through.
    folder = Path(tempfile.mkdtemp(prefix="rooftune-test-"))
    folder.chmod(0o711)
    try:
        with EmbeddedPostgres(folder / "service", settings=QUICK) as server:
            yield named(server.url, "postgres")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def migrated_template(postgres_server: str) -> Iterator[str]:
    """Name of a database with the whole schema, to clone others from."""
    name = f"template_{uuid.uuid4().hex[:12]}"
    create_database(postgres_server, name)
    upgrade(named(postgres_server, name))
    yield name
    drop_database(postgres_server, name)


@pytest.fixture
def empty_database_url(postgres_server: str) -> Iterator[str]:
    """Address of a database without any schema."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    create_database(postgres_server, name)
    yield named(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture
def database_url(postgres_server: str, migrated_template: str) -> Iterator[str]:
    """Address of a fresh, migrated database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    create_database(postgres_server, name, template=migrated_template)
    yield named(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture
def sessions(database_url: str) -> Iterator[Sessions]:
    """Sessions on a fresh, migrated database."""
    opened = open_sessions(database_url)
    yield opened
    close_sessions(opened)


def create_database(server: str, name: str, *, template: str = "template0") -> None:
    """Create a database on the server."""
    _run(server, f"CREATE DATABASE {name} TEMPLATE {template}")


def drop_database(server: str, name: str) -> None:
    """Drop a database with whoever is still connected to it."""
    _run(server, f"DROP DATABASE {name} WITH (FORCE)")


def _run(server: str, statement: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.encode())
