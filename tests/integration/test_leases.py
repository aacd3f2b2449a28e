"""Device leases: one holder at a time, and an outdated fencing token is refused."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.measurement.records import LoadRole
from advisor.states import StudyState
from db import devices, studies, trials
from db.session import Sessions, transaction
from db.tables import StudyRow
from tests.fakes.rows import AGENT, START, House
from tests.fakes.values import load_point, plan

pytestmark = pytest.mark.postgres
TTL_S = 30.0


def take(session_maker: Sessions, house: House, holder: str, at_s: float) -> int | None:
    with transaction(session_maker) as session:
        return devices.take_lease(
            session,
            house.device.id,
            holder=holder,
            purpose="a test",
            now=START + timedelta(seconds=at_s),
            ttl_s=TTL_S,
        )


@pytest.fixture
def house(sessions: Sessions) -> House:
    with transaction(sessions) as session:
        return House(session)


def test_a_held_device_is_not_given_to_another(sessions: Sessions, house: House) -> None:
    """Until the lease runs out; then the token grows."""
    first = take(sessions, house, "one", 0)
    refused = take(sessions, house, "two", TTL_S - 1)
    second = take(sessions, house, "two", TTL_S)

    assert (first, refused, second) == (1, None, 2)


def test_a_lease_given_back_can_be_taken_at_once(sessions: Sessions, house: House) -> None:
    """Releasing under an outdated token does nothing."""
    token = take(sessions, house, "one", 0)
    assert token is not None
    with transaction(sessions) as session:
        released = devices.release_lease(session, house.device.id, token=token)
        again = devices.release_lease(session, house.device.id, token=token)
    second = take(sessions, house, "two", 1)
    with transaction(sessions) as session:
        stale = devices.release_lease(session, house.device.id, token=token)
        holder = devices.lease(session, house.device.id).holder

    assert (released, again, second, stale, holder) == (True, False, 2, False, "two")


def test_a_dead_holder_is_not_waited_for(sessions: Sessions, house: House) -> None:
    """Whoever knows that the holder is dead takes over under a new token."""
    take(sessions, house, "dead", 0)
    with transaction(sessions) as session:
        token = devices.take_lease(
            session,
            house.device.id,
            holder="heir",
            purpose="a test",
            now=START,
            ttl_s=TTL_S,
            replaces="dead",
        )

    assert token == 2


def test_renewing_works_only_under_the_newest_token(sessions: Sessions, house: House) -> None:
    """The first holder learns that it lost the device; a late but unchallenged one may go on."""
    first = take(sessions, house, "one", 0)
    late = START + timedelta(seconds=2 * TTL_S)
    with transaction(sessions) as session:
        unchallenged = devices.renew_lease(
            session, house.device.id, token=first or 0, now=late, ttl_s=TTL_S
        )
    second = take(sessions, house, "two", 3 * TTL_S)
    with transaction(sessions) as session:
        lost = devices.renew_lease(
            session, house.device.id, token=first or 0, now=late, ttl_s=TTL_S
        )

    assert (first, unchallenged, second, lost) == (1, True, 2, False)


def test_a_stale_holder_cannot_record_a_point(sessions: Sessions, house: House) -> None:
    """An agent that slept through its lease writes nothing under its old token."""
    token = take(sessions, house, "one", 0)
    with transaction(sessions) as session:
        study = house_study(session, house)
        trial = studies.ensure_trial(session, study, plan(), now=START)
        run = trials.start(
            session,
            trial,
            device_id=house.device.id,
            fencing_token=token or 0,
            token="run-1",
            now=START,
            actor=AGENT,
        )
        trials.record_point(
            session, trial=trial, run=run, point=load_point(1), records=None, now=START
        )
    take(sessions, house, "two", TTL_S)
    with pytest.raises(StateConflict, match="device lease"), transaction(sessions) as session:
        trials.record_point(
            session, trial=trial, run=run, point=load_point(16), records=None, now=START
        )
    with transaction(sessions) as session:
        assert trials.measured(session, trial.id) == {(LoadRole.PROBE, 1, 0)}


def test_a_stale_holder_cannot_start_a_trial(sessions: Sessions, house: House) -> None:
    """Neither the trial's state nor a run is written."""
    token = take(sessions, house, "one", 0)
    take(sessions, house, "two", TTL_S)
    with transaction(sessions) as session:
        study = house_study(session, house)
        trial = studies.ensure_trial(session, study, plan(), now=START)
    with pytest.raises(StateConflict, match="device lease"), transaction(sessions) as session:
        trials.start(
            session,
            trial,
            device_id=house.device.id,
            fencing_token=token or 0,
            token="run-1",
            now=START,
            actor=AGENT,
        )
    with transaction(sessions) as session:
        assert [row.state for row in trials.of_study(session, study.id)] == ["queued"]


def test_of_many_takers_at_once_one_wins(sessions: Sessions, house: House) -> None:
    """Two agents on one device: the row lock decides."""
    won: list[int] = []
    gate = threading.Barrier(4)

    def contend(holder: str) -> None:
        gate.wait()
        token = take(sessions, house, holder, 0)
        if token is not None:
            won.append(token)

    threads = [threading.Thread(target=contend, args=(f"agent {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [1]


def house_study(session: Session, house: House) -> StudyRow:
    """A study that is being probed."""
    house.session = session
    study = house.add_study()
    for state in (StudyState.PLANNING, StudyState.PROBING):
        studies.transition(house.session, study, state, actor=AGENT, now=START)
    return study
