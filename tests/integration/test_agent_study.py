"""A whole agent process on the planted engine: studies from queue to recommendation."""

import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import select

from advisor.measurement.records import LoadRole, QualityPass
from advisor.recommender.evidence import StudyOptions
from advisor.states import FailureKind, RunState, StudyState, TrialState
from db import devices, events, recommendations, runs, studies, trials
from db.identity import utc_now
from db.session import Sessions, transaction
from db.tables import LoadPointRow, RequestRecordsRow, TrialRow, WorkloadChunkRow
from probes.load.records import records_from_parquet
from tests.fakes.agent_site import AgentSite

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
OVER = {StudyState.DONE, StudyState.INCONCLUSIVE, StudyState.FAILED, StudyState.CANCELLED}
# On a busy machine the planted effects may drown in noise: then the study says so and is over.
ADVISED = {StudyState.DONE, StudyState.INCONCLUSIVE}
BATCHING = "continuous_batching"
PRECISION = "half_precision"
WIDE = [PRECISION, "continuous_over_static"]
OTHERS = (LoadRole.PROBE, LoadRole.STATIC, LoadRole.CONTROL)
# 32-bit arithmetic is twice as fast here and answers a little differently.
FLIPPING = {
    "base_step_s": 0.01,
    "dtype_factors": {"float32": 0.5},
    "flip_rates": {"float32": 0.02},
}


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """A host with a planted engine; its agents are ended afterwards."""
    place = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield place
    place.close()


def trials_of(site: AgentSite, study_id: uuid.UUID) -> dict[str, TrialRow]:
    with transaction(site.sessions) as session:
        return {trial.key: trial for trial in trials.of_study(session, study_id)}


def points_of(site: AgentSite, study_id: uuid.UUID) -> list[LoadPointRow]:
    with transaction(site.sessions) as session:
        found = trials.points(session, study_id)
    return [point for rows in found.values() for point in rows]


def kinds_of(site: AgentSite, study_id: uuid.UUID) -> Counter[str]:
    with transaction(site.sessions) as session:
        told = events.after(session, "study", str(study_id), 0, limit=5000)
    return Counter(event.kind for event in told)


def measured_how_often(points: list[LoadPointRow]) -> Counter[tuple[object, ...]]:
    """How many points there are of each load of each trial."""
    return Counter((p.trial_id, p.role, p.concurrency, p.repeat) for p in points)


def quality_of(site: AgentSite, study_id: uuid.UUID) -> tuple[QualityPass, ...]:
    """The baseline's finished quality passes."""
    baseline = trials_of(site, study_id).get("baseline")
    return () if baseline is None or baseline.quality is None else baseline.quality.passes


def wait_over(site: AgentSite, study_id: uuid.UUID) -> str:
    site.wait("the study is over", lambda: site.study_state(study_id) in OVER, 240)
    return site.study_state(study_id)


def wait_points(site: AgentSite, study_id: uuid.UUID, count: int) -> list[LoadPointRow]:
    site.wait(f"{count} points", lambda: len(points_of(site, study_id)) >= count)
    return points_of(site, study_id)


def test_a_study_ends_with_a_recommendation_that_rests_on_its_own_records(
    site: AgentSite,
) -> None:
    """Queue, plan, probe, analyse; records, progress and facts are kept, no engine is left."""
    agent = site.start()
    study_id = site.study(site.target(), site.workload())

    state = wait_over(site, study_id)
    code = agent.stop()
    with transaction(site.sessions) as session:
        study = studies.one(session, study_id, None)
        advice = recommendations.of_study(session, study_id)
        bodies = list(session.scalars(select(RequestRecordsRow.body)))
        logs = [runs.log(session, run.id) for run in site.runs()]

    assert state in ADVISED, study.error
    assert code == 0
    assert advice is not None
    assert advice.hash == advice.body.hash
    assert advice.body.subset is not None
    assert 0 <= advice.body.subset.total < 1
    assert advice.state == "proposed"
    assert {trial.state for trial in trials_of(site, study_id).values()} == {TrialState.DONE}
    points = points_of(site, study_id)
    assert len(bodies) == len(points)
    assert sorted(len(records_from_parquet(body)) for body in bodies) == sorted(
        point.point.requests for point in points
    )
    assert study.progress == 1.0
    assert kinds_of(site, study_id)["progress"] >= len(points)
    assert all(run.state == RunState.STOPPED and run.facts for run in site.runs())
    assert all(logs)
    assert site.engines_left() == 0


def test_a_killed_agent_loses_no_finished_point_and_measures_none_twice(site: AgentSite) -> None:
    """kill -9 in the middle, restart: the study finishes; the points of before stand."""
    first = site.start()
    study_id = site.study(site.target(), site.workload(), [BATCHING])
    before = wait_points(site, study_id, 2)
    first.kill()
    second = site.start()

    state = wait_over(site, study_id)
    second.stop()
    points = points_of(site, study_id)
    with transaction(site.sessions) as session:
        records = list(session.scalars(select(RequestRecordsRow.load_point_id)))

    assert state in ADVISED
    assert {point.id for point in before} <= {point.id for point in points}
    assert set(measured_how_often(points).values()) == {1}
    assert kinds_of(site, study_id)["point"] == len(points)
    assert sorted(records) == sorted(point.id for point in points)
    assert FailureKind.AGENT_LOST in {run.failure_kind for run in site.runs()}
    assert site.engines_left() == 0


def sent_by_role(site: AgentSite, study_id: uuid.UUID) -> dict[str, set[str]]:
    """Ids of the requests that the loads of each role sent."""
    sent: dict[str, set[str]] = {}
    for point in points_of(site, study_id):
        with transaction(site.sessions) as session:
            body = trials.request_records(session, point.id)
        records = records_from_parquet(body or b"")
        sent.setdefault(point.role, set()).update(record.request_id for record in records)
    return sent


def test_a_wide_study_measures_ladder_gangs_answers_and_a_confirmation(site: AgentSite) -> None:
    """The confirmation's requests were seen by no other load; gangs and control share theirs."""
    site.truth |= FLIPPING
    site.start()
    study_id = site.study(site.target(), site.workload(), WIDE, StudyOptions(ladder_top=4))

    state = wait_over(site, study_id)
    found = trials_of(site, study_id)
    sent = sent_by_role(site, study_id)
    points = points_of(site, study_id)

    assert state in ADVISED
    assert {"baseline", PRECISION, "confirm-a1", "confirm-b", "confirm-a2"} <= set(found)
    assert {trial.state for trial in found.values()} == {TrialState.DONE}
    assert set(sent) == {role.value for role in LoadRole}
    assert not any(sent["held out"] & sent[role.value] for role in OTHERS)
    assert sent["static"] == sent["control"]
    assert {p.concurrency for p in points if p.role == "probe"} >= {1, 2, 4}
    assert len(quality_of(site, study_id)) == 2
    variant = found[PRECISION].quality
    assert variant is not None
    assert len(variant.passes) == 1
    assert any(answer.forced != answer.greedy for answer in variant.passes[0].answers)
    assert kinds_of(site, study_id)["quality"] > 0


def test_a_killed_agent_repeats_no_finished_quality_pass(site: AgentSite) -> None:
    """kill -9 after the baseline's first pass: it stands, and so does every load of every role."""
    site.truth |= {**FLIPPING, "base_step_s": 0.03}
    first = site.start()
    study_id = site.study(site.target(), site.workload(), WIDE)
    site.wait("a quality pass is finished", lambda: bool(quality_of(site, study_id)))
    first.kill()
    passed, points = quality_of(site, study_id), points_of(site, study_id)
    second = site.start()

    state = wait_over(site, study_id)
    second.stop()
    after = points_of(site, study_id)
    answered = quality_of(site, study_id)

    assert state in ADVISED
    assert {point.role for point in points} == {"probe", "static", "control"}
    assert len(passed) <= len(answered) == 2
    assert answered[: len(passed)] == passed
    assert set(measured_how_often(after).values()) == {1}
    assert {point.id for point in points} <= {point.id for point in after}


def test_a_study_that_can_keep_nothing_back_goes_without_a_confirmation(site: AgentSite) -> None:
    """One conversation cannot be split: the trials are skipped with the reason."""
    site.truth |= FLIPPING
    site.start()
    workload_id = site.workload(conversation="the only one")
    study_id = site.study(site.target(), workload_id, [PRECISION], StudyOptions(ladder_top=1))

    state = wait_over(site, study_id)
    found = trials_of(site, study_id)
    skipped = [trial for key, trial in found.items() if key.startswith("confirm")]

    assert state in ADVISED
    assert {trial.state for trial in skipped} == {TrialState.SKIPPED}
    assert "only 0 requests could be kept back" in str(skipped[0].reason)
    assert {found["baseline"].state, found[PRECISION].state} == {TrialState.DONE}


def test_a_stopped_agent_gives_its_trial_and_its_lease_back(site: AgentSite) -> None:
    """SIGTERM in the middle of a trial: clean exit, the trial waits with its finished points."""
    agent = site.start()
    study_id = site.study(site.target(), site.workload(), [BATCHING])
    wait_points(site, study_id, 1)

    code = agent.stop()
    with transaction(site.sessions) as session:
        lease = devices.lease(session, site.device().id)
    measuring = [t for t in trials_of(site, study_id).values() if t.state == TrialState.MEASURING]

    assert code == 0
    assert site.study_state(study_id) == StudyState.PROBING
    assert measuring == []
    assert lease.holder is None
    assert {run.state for run in site.runs()} == {RunState.STOPPED}
    assert site.engines_left() == 0


def test_an_engine_that_cannot_start_fails_its_trial_and_the_study_goes_on(
    site: AgentSite,
) -> None:
    """The kind is named, the log is kept, the other trials are measured."""
    site.truth["failures"] = [
        {"when": {"max_num_seqs": "1"}, "log": ["RuntimeError: not enough memory: MemoryError"]}
    ]
    site.start()
    study_id = site.study(site.target(), site.workload(), [BATCHING, "prefix_caching"])

    state = wait_over(site, study_id)
    found = trials_of(site, study_id)
    failed = found.pop(BATCHING)
    with transaction(site.sessions) as session:
        attempts = runs.of_trial(session, failed.id)
        log = runs.log(session, attempts[0].id)

    assert state in ADVISED
    assert failed.state == TrialState.FAILED
    assert failed.failure_kind == FailureKind.OUT_OF_MEMORY_LOADING
    assert len(attempts) == 1
    assert log is not None
    assert {trial.state for trial in found.values()} == {TrialState.DONE}


def test_an_engine_that_dies_is_started_once_more_for_the_missing_points(
    site: AgentSite,
) -> None:
    """Warm-up and one point fit into its life, so the second start measures what misses."""
    site.truth["die_after_requests"] = 4 + 12 + 6
    site.start()
    study_id = site.study(site.target(), site.workload(), [BATCHING])

    wait_over(site, study_id)
    baseline = trials_of(site, study_id)["baseline"]
    with transaction(site.sessions) as session:
        attempts = runs.of_trial(session, baseline.id)
    measured_by = {
        point.engine_run_id for point in points_of(site, study_id) if point.trial_id == baseline.id
    }

    assert [run.attempt for run in attempts] == [1, 2]
    assert attempts[0].failure_kind == FailureKind.DIED
    assert measured_by == {run.id for run in attempts}


def test_two_studies_on_one_device_do_not_overlap(site: AgentSite) -> None:
    """One device holds one engine: the intervals of all runs are disjoint."""
    site.start()
    target_id, workload_id = site.target(), site.workload()
    both = [site.study(target_id, workload_id, [BATCHING]) for _ in range(2)]

    states = [wait_over(site, study_id) for study_id in both]
    found = site.runs()

    assert set(states) <= ADVISED
    assert len({run.trial_id for run in found}) == sum(len(trials_of(site, s)) for s in both)
    for earlier, later in pairwise(found):
        assert earlier.ended_at is not None
        assert earlier.ended_at <= later.created_at


def test_a_cancelled_study_ends_its_running_trial(site: AgentSite) -> None:
    """Cancel while a point is measured: the engine goes, the study is cancelled."""
    site.truth["base_step_s"] = 0.05
    site.start()
    study_id = site.study(site.target(), site.workload(), [BATCHING])
    site.wait("an engine is ready", lambda: any(r.state == RunState.READY for r in site.runs()))
    with transaction(site.sessions) as session:
        studies.request_cancel(session, study_id, None, actor=site.who.actor, now=utc_now())

    state = wait_over(site, study_id)

    assert state == StudyState.CANCELLED
    assert {t.state for t in trials_of(site, study_id).values()} == {TrialState.SKIPPED}
    assert site.engines_left() == 0


def test_a_study_that_breaks_is_marked_failed_and_the_agent_goes_on(site: AgentSite) -> None:
    """A foreign error's name stands in the row, its traceback in the log, never its message."""
    agent = site.start()
    target_id, workload_id = site.target(), site.workload()
    with transaction(site.sessions) as session:
        chunk = session.scalars(select(WorkloadChunkRow)).one()
        chunk.body = b"a secret prompt, no Parquet"
    study_id = site.study(target_id, workload_id, [BATCHING])

    state = wait_over(site, study_id)
    later = site.target()
    site.wait("another target is ready", lambda: site.target_row(later).state == "ready")
    with transaction(site.sessions) as session:
        error = studies.one(session, study_id, None).error

    assert state == StudyState.FAILED
    assert error == "ArrowInvalid"
    assert "Traceback" in agent.log.read_text()
    assert "secret prompt" not in agent.log.read_text()
