"""Sessions and transactions; the one place where the driver's errors become domain errors."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg.errors
from sqlalchemy import create_engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from advisor.errors import AlreadyExists, InvalidInput, NotFound, RooftuneError, Unavailable
from db.address import parsed

Sessions = sessionmaker[Session]
APPLICATION = "rooftune"


def open_sessions(url: str, *, pool_size: int = 5, application: str = APPLICATION) -> Sessions:
    """Sessions on one pool of connections; rows stay readable after the commit.

    Connects lazily. `close_sessions` gives the connections back.
    """
    engine = create_engine(
        parsed(url),
        pool_size=pool_size,
        max_overflow=2 * pool_size,
        pool_pre_ping=True,
        pool_timeout=10,
        connect_args={"connect_timeout": 10, "application_name": application},
    )
    return sessionmaker(engine, expire_on_commit=False)


def close_sessions(sessions: Sessions) -> None:
    """Close the pool behind `sessions`."""
    engine = sessions.kw["bind"]
    engine.dispose()


@contextmanager
def transaction(sessions: Sessions) -> Iterator[Session]:
    """One transaction: commits at the end, rolls back on any error, translates the driver's."""
    with translated(), sessions.begin() as session:
        yield session


@contextmanager
def translated() -> Iterator[None]:
    """Driver errors inside become domain errors; others pass unchanged."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("no database connection is free", "try again in a moment") from error
    except DBAPIError as error:
        raise domain_error(error) from error


def domain_error(error: DBAPIError) -> RooftuneError:
    """What a driver error means; no value of a row gets into the message."""
    cause = error.orig
    match error:
        case IntegrityError():
            return _integrity(cause)
        case DataError():
            return InvalidInput("value", "the database cannot store it")
        case OperationalError() if isinstance(
            cause, psycopg.errors.SerializationFailure | psycopg.errors.DeadlockDetected
        ):
            return Unavailable("a concurrent change came first", "try again")
        case OperationalError() | InterfaceError():
            return Unavailable("the database does not answer", "start it, or check DATABASE_URL")
        case _:
            state = getattr(cause, "sqlstate", None)
            return Unavailable(f"the database refused (SQLSTATE {state})", "see its log")


def _integrity(cause: BaseException | None) -> RooftuneError:
    diagnosis = cause.diag if isinstance(cause, psycopg.Error) else None
    table = (diagnosis.table_name if diagnosis else None) or "row"
    constraint = (diagnosis.constraint_name if diagnosis else None) or "constraint"
    if isinstance(cause, psycopg.errors.UniqueViolation):
        return AlreadyExists(table, constraint)
    if isinstance(cause, psycopg.errors.ForeignKeyViolation):
        return NotFound(table, constraint)
    return InvalidInput(table, f"breaks {constraint}")
