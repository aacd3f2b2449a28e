"""Quality passes, roles of load points and options of a study: kept, fenced, found again."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.measurement.records import LoadRole, QualityRecord
from advisor.recommender.evidence import StudyOptions
from advisor.states import StudyState
from db import devices, studies, trials
from db.session import Sessions, transaction
from db.tables import EngineRunRow, TrialRow
from tests.fakes.rows import AGENT, House
from tests.fakes.stored_values import OPTIONS, QUALITY_PASS
from tests.fakes.values import BASELINE, GOAL, load_point, plan

pytestmark = pytest.mark.postgres
TTL_S = 3600.0


def measuring(session: Session, house: House) -> tuple[TrialRow, EngineRunRow]:
    """A trial of a study that is being probed, with a started engine."""
    study = house.add_study()
    for state in (StudyState.PLANNING, StudyState.PROBING):
        studies.transition(session, study, state, actor=AGENT, now=house.now())
    trial = studies.ensure_trial(session, study, plan(), now=house.now())
    token = devices.take_lease(
        session, house.device.id, holder="one", purpose="trial", now=house.now(), ttl_s=TTL_S
    )
    run = trials.start(
        session,
        trial,
        device_id=house.device.id,
        fencing_token=token or 0,
        token="run-1",
        now=house.now(),
        actor=AGENT,
    )
    return trial, run


def test_quality_passes_are_kept_in_order(sessions: Sessions) -> None:
    """Each finished pass is added; the evidence has them all."""
    again = replace(QUALITY_PASS, subset_digest="6f8")
    with transaction(sessions) as session:
        house = House(session)
        trial, run = measuring(session, house)
        before = studies.evidence(session, trial.study_id).trials[0].quality
        for passed in (QUALITY_PASS, again):
            trials.record_quality(session, trial=trial, run=run, passed=passed)
    with transaction(sessions) as session:
        (found,) = studies.evidence(session, trial.study_id).trials

    assert before is None
    assert found.quality == QualityRecord(passes=(QUALITY_PASS, again))


def test_a_stale_holder_cannot_record_quality(sessions: Sessions) -> None:
    """An agent that lost its device adds nothing under its old token."""
    with transaction(sessions) as session:
        house = House(session)
        trial, run = measuring(session, house)
        trials.record_quality(session, trial=trial, run=run, passed=QUALITY_PASS)
        later = house.now() + timedelta(seconds=2 * TTL_S)
        devices.take_lease(
            session, house.device.id, holder="two", purpose="trial", now=later, ttl_s=TTL_S
        )
    with pytest.raises(StateConflict, match="device lease"), transaction(sessions) as session:
        trials.record_quality(session, trial=trial, run=run, passed=QUALITY_PASS)
    with transaction(sessions) as session:
        (found,) = studies.evidence(session, trial.study_id).trials

    assert found.quality == QualityRecord(passes=(QUALITY_PASS,))


def test_one_load_has_a_point_per_role(sessions: Sessions) -> None:
    """Gangs and their control share concurrency and repeat with a probe; none is taken twice."""
    points = [replace(load_point(4, 1), role=role) for role in LoadRole]
    with transaction(sessions) as session:
        house = House(session)
        trial, run = measuring(session, house)
        for point in points:
            trials.record_point(
                session, trial=trial, run=run, point=point, records=None, now=house.now()
            )
        with pytest.raises(StateConflict, match="load point"):
            trials.record_point(
                session, trial=trial, run=run, point=points[-1], records=None, now=house.now()
            )
        measured = trials.measured(session, trial.id)
        (found,) = studies.evidence(session, trial.study_id).trials

    assert measured == {(role, 4, 1) for role in LoadRole}
    assert {point.role for point in found.points} == set(LoadRole)


def test_a_study_keeps_its_options(sessions: Sessions) -> None:
    """Ladder, confirmation and the user's own command; without any, the defaults."""
    with transaction(sessions) as session:
        house = House(session)
        plain = house.add_study()
        new = studies.NewStudy(
            project_id=house.project_id,
            name="with options",
            workload_id=house.workload.id,
            target_id=house.target.id,
            goal=GOAL,
            baseline=BASELINE,
            budget_s=900.0,
            requests_per_point=32,
            seed=7,
            options=OPTIONS,
        )
        actor = house.admin.actor
        made = studies.create(
            session, new, created_by=house.admin.user_id, actor=actor, now=house.now()
        )
    with transaction(sessions) as session:
        found = [studies.evidence(session, row.id).options for row in (plain, made)]

    assert found == [StudyOptions(), OPTIONS]
