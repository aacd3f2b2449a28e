"""Answers kept under idempotency keys, pages behind cursors, driver errors at the edge."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import text

from advisor.errors import AlreadyExists, InvalidInput, NotFound, StateConflict, Unavailable
from db import idempotency, studies
from db.idempotency import Answer
from db.identity_tables import ProjectRow
from db.session import Sessions, transaction
from db.tables import WorkloadChunkRow
from tests.fakes.rows import START, House

pytestmark = pytest.mark.postgres


@pytest.fixture
def house(sessions: Sessions) -> House:
    with transaction(sessions) as session:
        return House(session)


def once(sessions: Sessions, house: House, request: str, body: dict[str, object]) -> Answer:
    """What a route does: look the key up, else do the work and keep the answer."""
    user_id, route = house.admin.user_id, "POST /v1/studies"
    with transaction(sessions) as session:
        found = idempotency.find(
            session, user_id=user_id, key="k", route=route, request_digest=request
        )
        if found is None:
            found = Answer(status=202, body=body)
            idempotency.keep(
                session,
                user_id=user_id,
                key="k",
                route=route,
                request_digest=request,
                answer=found,
                now=START,
            )
        return found


def test_a_repeated_request_gets_the_first_answer(sessions: Sessions, house: House) -> None:
    """Under the same key and body; another body under the key is refused."""
    first = once(sessions, house, "r", {"id": 1})
    second = once(sessions, house, "r", {"id": 2})
    with pytest.raises(StateConflict, match="idempotency key"):
        once(sessions, house, "other", {"id": 3})

    assert first == second == Answer(status=202, body={"id": 1})


def test_of_equal_requests_at_once_one_does_the_work(sessions: Sessions, house: House) -> None:
    """The others wait for its commit and get its answer."""
    got: list[Answer] = []
    gate = threading.Barrier(4)

    def ask(number: int) -> None:
        gate.wait()
        got.append(once(sessions, house, "r", {"id": number}))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == 4
    assert all(answer == got[0] for answer in got)


def test_old_answers_are_forgotten(sessions: Sessions, house: House) -> None:
    """After that the key is free again."""
    once(sessions, house, "r", {"id": 1})
    with transaction(sessions) as session:
        kept = idempotency.purge(session, START)
        gone = idempotency.purge(session, START + timedelta(seconds=1))

    assert (kept, gone) == (0, 1)
    assert once(sessions, house, "other", {"id": 2}).body == {"id": 2}


def test_pages_hold_every_row_once_although_rows_are_added(
    sessions: Sessions, house: House
) -> None:
    """Newest first; equal times are told apart by id; a new row moves no page."""
    with transaction(sessions) as session:
        house.session = session
        made = [house.add_study(f"study {number}") for number in range(7)]
        for row in made[2:5]:
            row.created_at = made[2].created_at
        session.flush()
        seen: list[str] = []
        cursor = None
        while True:
            page = studies.page(session, None, limit=3, cursor=cursor)
            seen += [row.name for row in page.items]
            house.add_study("later")
            session.flush()
            cursor = page.next
            if cursor is None:
                break

    assert sorted(seen) == sorted(row.name for row in made)
    assert seen[:2] == ["study 6", "study 5"]


@pytest.mark.parametrize("cursor", ["", "x", "bm90aGluZw", "WyIyMDI2LTAxLTAxIiwgMV0", "é"])
def test_a_made_up_cursor_is_refused(sessions: Sessions, cursor: str) -> None:
    """Whatever it decodes to."""
    with transaction(sessions) as session, pytest.raises(InvalidInput, match="cursor"):
        studies.page(session, None, limit=3, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_page_has_a_sensible_size(sessions: Sessions, limit: int) -> None:
    """One to two hundred rows."""
    with transaction(sessions) as session, pytest.raises(InvalidInput, match="limit"):
        studies.page(session, None, limit=limit, cursor=None)


def test_driver_errors_leave_as_domain_errors(sessions: Sessions, house: House) -> None:
    """Unique, foreign key, bad data, a statement that the server refuses."""
    twin = ProjectRow(id=house.project_id, name="twin", created_at=START)
    orphan = WorkloadChunkRow(workload_id=house.project_id, seq=0, body=b"")
    nul = ProjectRow(id=house.workload.id, name="a\x00b", created_at=START)
    for row, error in ((twin, AlreadyExists), (orphan, NotFound), (nul, InvalidInput)):
        with pytest.raises(error), transaction(sessions) as session:
            session.add(row)
    with pytest.raises(Unavailable, match="SQLSTATE 42P01"), transaction(sessions) as session:
        session.execute(text("SELECT * FROM no_such_table"))
