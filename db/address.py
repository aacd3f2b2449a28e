"""One database address in the two forms that are needed."""

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from advisor.errors import InvalidInput

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")


def parsed(url: str) -> URL:
    """A ``postgresql://`` address for SQLAlchemy with psycopg; another scheme is refused."""
    try:
        address = make_url(url)
    except ArgumentError:
        # The text is not quoted: it may hold a password.
        raise InvalidInput("database url", "is not a database address") from None
    if address.drivername not in SCHEMES:
        raise InvalidInput("database url", f"{address.drivername} is not {SCHEMES[0]}")
    return address.set(drivername="postgresql+psycopg")


def libpq(url: str) -> str:
    """The same address as libpq and psycopg read it."""
    return parsed(url).set(drivername="postgresql").render_as_string(hide_password=False)


def named(url: str, database: str) -> str:
    """The same server, another database."""
    changed = parsed(url).set(drivername="postgresql", database=database)
    return changed.render_as_string(hide_password=False)
