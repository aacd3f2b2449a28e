"""`rooftune doctor` on a database that the user gave: its schema against this program's."""

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from api.doctor import Level, given_database
from db.address import parsed

pytestmark = pytest.mark.postgres


def test_a_migrated_database_passes_and_an_empty_one_warns(
    database_url: str, empty_database_url: str
) -> None:
    """The first start makes the tables."""
    assert given_database(database_url).level is Level.OK
    assert given_database(empty_database_url).level is Level.WARN


def test_a_database_at_another_revision_fails(database_url: str) -> None:
    """As one that a newer program has migrated."""
    with create_engine(parsed(database_url), poolclass=NullPool).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    found = given_database(database_url)

    assert found.level is Level.FAIL
    assert "9999" in found.found


def test_a_database_that_is_not_there_fails(database_url: str) -> None:
    """The server answers, the database does not exist; no password is in the message."""
    absent = parsed(database_url).set(drivername="postgresql", database="no_such_database")

    found = given_database(absent.render_as_string(hide_password=False))

    assert found.level is Level.FAIL
    assert str(absent.password) not in found.found + found.remedy
