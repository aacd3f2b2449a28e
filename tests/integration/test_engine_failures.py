"""What an engine failed at: remembered, lowered to its bound, skipped, cleared."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.failures import RememberedFailure
from advisor.serving import Levers, ServingConfig
from advisor.states import FailureKind, RunState, StudyState, TrialState
from db import engine_failures, events, runs, studies, trials
from db.session import Sessions, transaction
from db.tables import EngineRunRow, TrialRow
from tests.fakes.agent_site import AgentSite
from tests.fakes.rows import AGENT, DEVICE_CLASS, House
from tests.fakes.values import plan

pytestmark = pytest.mark.postgres
MAMBA = "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (8). Each decode"
NO_KERNEL = "ValueError: torch.float32 is not supported for quantization method awq. Supported"
PRECISION = "half_precision"
OVER = {StudyState.DONE, StudyState.INCONCLUSIVE, StudyState.FAILED}


def failure(house: House, config: ServingConfig, detail: str = "the reason") -> RememberedFailure:
    """One that holds for this configuration."""
    return RememberedFailure(
        kind=FailureKind.INVALID_SETTING,
        detail=detail,
        failed_at=house.now(),
        config_hash=config.hash,
    )


def place(house: House) -> engine_failures.FailurePlace:
    """The house's engine, device class and model."""
    return engine_failures.place_of(house.engine, device_class=DEVICE_CLASS, model_digest="m0")


def test_a_failure_is_remembered_once_and_only_in_its_place(sessions: Sessions) -> None:
    """The latest of a configuration counts; another model or version knows nothing of it."""
    with transaction(sessions) as session:
        house = House(session)
        config = ServingConfig()
        for detail in ("first", "second"):
            engine_failures.remember(session, place(house), failure(house, config, detail))
        elsewhere = (
            replace(place(house), model_digest="m1"),
            replace(place(house), engine_version="0.31.0"),
            replace(place(house), device_class="gpu"),
        )

        assert [f.detail for f in engine_failures.remembered(session, place(house))] == ["second"]
        assert all(engine_failures.remembered(session, other) == () for other in elsewhere)


def test_what_is_remembered_of_an_engine_can_be_cleared(sessions: Sessions) -> None:
    """All of its version and build goes; how many there were is told."""
    with transaction(sessions) as session:
        house = House(session)
        for seqs in (8, 16):
            config = ServingConfig(levers=Levers(max_num_seqs=seqs))
            engine_failures.remember(session, place(house), failure(house, config))
        listed = engine_failures.of_engine(session, house.engine)

        assert len(listed) == 2
        assert engine_failures.forget(session, house.engine, actor=AGENT, now=house.now()) == 2
        assert engine_failures.remembered(session, place(house)) == ()


def test_a_bound_lowers_the_baseline_and_the_trials_that_are_not_over(sessions: Sessions) -> None:
    """What is compared with the baseline stays comparable; the note says what was changed."""
    with transaction(sessions) as session:
        house = House(session)
        study = house.add_study()
        study.baseline = study.baseline.changed({"max_num_seqs": 1024})
        config = study.baseline
        trial = studies.ensure_trial(
            session, study, replace(plan(), config=config), now=house.now()
        )
        small = replace(plan(), key="small", config=config.changed({"max_num_seqs": 4}))
        other = studies.ensure_trial(session, study, small, now=house.now())
        bound = replace(failure(house, config), setting="max_num_seqs", bound=856)
        engine_failures.lower(session, study.id, bound, actor=AGENT, now=house.now())
        lowered = config.changed({"max_num_seqs": 856})
        told = [event.kind for event in events.after(session, "study", str(study.id), 0)]

        assert study.baseline == lowered
        assert (trial.plan.config, trial.config_hash) == (lowered, lowered.hash)
        assert other.plan.config == small.config
        assert study.options.baseline_notes[-1].startswith("max_num_seqs is lowered to 856")
        assert "lowered" in told


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """A host with a planted engine; its agents are ended afterwards."""
    found = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield found
    found.close()


def runs_of(site: AgentSite, study_id: uuid.UUID) -> list[EngineRunRow]:
    with transaction(site.sessions) as session:
        return runs.of_study(session, study_id)


def trial_of(site: AgentSite, study_id: uuid.UUID, key: str) -> TrialRow:
    with transaction(site.sessions) as session:
        return next(row for row in trials.of_study(session, study_id) if row.key == key)


@pytest.mark.processes
def test_a_second_study_starts_nothing_that_failed_in_the_first(site: AgentSite) -> None:
    """Case E-12 and pruning: one retry within the bound; then no start is spent on either again."""
    site.baseline = site.baseline.changed({"max_num_seqs": 1024})
    site.truth["failures"] = [
        {"when": {"max_num_seqs": "1024"}, "log": [MAMBA]},
        {"when": {"dtype": "float32"}, "log": [NO_KERNEL]},
    ]
    site.start()
    target_id, workload_id = site.target(), site.workload()
    both = []
    for _ in range(2):
        both.append(site.study(target_id, workload_id, [PRECISION]))
        site.wait("the study is over", lambda: site.study_state(both[-1]) in OVER)
    first, second = ([run.failure_kind for run in runs_of(site, study)] for study in both)
    baseline = runs_of(site, both[0])[:2]
    skipped = trial_of(site, both[1], PRECISION)
    with transaction(site.sessions) as session:
        studied = [studies.one(session, study_id, None) for study_id in both]

    assert first.count(FailureKind.INVALID_SETTING) == 1
    assert first.count(FailureKind.UNSUPPORTED_QUANTIZATION) == 1
    assert [run.state for run in baseline] == [RunState.FAILED, RunState.STOPPED]
    assert baseline[0].failure_detail is not None
    assert "at most 8" in baseline[0].failure_detail
    assert "remedy:" in baseline[0].failure_detail.splitlines()[0]
    assert set(second) == {None}
    assert (skipped.state, skipped.failure_kind) == (
        TrialState.SKIPPED,
        FailureKind.FAILED_BEFORE,
    )
    assert skipped.reason is not None
    assert "not supported for quantization method awq" in skipped.reason
    assert all(study.baseline.levers.max_num_seqs == 8 for study in studied)
