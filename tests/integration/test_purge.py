"""A purge deletes what was made of an upload, wherever it is, and keeps figures and names."""

import json
import threading
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.serving import WeightQuantization
from advisor.states import FailureKind, RunState, StudyState
from advisor.traffic.trace import Privacy
from db import deployments, purges, recommendations, runs, studies, trials, workloads
from db.audit import Actor
from db.recommendations import Decision, NewReview
from db.session import Sessions, transaction
from db.tables import DeploymentRow, DeviceRow, StudyRow, WorkloadRow
from db.workloads import NewWorkload
from probes.erasure import erase_purged
from probes.quantizer import CHECKPOINTS, MANIFEST
from probes.settings import AgentSettings
from probes.workplace import Workplace
from tests.fakes.haystack import found, rows
from tests.fakes.rows import AGENT, START, House
from tests.fakes.stored_values import QUALITY_PASS
from tests.fakes.values import DRAFTING, FACTS, REPORT, SUMMARY, load_point, plan, recommendation
from tests.integration.test_studies import begin, move

pytestmark = pytest.mark.postgres
CANARY = "canaryqxzword"


def measured(session: Session, house: House) -> StudyRow:
    """A study that failed, with records, answers, a log and a reason that quotes it."""
    study = house.add_study()
    move(session, house, study, StudyState.PLANNING, StudyState.PROBING)
    trial = studies.ensure_trial(session, study, plan(), now=house.now())
    run = begin(session, house, trial, "run-1")
    runs.ready(session, run, FACTS, now=house.now())
    point = trials.record_point(
        session, trial=trial, run=run, point=load_point(1), records=CANARY.encode(), now=house.now()
    )
    trials.record_quality(
        session,
        trial=trial,
        run=run,
        passed=replace(
            QUALITY_PASS, answers=(replace(QUALITY_PASS.answers[0], request_id=CANARY),)
        ),
    )
    runs.ended(
        session,
        run,
        RunState.FAILED,
        now=house.now(),
        failure_kind=FailureKind.EXITED,
        failure_detail=CANARY,
        log=zstandard.compress(CANARY.encode()),
    )
    error = {"error": f"the engine said {CANARY}"}
    studies.transition(
        session, study, StudyState.FAILED, actor=AGENT, now=house.now(), detail=error
    )
    assert point.id is not None
    return study


def add_workload(
    house: House, name: str, *, origin: uuid.UUID | None = None, digest: str = "w1"
) -> WorkloadRow:
    new = NewWorkload(
        project_id=house.project_id,
        name=name,
        digest=digest,
        requests=4,
        bytes=10,
        report=REPORT,
        summary=SUMMARY,
        privacy=Privacy.REDACTED,
        origins=() if origin is None else (origin,),
    )
    return workloads.create(
        house.session,
        new,
        [CANARY.encode()],
        created_by=house.admin.user_id,
        actor=house.admin.actor,
        now=house.now(),
    )


def purge(house: House, row: WorkloadRow) -> WorkloadRow:
    actor = Actor(name="test")
    return purges.purge(house.session, row.id, None, actor=actor, now=house.now())


def test_everything_of_a_study_goes_but_its_figures(sessions: Sessions) -> None:
    """Records, answers, log, what quotes it in rows, events and audit; load points stay."""
    with transaction(sessions) as session:
        house = House(session)
        study = measured(session, house)
        workload = house.workload
        workloads.put_token_columns(
            session,
            workload_id=workload.id,
            tokenizer_digest="t",
            template_digest="c",
            summary=SUMMARY,
            chunks=[CANARY.encode()],
        )
    before = found([CANARY], rows(sessions))
    with transaction(sessions) as session:
        house.session = session
        purge(house, workload)
        again = purge(house, workload)
    with transaction(sessions) as session:
        left = workloads.one(session, workload.id, None)
        evidence = studies.evidence(session, study.id)
        chunks = list(workloads.chunks(session, workload.id))

    assert before >= {"token_chunks", "request_records", "engine_runs", "trials", "audit", "events"}
    assert found([CANARY], rows(sessions)) == set()
    assert chunks == []
    assert (left.name, left.requests, left.purged_at) == ("sample", 4, again.purged_at)
    assert left.summary.overall.prompt_tokens == SUMMARY.overall.prompt_tokens
    assert left.summary.overall.lookup is None
    assert evidence.trials[0].points == (load_point(1),)
    assert purges.GONE in left.summary.unmeasurable["privacy"]


def test_what_is_made_of_a_workload_goes_with_it_and_nothing_else(sessions: Sessions) -> None:
    """A workload that was derived from one that was derived from it; not a stranger."""
    with transaction(sessions) as session:
        house = House(session)
        first = add_workload(house, "derived", origin=house.workload.id)
        second = add_workload(house, "derived again", origin=first.id)
        other = add_workload(house, "other")
        purge(house, house.workload)
        gone = [row.purged_at is not None for row in (house.workload, first, second, other)]
        with pytest.raises(StateConflict, match="upload the traffic again"):
            add_workload(house, "late", origin=first.id)

    assert gone == [True, True, True, False]


def test_a_workload_in_use_is_not_purged_and_the_remedy_is_said(sessions: Sessions) -> None:
    """A study that runs; a deployment whose weights were calibrated on it, until it is stopped."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        with pytest.raises(StateConflict, match="cancel the study") as running:
            purge(house, house.workload)
        move(session, house, study, StudyState.CANCELLED)
        serving = deployed(session, house, study)
        serving.config = serving.config.changed({"quantization": WeightQuantization()})
        session.flush()
        with pytest.raises(StateConflict, match="stop the deployment") as served:
            purge(house, house.workload)
        serving.config = serving.config.changed(
            {"quantization": WeightQuantization(algorithm="rtn")}
        )
        session.flush()
        purged = purge(house, house.workload)

    assert "study 'study'" in str(running.value)
    assert "deployment 'prod'" in str(served.value)
    assert purged.purged_at is not None


def deployed(session: Session, house: House, study: StudyRow) -> DeploymentRow:
    """An approved configuration of the study, wanted."""
    row = recommendations.create(session, study, recommendation(str(study.id)), now=house.now())
    new = NewReview(
        decision=Decision.APPROVE,
        config_hash=DRAFTING.hash,
        recommendation_hash=row.hash,
        comment="",
    )
    recommendations.review(
        session, row.id, None, new, reviewer=house.admin, now=house.now(), single_user=True
    )
    return deployments.create(
        session,
        name="prod",
        recommendation_id=row.id,
        config_hash=DRAFTING.hash,
        principal=house.admin,
        now=house.now(),
    )


def test_what_is_past_its_time_is_purged_once_its_studies_ended(sessions: Sessions) -> None:
    """A waiting study is cancelled; one that a device began is asked to end, then purged."""
    with transaction(sessions) as session:
        house = House(session)
        late = add_workload(house, "late")
        house.workload.expires_at = house.now()
        late.expires_at = house.now() + timedelta(days=30)
        begun = house.add_study()
        begun.device_id = house.device.id
        session.flush()
        early = purges.purge_expired(session, now=house.now())
        asked = begun.cancel_requested
        move(session, house, begun, StudyState.CANCELLED)
        then = purges.purge_expired(session, now=house.now())
        after = purges.purge_expired(session, now=house.now())

    assert (early, asked, then, after) == (0, True, 1, 0)
    assert house.workload.purged_at is not None
    assert late.purged_at is None


def workplace(sessions: Sessions, device: DeviceRow, folder: Path) -> Workplace:
    """The surroundings of an agent that starts nothing."""
    settings = AgentSettings(database_url="postgresql://nobody@localhost/none", data_dir=folder)
    return Workplace(
        settings=settings,
        sessions=sessions,
        device=device,
        actor=AGENT,
        holder="agent",
        stop=threading.Event(),
        now=lambda: START + timedelta(hours=1),
        base_env={},
    )


def checkpoint(folder: Path, name: str, workload_digest: str | None) -> Path:
    """A checkpoint whose manifest names a workload."""
    home = folder / CHECKPOINTS / name
    (home / "model").mkdir(parents=True)
    (home / "model" / "weights").write_bytes(b"w")
    (home / MANIFEST).write_text(json.dumps({"workload_digest": workload_digest}))
    return home


def test_every_agent_sweeps_its_disk_and_says_so(sessions: Sessions, tmp_path: Path) -> None:
    """Checkpoints calibrated on it and logs of its runs go; other files stay; once is enough."""
    with transaction(sessions) as session:
        house = House(session)
        second = house.add_device("cpu1")
        measured(session, house)
        purge(house, house.workload)
        waiting = purges.sweeps(session, house.workload)
    place = workplace(sessions, house.device, tmp_path)
    homes = [checkpoint(tmp_path, str(n), name) for n, name in enumerate(["w0", "other", None])]
    place.log_folder.mkdir()
    logs = [place.log_folder / f"{name}.log" for name in ("run-1", "run-of-another")]
    for log in logs:
        log.write_text(CANARY)
    swept = [erase_purged(place), erase_purged(place)]
    with transaction(sessions) as session:
        seen = purges.sweeps(session, workloads.one(session, house.workload.id, None))

    assert [entry for _, entry in waiting] == [None, None]
    assert swept == [1, 0]
    assert [home.exists() for home in homes] == [False, True, True]
    assert [log.exists() for log in logs] == [False, True]
    removed = {device.id: entry and entry.removed for device, entry in seen}
    assert removed == {house.device.id: 2, second.id: None}


def test_files_that_another_upload_of_the_same_requests_needs_stay(
    sessions: Sessions, tmp_path: Path
) -> None:
    """Until that one is purged too."""
    with transaction(sessions) as session:
        house = House(session)
        twin = add_workload(house, "twin", digest="w0")
        purge(house, house.workload)
    place = workplace(sessions, house.device, tmp_path)
    home = checkpoint(tmp_path, "0", "w0")
    erase_purged(place)
    first = home.exists()
    with transaction(sessions) as session:
        house.session = session
        purge(house, twin)
    erase_purged(place)

    assert (first, home.exists()) == (True, False)


def test_a_purged_workload_cannot_be_tokenised_again(sessions: Sessions) -> None:
    """Neither by who looked before the purge."""
    with transaction(sessions) as session:
        house = House(session)
        purge(house, house.workload)
        with pytest.raises(StateConflict, match="purged"):
            workloads.put_token_columns(
                session,
                workload_id=house.workload.id,
                tokenizer_digest="t",
                template_digest="c",
                summary=SUMMARY,
                chunks=[b"late"],
            )
