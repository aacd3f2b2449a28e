"""Answers of the API for a whole study of the planted world, made of the real dataclasses."""

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import UUID

from advisor.recommender.evidence import StudyEvidence, TrialEvidence, TrialPlan
from advisor.recommender.planner import plan_preview
from advisor.recommender.recommend import recommend
from advisor.recommender.recommendation import Recommendation
from advisor.serving import EngineFacts, FunctionalSettings, ServingConfig
from advisor.states import (
    DeploymentState,
    RecommendationState,
    RunState,
    StudyState,
    TargetState,
    TrialState,
)
from advisor.traffic.figures import SubsetDistance
from advisor.traffic.reading import read_trace
from advisor.traffic.summary import summarise
from advisor.traffic.trace import Privacy
from api.client import (
    DeploymentView,
    DeviceView,
    EngineView,
    PrincipalView,
    ProjectView,
    RecommendationView,
    ReviewView,
    StudyView,
    TargetView,
    TrialView,
    WorkloadView,
)
from api.schemas import EngineRunView
from tests.fakes.planted_world import DEVICE, MODEL, World, begin, study

BEGIN = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
URL = "http://127.0.0.1:8322/serve/demo/v1"
FAILING = "half_precision"
# 16-bit variant whose start fails, so that every page also has a failure to show.
WORLD = World(failing=frozenset({FAILING}))
FACTS = EngineFacts(
    vllm_version="0.32.0",
    start_s=20.5,
    weight_bytes=269_030_016,
    kv_cache_bytes=2 << 30,
    kv_cache_tokens=93_184,
    device_memory_bytes=24 << 30,
    headroom_bytes=21 << 30,
)


def identifier(number: int) -> str:
    """A UUID that a reader of a failing test can tell from others."""
    return str(UUID(int=number))


@cache
def evidence() -> StudyEvidence:
    """A whole study, computed once."""
    return study(WORLD)


@cache
def body() -> Recommendation:
    """What the recommender makes of it."""
    found = evidence()
    trials = tuple(
        trial if trial.facts is None else replace(trial, facts=FACTS) for trial in found.trials
    )
    machine = "a planted processor, 2 threads"
    subset = SubsetDistance(
        requests=32, of=64, lengths=0.08, reuse=0.05, classes=0.03, burstiness=None, total=0.08
    )
    return recommend(
        replace(found, trials=trials), study_id=identifier(3), machine=machine, subset=subset
    )


def principal(*, projects: int = 1, single_user: bool = True) -> PrincipalView:
    """An administrator."""
    return PrincipalView(
        id=identifier(9),
        name="ada",
        role="admin",
        projects=tuple(
            ProjectView(id=identifier(90 + n), name=f"project {n}", created_at=BEGIN)
            for n in range(projects)
        ),
        single_user=single_user,
    )


def workload(content: bytes, *, name: str, filename: str, number: int = 1) -> WorkloadView:
    """What the service says of an upload; raises what reading it raises."""
    trace = read_trace(io.BytesIO(content), filename=filename)
    return WorkloadView(
        id=identifier(number),
        name=name,
        created_at=BEGIN,
        digest="d" * 64,
        requests=len(trace.requests),
        bytes=len(content),
        report=trace.report,
        summary=summarise(trace.requests, None, block_size=16),
        privacy=Privacy.RAW,
        limits=(),
        expires_at=None,
        purged_at=None,
        swept=(),
    )


def engine() -> EngineView:
    """One installed engine."""
    return EngineView(
        id=identifier(20),
        name="vllm",
        host="here",
        version="0.32.0",
        distribution="vllm",
        build="cpu",
        interpreter="bin/python",
        flags=231,
        created_at=BEGIN,
    )


def device() -> DeviceView:
    """One measured device."""
    return DeviceView(
        id=identifier(21),
        host="here",
        name="cpu0",
        device_class="cpu-2t",
        facts=DEVICE,
        agent_seen_at=BEGIN,
        busy_with=None,
    )


def target(state: TargetState = TargetState.READY, *, error: str | None = None) -> TargetView:
    """A target; what an agent finds out is there once it is ready."""
    ready = state is TargetState.READY
    return TargetView(
        id=identifier(2),
        name="demo model",
        created_at=BEGIN,
        model="demo",
        engine_id=identifier(20),
        device_class="cpu-2t",
        functional=FunctionalSettings(max_model_len=2048, enforce_eager=True),
        state=state,
        error=error,
        model_digest="e" * 64 if ready else None,
        shape=MODEL if ready else None,
        device=DEVICE if ready else None,
        tokenizer_digest="f" * 64 if ready else None,
        template_digest="a" * 64 if ready else None,
    )


def trial(seq: int, found: TrialEvidence) -> TrialView:
    """A trial of the study with one engine start."""
    failed = found.state is TrialState.FAILED
    reason = "the engine needs 3.1 GiB and 2 GiB are free" if failed else None
    run = EngineRunView(
        id=identifier(400 + seq),
        attempt=1,
        state=RunState.FAILED if failed else RunState.STOPPED,
        failure_kind=found.failure_kind,
        failure_detail=reason,
        facts=None if failed else FACTS,
        created_at=BEGIN,
        ready_at=None if failed else BEGIN + timedelta(seconds=21),
        ended_at=BEGIN + timedelta(seconds=90),
    )
    return TrialView(
        id=identifier(300 + seq),
        seq=seq,
        key=found.plan.key,
        plan=found.plan,
        config_hash=found.plan.config.hash,
        state=found.state,
        failure_kind=found.failure_kind,
        reason=reason,
        started_at=BEGIN,
        ended_at=BEGIN,
        runs=(run,),
        points=found.points,
        quality_passes=0 if found.quality is None else len(found.quality.passes),
    )


def finished_study() -> StudyView:
    """The study when all is done."""
    return _study(
        StudyState.DONE, evidence().trials, progress=1.0, remaining_s=0.0, over=True, plan=()
    )


def running_study() -> StudyView:
    """The study while its second trial is measured."""
    first, second = evidence().trials[:2]
    measuring = replace(second, state=TrialState.MEASURING, points=())
    known = replace(begin(), trials=(first,))
    return _study(
        StudyState.PROBING,
        (first, measuring),
        progress=0.4,
        remaining_s=150.0,
        over=False,
        plan=plan_preview(known)[1:],
    )


def _study(
    state: StudyState,
    trials: Sequence[TrialEvidence],
    *,
    progress: float,
    remaining_s: float,
    over: bool,
    plan: Sequence[TrialPlan],
) -> StudyView:
    known = evidence()
    return StudyView(
        id=identifier(3),
        name="first study",
        workload_id=identifier(1),
        target_id=identifier(2),
        device_class="cpu-2t",
        goal=known.goal,
        budget_s=known.budget_s,
        requests_per_point=known.requests_per_point,
        seed=0,
        state=state,
        error=None,
        progress=progress,
        remaining_s=remaining_s,
        cancel_requested=False,
        created_at=BEGIN,
        started_at=BEGIN,
        ended_at=BEGIN + timedelta(minutes=12) if over else None,
        evidence_purged_at=None,
        baseline=known.baseline,
        techniques=None,
        options=known.options,
        trials=tuple(trial(seq, item) for seq, item in enumerate(trials, start=1)),
        plan=tuple(plan),
        recommendation_id=identifier(4) if over else None,
    )


def recommendation(reviews: Sequence[ReviewView] = ()) -> RecommendationView:
    """The bundle; it is what the last review made of it."""
    states = {
        "approve": RecommendationState.APPROVED,
        "reject": RecommendationState.REJECTED,
        "request_changes": RecommendationState.CHANGES_REQUESTED,
    }
    return RecommendationView(
        id=identifier(4),
        study_id=identifier(3),
        hash=body().hash,
        state=states[reviews[-1].decision] if reviews else RecommendationState.PROPOSED,
        created_at=BEGIN,
        body=body(),
        reviews=tuple(reviews),
        evidence_purged_at=None,
        outside=(),
    )


def review(decision: str, config_hash: str, *, comment: str = "") -> ReviewView:
    """A decision of the planted user on the planted bundle."""
    return ReviewView(
        id=identifier(5),
        recommendation_hash=body().hash,
        config_hash=config_hash,
        user="ada",
        decision=decision,
        comment=comment,
        at=BEGIN,
    )


def deployment(
    state: DeploymentState = DeploymentState.SERVING, *, config: ServingConfig | None = None
) -> DeploymentView:
    """A deployment of the best configuration or the given one."""
    chosen = config or body().best.config
    return DeploymentView(
        id=identifier(6),
        name="demo",
        generation=1,
        recommendation_id=identifier(4),
        target_id=identifier(2),
        device_class="cpu-2t",
        config=chosen,
        config_hash=chosen.hash,
        wanted="serving",
        state=state,
        reason=None,
        served_model_name="internal",
        restarts=0,
        created_at=BEGIN,
        ready_at=BEGIN + timedelta(minutes=1),
        ended_at=None,
        url=URL,
    )
