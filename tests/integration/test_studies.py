"""Studies and trials: who works on what, what is measured, and what is told about it."""

import threading
import uuid

import pytest
from sqlalchemy.orm import Session

from advisor.errors import AlreadyExists, InvalidInput, NotFound, StateConflict, Unavailable
from advisor.measurement.records import LoadRole
from advisor.states import RunState, StudyState, TrialState
from db import audit, devices, events, recommendations, runs, studies, targets, trials, workloads
from db.session import Sessions, transaction
from db.tables import EngineRunRow, StudyRow, TrialRow
from tests.fakes.rows import AGENT, DEVICE_CLASS, House
from tests.fakes.values import (
    BASELINE,
    DEVICE,
    DRAFTING,
    FACTS,
    GOAL,
    MODEL,
    SUMMARY,
    load_point,
    plan,
    recommendation,
)

pytestmark = pytest.mark.postgres


def move(session: Session, house: House, study: StudyRow, *states: StudyState) -> None:
    for state in states:
        studies.transition(session, study, state, actor=AGENT, now=house.now())


def fail_after(session: Session, house: House, study: StudyRow) -> None:
    move(session, house, study, StudyState.PROBING)
    raise InvalidInput("test", "fails after the change")


def begin(session: Session, house: House, trial: TrialRow, token: str) -> EngineRunRow:
    lease = devices.take_lease(
        session, house.device.id, holder="agent", purpose="trial", now=house.now(), ttl_s=60
    )
    assert lease is not None
    return trials.start(
        session,
        trial,
        device_id=house.device.id,
        fencing_token=lease,
        token=token,
        now=house.now(),
        actor=AGENT,
    )


def test_a_device_finishes_a_study_before_it_begins_the_next(sessions: Sessions) -> None:
    """Oldest first, and the one it began until it is over: two never overlap on a device."""
    with transaction(sessions) as session:
        house = House(session)
        first, second = house.add_study("first"), house.add_study("second")
        claims = [studies.claim_work(session, device=house.device, now=house.now())]
        claims.append(studies.claim_work(session, device=house.device, now=house.now()))
        move(session, house, first, StudyState.PLANNING, StudyState.FAILED)
        claims.append(studies.claim_work(session, device=house.device, now=house.now()))
        move(session, house, second, StudyState.CANCELLED)
        claims.append(studies.claim_work(session, device=house.device, now=house.now()))

    assert [claim and claim.name for claim in claims] == ["first", "first", "second", None]


def test_agents_that_claim_at_once_get_different_studies(sessions: Sessions) -> None:
    """Two devices of a class share the queue; no study is worked on by both."""
    with transaction(sessions) as session:
        house = House(session)
        other = house.add_device("cpu1")
        house.add_study("first")
        house.add_study("second")
    gate = threading.Barrier(2)
    got: dict[uuid.UUID, str] = {}

    def claim(device_id: uuid.UUID) -> None:
        with transaction(sessions) as session:
            device = devices.one(session, device_id)
            gate.wait()
            study = studies.claim_work(session, device=device, now=house.clock)
            gate.wait()  # both hold their locks
            got[device_id] = study.name if study is not None else "nothing"

    threads = [
        threading.Thread(target=claim, args=(device.id,)) for device in (house.device, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(got.values()) == ["first", "second"]


def test_one_device_claimed_twice_at_once_stays_with_one_study(sessions: Sessions) -> None:
    """An agent and its not yet dead predecessor do not begin two studies."""
    with transaction(sessions) as session:
        house = House(session)
        house.add_study("first")
        house.add_study("second")
    got = []

    def claim() -> None:
        with transaction(sessions) as session:
            device = devices.one(session, house.device.id)
            study = studies.claim_work(session, device=device, now=house.clock)
            got.append(study and study.name)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got == ["first"] * 4


def test_a_study_waits_for_its_target_and_fails_with_it(sessions: Sessions) -> None:
    """A target that cannot be inspected ends the studies that wait for it."""
    with transaction(sessions) as session:
        house = House(session)
        house.target = house.add_target()
        study = house.add_study()
        waiting = studies.claim_work(session, device=house.device, now=house.now())
        (pending,) = targets.pending(session, DEVICE_CLASS)
        with pytest.raises(Unavailable, match="pending"):
            studies.evidence(session, study.id)
        targets.mark_failed(session, pending, "no such folder", actor=AGENT, now=house.now())

    assert waiting is None
    assert (study.state, study.error) == ("failed", "the target failed: no such folder")
    assert study.ended_at is not None


def test_no_arrow_no_move(sessions: Sessions) -> None:
    """The state machine decides; a refused move writes nothing."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        before = len(events.after(session, "study", study.id, 0))
        with pytest.raises(StateConflict):
            move(session, house, study, StudyState.DONE)

        assert study.state == "queued"
        assert len(events.after(session, "study", study.id, 0)) == before


def test_every_change_is_told_and_audited_in_its_transaction(sessions: Sessions) -> None:
    """Events resume after an id; a rolled-back change leaves neither event nor audit row."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        move(session, house, study, StudyState.PLANNING)
    with pytest.raises(InvalidInput), transaction(sessions) as session:
        fail_after(session, house, study)
    with transaction(sessions) as session:
        told = events.after(session, "study", study.id, 0)
        rest = events.after(session, "study", study.id, told[0].id)
        rows = audit.page(session, frozenset({house.project_id}), limit=200, cursor=None).items
        written = [row.action for row in rows if row.noun_id == str(study.id)]

    assert [event.body["state"] for event in told] == ["queued", "planning"]
    assert rest == told[1:]
    assert written == ["planning", "create"]


def test_cancelling_a_waiting_study_ends_it_and_a_running_one_is_asked(
    sessions: Sessions,
) -> None:
    """The agent of a running study sees the request; asking twice changes nothing."""
    with transaction(sessions) as session:
        house = House(session)
        waiting, running = house.add_study("waiting"), house.add_study("running")
        projects = frozenset({house.project_id})
        actor = house.admin.actor
        studies.request_cancel(session, waiting.id, projects, actor=actor, now=house.now())
        studies.claim_work(session, device=house.device, now=house.now())
        move(session, house, running, StudyState.PLANNING, StudyState.PROBING)
        trial = studies.ensure_trial(session, running, plan(), now=house.now())
        for _ in range(2):
            studies.request_cancel(session, running.id, projects, actor=actor, now=house.now())
        asked = (running.state, running.cancel_requested)
        move(session, house, running, StudyState.CANCELLED)

    assert waiting.state == "cancelled"
    assert asked == ("probing", True)
    assert (trial.state, trial.reason) == ("skipped", "the study is cancelled")


def test_evidence_holds_all_that_was_measured(sessions: Sessions) -> None:
    """Baseline, model, device, traffic, trials with facts and points, time spent."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        empty = studies.evidence(session, study.id)
        move(session, house, study, StudyState.PLANNING, StudyState.PROBING)
        first = studies.ensure_trial(session, study, plan(), now=house.now())
        studies.ensure_trial(session, study, plan("drafts", DRAFTING), now=house.now())
        run = begin(session, house, first, "run-1")
        runs.ready(session, run, FACTS, now=house.now())
        for point in (load_point(1), load_point(16), load_point(16, repeat=1)):
            trials.record_point(
                session, trial=first, run=run, point=point, records=b"rows", now=house.now()
            )
        runs.ended(session, run, RunState.STOPPED, now=house.now(), log=b"log")
        trials.transition(session, first, TrialState.DONE, actor=AGENT, now=house.now())
        full = studies.evidence(session, study.id)
        kept = trials.request_records(session, trials.points(session, study.id)[first.id][0].id)
        log = runs.log(session, run.id)

    assert (empty.goal, empty.baseline, empty.model) == (GOAL, BASELINE, MODEL)
    assert (empty.device, empty.traffic, empty.trials) == (DEVICE, SUMMARY, ())
    assert (empty.workload_digest, empty.model_digest, empty.engine_version) == (
        "w0",
        "m0",
        "0.32.0",
    )
    assert [trial.plan.key for trial in full.trials] == ["baseline", "drafts"]
    assert [trial.state for trial in full.trials] == [TrialState.DONE, TrialState.QUEUED]
    assert full.trials[0].facts == FACTS
    assert full.trials[0].points == (load_point(1), load_point(16), load_point(16, repeat=1))
    assert full.spent_s == pytest.approx(5.0)  # the house's clock ticks once per look
    assert (kept, log) == (b"rows", b"log")


def test_evidence_reads_the_summary_under_the_targets_tokenizer(sessions: Sessions) -> None:
    """Token columns of the same tokenizer and template win over the upload's own figures."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        exact = type(SUMMARY)(
            requests=4,
            with_text=3,
            sessions=2,
            count_source=SUMMARY.count_source,
            overall=SUMMARY.overall,
            classes=(),
            arrivals=None,
        )
        for template, summary in (("other", SUMMARY), ("c0", exact), ("c0", SUMMARY)):
            workloads.put_token_columns(
                session,
                workload_id=house.workload.id,
                tokenizer_digest="t0",
                template_digest=template,
                summary=summary,
                chunks=[b"columns"],
            )
        seen = studies.evidence(session, study.id).traffic

    assert seen == exact


def test_no_point_is_measured_twice(sessions: Sessions) -> None:
    """The same concurrency and repeat of a trial is refused, whatever run it comes from."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        move(session, house, study, StudyState.PLANNING, StudyState.PROBING)
        trial = studies.ensure_trial(session, study, plan(), now=house.now())
        run = begin(session, house, trial, "run-1")
        trials.record_point(
            session, trial=trial, run=run, point=load_point(), records=None, now=house.now()
        )
        with pytest.raises(StateConflict, match="load point"):
            trials.record_point(
                session,
                trial=trial,
                run=run,
                point=load_point(throughput=1.0),
                records=None,
                now=house.now(),
            )
        kept = trials.points(session, study.id)[trial.id]

    assert [row.point for row in kept] == [load_point()]


def test_a_lost_agents_trial_waits_again_with_its_points(sessions: Sessions) -> None:
    """After the sweep: the run failed as agent_lost, the trial is queued, its points stay."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        move(session, house, study, StudyState.PLANNING, StudyState.PROBING)
        trial = studies.ensure_trial(session, study, plan(), now=house.now())
        run = begin(session, house, trial, "run-1")
        trials.record_point(
            session, trial=trial, run=run, point=load_point(1), records=None, now=house.now()
        )
        back = trials.abandon(session, device_id=house.device.id, actor=AGENT, now=house.now())
        nothing = trials.abandon(session, device_id=house.device.id, actor=AGENT, now=house.now())
        again = studies.ensure_trial(session, study, plan(), now=house.now())
        second = begin(session, house, again, "run-2")
        measured = trials.measured(session, trial.id)

    assert [row.id for row in back] == [trial.id] == [again.id]
    assert nothing == []
    assert (run.state, run.failure_kind) == ("failed", "agent_lost")
    assert (run.attempt, second.attempt) == (1, 2)
    assert measured == {(LoadRole.PROBE, 1, 0)}


def test_a_failed_trial_keeps_kind_and_reason(sessions: Sessions) -> None:
    """Also in the evidence, with what the run said."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        move(session, house, study, StudyState.PLANNING, StudyState.PROBING)
        trial = studies.ensure_trial(session, study, plan(), now=house.now())
        run = begin(session, house, trial, "run-1")
        runs.ended(
            session,
            run,
            RunState.FAILED,
            now=house.now(),
            failure_kind="no_kv_memory",
            failure_detail="no memory for the KV cache",
        )
        trials.transition(
            session,
            trial,
            TrialState.FAILED,
            actor=AGENT,
            now=house.now(),
            failure_kind="no_kv_memory",
        )
        (seen,) = studies.evidence(session, study.id).trials

    assert (seen.state, seen.failure_kind, seen.failure_detail) == (
        TrialState.FAILED,
        "no_kv_memory",
        "no memory for the KV cache",
    )


def test_a_study_has_one_recommendation(sessions: Sessions) -> None:
    """It is immutable; a second one is refused."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        bundle = recommendation(str(study.id))
        made = recommendations.create(session, study, bundle, now=house.now())
    with transaction(sessions) as session:
        read = recommendations.of_study(session, study.id)
    with pytest.raises(AlreadyExists, match="recommendations"), transaction(sessions) as session:
        recommendations.create(session, study, bundle, now=house.now())

    assert read is not None
    assert (read.id, read.hash, read.body.hash) == (made.id, bundle.hash, bundle.hash)


def test_other_projects_see_nothing(sessions: Sessions) -> None:
    """Not found, not forbidden: that it exists is not told either."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        strangers = frozenset({uuid.uuid4()})
        with pytest.raises(NotFound, match="study"):
            studies.one(session, study.id, strangers)
        with pytest.raises(NotFound, match="workload"):
            workloads.one(session, house.workload.id, strangers)
        with pytest.raises(NotFound, match="target"):
            targets.one(session, house.target.id, strangers)
        seen = studies.page(session, strangers, limit=10, cursor=None)

    assert seen.items == ()


def test_a_used_workload_stays_and_an_unused_one_goes_with_its_rows(sessions: Sessions) -> None:
    """Deleting takes chunks and token columns along."""
    with transaction(sessions) as session:
        house = House(session)
        read = list(workloads.chunks(session, house.workload.id))
        study = house.add_study()
        actor = house.admin.actor
        with pytest.raises(StateConflict, match="workload"):
            workloads.delete(session, house.workload.id, None, actor=actor, now=house.now())
        session.delete(study)
        session.flush()
        workloads.delete(session, house.workload.id, None, actor=actor, now=house.now())
        session.flush()
        session.expire_all()
        left = list(workloads.chunks(session, house.workload.id))

    assert (read, left) == ([b"first", b"second"], [])
