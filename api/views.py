"""Rows of the database as the values that the API sends."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from advisor.measurement.records import LoadPoint
from advisor.recommender.evidence import TrialPlan
from advisor.states import (
    DeploymentState,
    RecommendationState,
    RunState,
    StudyState,
    TargetState,
    TrialState,
)
from advisor.traffic.privacy.redaction import PRIVACY_LIMITS
from advisor.traffic.trace import Privacy
from api.measured import MeasurementView
from api.schemas import (
    AuditView,
    DeploymentView,
    DeviceView,
    EngineRunView,
    EngineView,
    EventView,
    KeyView,
    ProjectView,
    RecommendationView,
    ReviewView,
    StudySummary,
    StudyView,
    SweepView,
    TargetView,
    TrialView,
    UserView,
    WorkloadView,
)
from db.identity_tables import AuditRow, EventRow, KeyRow, ProjectRow, UserRow
from db.measurement_tables import MeasurementRow
from db.tables import (
    DeploymentRow,
    DeviceRow,
    EngineRow,
    EngineRunRow,
    LeaseRow,
    RecommendationRow,
    ReviewRow,
    StudyRow,
    TargetRow,
    TrialRow,
    WorkloadPurgeRow,
    WorkloadRow,
)

PURGED = "the upload was purged: nothing can be computed from it any more"


def user(row: UserRow) -> UserView:
    return UserView(id=str(row.id), name=row.name, role=row.role, created_at=row.created_at)


def project(row: ProjectRow) -> ProjectView:
    return ProjectView(id=str(row.id), name=row.name, created_at=row.created_at)


def key(row: KeyRow) -> KeyView:
    return KeyView(
        id=row.id,
        user_id=str(row.user_id),
        label=row.label,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )


def audit(row: AuditRow) -> AuditView:
    return AuditView(
        id=row.id,
        at=row.at,
        actor=row.actor,
        action=row.action,
        noun=row.noun,
        noun_id=row.noun_id,
        detail=row.detail,
    )


def event(row: EventRow) -> EventView:
    return EventView(id=row.id, at=row.at, kind=row.kind, body=row.body)


def workload(row: WorkloadRow, swept: Iterable[SweepView] = ()) -> WorkloadView:
    privacy = Privacy(row.privacy)
    return WorkloadView(
        id=str(row.id),
        name=row.name,
        created_at=row.created_at,
        digest=row.digest,
        requests=row.requests,
        bytes=row.bytes,
        report=row.report,
        summary=row.summary,
        privacy=privacy,
        limits=PRIVACY_LIMITS[privacy] if row.purged_at is None else (PURGED,),
        expires_at=row.expires_at,
        purged_at=row.purged_at,
        swept=tuple(swept),
    )


def sweep(device: DeviceRow, found: WorkloadPurgeRow | None) -> SweepView:
    return SweepView(
        device=device.name,
        host=device.host,
        at=None if found is None else found.at,
        removed=0 if found is None else found.removed,
    )


def engine(row: EngineRow) -> EngineView:
    flags = row.flags.get("flags", ())
    return EngineView(
        id=str(row.id),
        name=row.name,
        host=row.host,
        version=row.version,
        distribution=row.distribution,
        build=row.build,
        interpreter=row.interpreter,
        flags=len(flags),
        created_at=row.created_at,
    )


def device(row: DeviceRow, lease: LeaseRow | None) -> DeviceView:
    return DeviceView(
        id=str(row.id),
        host=row.host,
        name=row.name,
        device_class=row.device_class,
        facts=row.facts,
        agent_seen_at=row.agent_seen_at,
        busy_with=lease.purpose if lease is not None and lease.holder is not None else None,
    )


def target(row: TargetRow) -> TargetView:
    return TargetView(
        id=str(row.id),
        name=row.name,
        created_at=row.created_at,
        model=row.model,
        engine_id=str(row.engine_id),
        device_class=row.device_class,
        functional=row.functional,
        state=TargetState(row.state),
        error=row.error,
        model_digest=row.model_digest,
        shape=row.shape,
        device=row.device,
        tokenizer_digest=row.tokenizer_digest,
        template_digest=row.template_digest,
    )


def run(row: EngineRunRow) -> EngineRunView:
    return EngineRunView(
        id=str(row.id),
        attempt=row.attempt,
        state=RunState(row.state),
        failure_kind=row.failure_kind,
        failure_detail=row.failure_detail,
        facts=row.facts,
        created_at=row.created_at,
        ready_at=row.ready_at,
        ended_at=row.ended_at,
    )


def trial(row: TrialRow, runs: Iterable[EngineRunRow], points: Sequence[LoadPoint]) -> TrialView:
    return TrialView(
        id=str(row.id),
        seq=row.seq,
        key=row.key,
        plan=row.plan,
        config_hash=row.config_hash,
        state=TrialState(row.state),
        failure_kind=row.failure_kind,
        reason=row.reason,
        started_at=row.started_at,
        ended_at=row.ended_at,
        runs=tuple(run(item) for item in runs),
        points=tuple(points),
        quality_passes=0 if row.quality is None else len(row.quality.passes),
    )


def study_summary(row: StudyRow, purged_at: datetime | None = None) -> StudySummary:
    return StudySummary(
        id=str(row.id),
        name=row.name,
        workload_id=str(row.workload_id),
        target_id=str(row.target_id),
        device_class=row.device_class,
        goal=row.goal,
        budget_s=row.budget_s,
        requests_per_point=row.requests_per_point,
        seed=row.seed,
        state=StudyState(row.state),
        error=row.error,
        progress=row.progress,
        remaining_s=row.remaining_s,
        cancel_requested=row.cancel_requested,
        created_at=row.created_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        evidence_purged_at=purged_at,
    )


def study(
    row: StudyRow,
    trials: Iterable[TrialView],
    plan: Iterable[TrialPlan],
    recommendation: RecommendationRow | None,
    *,
    purged_at: datetime | None = None,
) -> StudyView:
    line = study_summary(row, purged_at)
    return StudyView(
        **{name: getattr(line, name) for name in StudySummary.__dataclass_fields__},
        baseline=row.baseline,
        techniques=None if row.techniques is None else tuple(row.techniques),
        options=row.options,
        trials=tuple(trials),
        plan=tuple(plan),
        recommendation_id=str(recommendation.id) if recommendation is not None else None,
    )


def review(row: ReviewRow, reviewer: str) -> ReviewView:
    return ReviewView(
        id=str(row.id),
        recommendation_hash=row.recommendation_hash,
        config_hash=row.config_hash,
        user=reviewer,
        decision=row.decision,
        comment=row.comment,
        at=row.at,
    )


def measurement(row: MeasurementRow, *, whole: bool = True) -> MeasurementView:
    """A measurement; where it is one of many, without the full figures of its loads."""
    return MeasurementView(
        id=str(row.id),
        target_id=None if row.target_id is None else str(row.target_id),
        digest=row.digest,
        source=row.report.rank.source,
        report=row.report if whole else replace(row.report, loads=()),
        created_at=row.created_at,
    )


def recommendation(
    row: RecommendationRow,
    reviews: Iterable[ReviewView],
    purged_at: datetime | None = None,
    outside: Iterable[MeasurementRow] = (),
) -> RecommendationView:
    return RecommendationView(
        id=str(row.id),
        study_id=str(row.study_id),
        hash=row.hash,
        state=RecommendationState(row.state),
        created_at=row.created_at,
        body=row.body,
        reviews=tuple(reviews),
        evidence_purged_at=purged_at,
        outside=tuple(measurement(item, whole=False) for item in outside),
    )


def deployment(row: DeploymentRow, proxy_url: str) -> DeploymentView:
    return DeploymentView(
        id=str(row.id),
        name=row.name,
        generation=row.generation,
        recommendation_id=str(row.recommendation_id),
        target_id=str(row.target_id),
        device_class=row.device_class,
        config=row.config,
        config_hash=row.config_hash,
        wanted=row.wanted,
        state=DeploymentState(row.state),
        reason=row.reason,
        served_model_name=row.served_model_name,
        restarts=row.restarts,
        created_at=row.created_at,
        ready_at=row.ready_at,
        ended_at=row.ended_at,
        url=f"{proxy_url}/serve/{row.name}/v1",
    )
