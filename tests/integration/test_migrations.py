"""The schema that the migrations make is the schema of the tables."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool

from advisor.errors import InvalidInput, Unavailable
from advisor.measurement.records import LoadRole
from advisor.recommender.evidence import StudyOptions
from db import recommendations, studies, trials
from db.address import parsed
from db.migrate import compared, current, downgrade, head, upgrade
from db.session import close_sessions, open_sessions, transaction
from db.tables import ALL
from tests.fakes.first_rows import furnish, identifier
from tests.fakes.values import GOAL, load_point, recommendation

pytestmark = pytest.mark.postgres


def differences(url: str) -> list[object]:
    """What autogenerate would put into a new revision."""
    options = {"compare_type": True, "compare_server_default": True, "include_object": compared}
    with create_engine(parsed(url), poolclass=NullPool).connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, ALL))


def shape(url: str) -> dict[str, list[str]]:
    """Columns, keys and indexes of every table of ours, as text."""
    found = {}
    with create_engine(parsed(url), poolclass=NullPool).connect() as connection:
        inspector = inspect(connection)
        for table in sorted(set(ALL.tables) & set(inspector.get_table_names())):
            columns = [
                f"{column['name']} {column['type']!r} {column['nullable']}"
                for column in inspector.get_columns(table)
            ]
            keys = [str(inspector.get_pk_constraint(table))]
            keys += sorted(str(key) for key in inspector.get_foreign_keys(table))
            keys += sorted(str(key) for key in inspector.get_unique_constraints(table))
            keys += sorted(str(key) for key in inspector.get_check_constraints(table))
            keys += sorted(str(key) for key in inspector.get_indexes(table))
            found[table] = sorted(columns) + keys
    return found


def furnished(url: str) -> None:
    """One row of every noun."""
    with create_engine(parsed(url), poolclass=NullPool).begin() as connection:
        furnish(connection)


def tables(url: str) -> set[str]:
    with create_engine(parsed(url), poolclass=NullPool).connect() as connection:
        return set(inspect(connection).get_table_names())


def test_nothing_is_left_to_migrate(database_url: str) -> None:
    """`alembic check`: the tables ask for nothing that the migrations did not make."""

    assert differences(database_url) == []


def test_upgrading_equals_creating(database_url: str, empty_database_url: str) -> None:
    """The migrated schema and `create_all` agree on columns, keys, checks and indexes."""
    engine = create_engine(parsed(empty_database_url), poolclass=NullPool)
    with engine.begin() as connection:
        ALL.create_all(connection)

    assert shape(database_url) == shape(empty_database_url)


def test_an_empty_database_goes_up_down_and_up_again(empty_database_url: str) -> None:
    """Downgrading leaves nothing of ours and nothing of procrastinate."""
    assert current(empty_database_url) is None
    upgrade(empty_database_url)
    first = tables(empty_database_url)
    downgrade(empty_database_url)
    left = tables(empty_database_url)
    upgrade(empty_database_url)

    assert left == {"alembic_version"}
    assert tables(empty_database_url) == first
    assert first >= set(ALL.tables)
    assert current(empty_database_url) == head()


def test_rows_of_the_first_version_survive(empty_database_url: str) -> None:
    """Every noun is read as it was meant: a study without a ladder, points of the study's loads."""
    upgrade(empty_database_url, "0001")
    furnished(empty_database_url)
    upgrade(empty_database_url)
    sessions = open_sessions(empty_database_url)
    with transaction(sessions) as session:
        found = studies.evidence(session, identifier("studies"))
        measured = trials.measured(session, identifier("trials"))
        bundle = recommendations.one(session, identifier("recommendations"), None).body
        approved = recommendations.approved_config(
            session, identifier("recommendations"), None, bundle.best.config_hash
        )
    close_sessions(sessions)

    assert found.options == StudyOptions(ladder_top=1, confirm=False)
    assert found.goal == GOAL
    assert found.trials[0].points == (load_point(),)
    assert found.trials[0].quality is None
    assert measured == {(LoadRole.PROBE, 16, 1)}
    assert (bundle, approved) == (recommendation(), bundle.best.config)


def test_rows_survive_the_way_back_without_what_the_old_schema_cannot_hold(
    empty_database_url: str,
) -> None:
    """Down and up again: the first version's point stays, one of a new role goes."""
    upgrade(empty_database_url, "0001")
    furnished(empty_database_url)
    upgrade(empty_database_url)
    copied = (
        "INSERT INTO load_points"
        " (id, trial_id, engine_run_id, role, concurrency, repeat, point, created_at)"
        " SELECT gen_random_uuid(), trial_id, engine_run_id, 'static', concurrency, repeat, point,"
        " created_at FROM load_points"
    )
    roles = "SELECT role FROM load_points ORDER BY role"
    with create_engine(parsed(empty_database_url), poolclass=NullPool).begin() as connection:
        connection.execute(text(copied))
        before = list(connection.execute(text(roles)).scalars())
    downgrade(empty_database_url, "0001")
    upgrade(empty_database_url)
    with create_engine(parsed(empty_database_url), poolclass=NullPool).connect() as connection:
        after = list(connection.execute(text(roles)).scalars())

    assert (before, after) == (["probe", "static"], ["probe"])


def test_downgrading_one_step_is_the_schema_of_before(
    empty_database_url: str, database_url: str
) -> None:
    """0003 and 0002 undone are 0001, in columns, keys and indexes."""
    upgrade(empty_database_url, "0001")
    first = shape(empty_database_url)
    downgrade(database_url, "0001")

    assert shape(database_url) == first


def test_token_columns_survive_both_ways(empty_database_url: str) -> None:
    """Up, they are one chunk; down, one chunk is what it was and anything else goes."""
    upgrade(empty_database_url, "0001")
    furnished(empty_database_url)
    place = {"id": identifier("workloads")}
    older = (
        "INSERT INTO token_columns SELECT id, :name, 'c', summary, 'ids' FROM workloads"
        " WHERE id = :id"
    )
    chunk = "INSERT INTO token_chunks VALUES (:id, 'two', 'c', 1, 'more')"
    with create_engine(parsed(empty_database_url), poolclass=NullPool).begin() as connection:
        for name in ("one", "two"):
            connection.execute(text(older), {**place, "name": name})
    upgrade(empty_database_url)
    with create_engine(parsed(empty_database_url), poolclass=NullPool).begin() as connection:
        found = connection.execute(text("SELECT privacy, expires_at, purged_at FROM workloads"))
        kept = tuple(found.one())
        bodies = list(connection.execute(text("SELECT body FROM token_chunks")).scalars())
        connection.execute(text(chunk), place)
    downgrade(empty_database_url, "0002")
    with create_engine(parsed(empty_database_url), poolclass=NullPool).connect() as connection:
        left = connection.execute(text("SELECT tokenizer_digest, body FROM token_columns"))
        remaining = [tuple(row) for row in left]

    assert kept == ("raw", None, None)
    assert bodies == [b"ids", b"ids"]
    assert remaining == [("one", b"ids")]


def test_downgrading_leaves_no_type_or_function(empty_database_url: str) -> None:
    """The queue's own types and functions go too."""
    upgrade(empty_database_url)
    downgrade(empty_database_url)
    query = "SELECT count(*) FROM {} WHERE {} LIKE 'procrastinate%'"
    with create_engine(parsed(empty_database_url), poolclass=NullPool).connect() as connection:
        types = connection.execute(text(query.format("pg_type", "typname"))).scalar_one()
        functions = connection.execute(text(query.format("pg_proc", "proname"))).scalar_one()

    assert (types, functions) == (0, 0)


def test_upgrading_twice_changes_nothing(database_url: str) -> None:
    """A second start finds the schema as it should be."""
    before = shape(database_url)
    upgrade(database_url)

    assert shape(database_url) == before


@pytest.mark.parametrize("url", ["mysql://localhost/x", "nonsense", "sqlite:///x.db"])
def test_only_postgresql_is_taken(url: str) -> None:
    """Another scheme is refused with a name for what is wrong, before any connection."""
    with pytest.raises(InvalidInput, match="database url"):
        upgrade(url)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    """No driver error passes the edge."""
    with pytest.raises(Unavailable, match="does not answer"):
        current("postgresql://nobody@127.0.0.1:1/none")
