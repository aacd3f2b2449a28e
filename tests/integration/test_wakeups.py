"""Wake-ups and events: told when the transaction commits, lost by no restart."""

import queue
import uuid
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from advisor.errors import InvalidInput
from db import events
from db.events import EventListener
from db.session import Sessions, transaction
from db.wakeups import TICK, WakeupListener, wake
from tests.fakes.rows import START, House

pytestmark = pytest.mark.postgres
SOON_S = 20


class Heard(queue.Queue[str]):
    """What a listener was told; ticks are left out."""

    def told(self, *words: str) -> None:
        if words != (TICK,):
            self.put(":".join(words))

    def next(self) -> str:
        return self.get(timeout=SOON_S)


@pytest.fixture
def heard(database_url: str) -> Iterator[Heard]:
    """An agent's listener on topic `mine`."""
    found = Heard()
    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(found.told)
    yield found
    listener.stop()


def jobs(sessions: Sessions) -> int:
    with transaction(sessions) as session:
        query = text("SELECT count(*) FROM procrastinate_jobs WHERE queue_name NOT LIKE 'tick:%'")
        return int(session.execute(query).scalar_one())


def test_a_committed_wake_up_arrives_and_leaves_no_row(sessions: Sessions, heard: Heard) -> None:
    """Finished jobs are deleted; other topics are not heard."""
    with transaction(sessions) as session:
        wake(session, "mine")
    first = heard.next()
    with transaction(sessions) as session:
        wake(session, "mine")
    second = heard.next()
    with transaction(sessions) as session:
        wake(session, "somebody else's")

    assert (first, second) == ("mine", "mine")
    with pytest.raises(queue.Empty):
        heard.get(timeout=0.3)
    assert jobs(sessions) == 1  # the other topic's waits for its own listener


def test_a_rolled_back_wake_up_never_was(sessions: Sessions) -> None:
    """It is part of the caller's transaction."""
    with pytest.raises(InvalidInput), transaction(sessions) as session:
        wake_and_fail(session)

    assert jobs(sessions) == 0


def wake_and_fail(session: Session) -> None:
    wake(session, "mine")
    raise InvalidInput("test", "fails after the wake-up")


def test_a_wake_up_waits_for_a_listener_that_comes_later(
    sessions: Sessions, database_url: str
) -> None:
    """Durable: no agent was there when it was sent."""
    with transaction(sessions) as session:
        wake(session, "mine")
    found = Heard()
    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(found.told)
    word = found.next()
    listener.stop()

    assert word == "mine"


def test_a_wake_up_of_a_killed_worker_is_taken_back(sessions: Sessions, database_url: str) -> None:
    """A job that a worker had in hand when it died is done by the next one."""
    with transaction(sessions) as session:
        wake(session, "mine")
        taken = text("UPDATE procrastinate_jobs SET status = 'doing', worker_id = NULL")
        session.execute(taken)
    found = Heard()
    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(found.told)
    word = found.next()
    listener.stop()

    assert word == "mine"


def test_a_call_that_raises_is_tried_again(sessions: Sessions, database_url: str) -> None:
    """The job is not lost with one failed attempt."""
    found = Heard()
    attempts: list[str] = []

    def stumble(topic: str) -> None:
        if topic == TICK:
            return
        attempts.append(topic)
        if len(attempts) == 1:
            raise InvalidInput("test", "stumbles once")
        found.told(topic)

    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(stumble)
    with transaction(sessions) as session:
        wake(session, "mine")
    word = found.next()
    listener.stop()

    assert (word, attempts) == ("mine", ["mine", "mine"])


def test_a_listener_ticks_by_itself(sessions: Sessions, database_url: str) -> None:
    """Level-triggered: the last whole minute's tick comes at the start, without any wake-up."""
    ticks: queue.Queue[str] = queue.Queue()
    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(ticks.put)
    word = ticks.get(timeout=90)
    listener.stop()

    assert word == TICK
    assert jobs(sessions) == 0


def test_stopping_at_once_leaves_no_thread(database_url: str) -> None:
    """`stop` right after `start` returns, whatever the listener had come to."""
    listener = WakeupListener(database_url, ["mine"], name="here/cpu0")
    listener.start(lambda _: None)
    listener.stop()

    assert listener.ended


def test_listeners_hear_of_events_after_the_commit(sessions: Sessions, database_url: str) -> None:
    """The reader finds what it was told of."""
    found = Heard()
    listener = EventListener(database_url)
    listener.start(found.told)
    noun_id = str(uuid.uuid4())
    for _ in range(200):  # the listener may not be there yet: what it missed is not repeated
        with transaction(sessions) as session:
            made = events.append(
                session, noun="study", noun_id=noun_id, kind="point", body={"n": 1}, now=START
            )
        try:
            word = found.get(timeout=0.2)
            break
        except queue.Empty:
            continue
    else:
        pytest.fail("nothing was heard")
    listener.stop()
    with transaction(sessions) as session:
        (newest,) = events.after(session, "study", noun_id, made.id - 1)

    assert word == f"study:{noun_id}"
    assert (newest.kind, newest.body) == ("point", {"n": 1})


def test_a_new_study_wakes_its_device_class(sessions: Sessions) -> None:
    """Whoever creates work does not have to remember to wake somebody."""
    with transaction(sessions) as session:
        house = House(session)
    before = jobs(sessions)
    with transaction(sessions) as session:
        house.session = session
        house.add_study()

    assert jobs(sessions) == before + 1
