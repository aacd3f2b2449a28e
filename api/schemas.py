"""What the API sends: frozen dataclasses that carry the values of `advisor` as they are.

Identifiers are UUIDs as text, times are timezone-aware. Nothing here has a default, so a generated
client sees every field. What the API receives is in `api.inputs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeAlias, TypeVar

from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.measurement.records import LoadPoint
from advisor.recommender.evidence import StudyOptions, TrialPlan
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
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import Privacy, Reject, TraceReport
from api.measured import MeasurementView

T = TypeVar("T")
JsonObject: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A stretch of a list, newest first; `next` is the cursor of the following one."""

    items: tuple[T, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An RFC 9457 problem document; `remedy` says what the caller can do about it.

    `rejects` are the first bad lines of a refused upload, without their text.
    """

    type: str
    title: str
    status: int
    detail: str
    remedy: str | None
    errors: tuple["FieldProblem", ...]
    found: tuple[str, ...]
    accepted: tuple[str, ...]
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem:
    """One wrong field of a request; the value itself is never repeated."""

    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """State of this process and of what it needs."""

    status: str
    checks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    id: str
    name: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """A named principal; `role` includes the ones below it."""

    id: str
    name: str
    role: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalView:
    """Who the caller is, in which projects, and whether reviews need a second person."""

    id: str
    name: str
    role: str
    projects: tuple[ProjectView, ...]
    single_user: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """An API key without its secret."""

    id: str
    user_id: str
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCreated:
    """A new key. `plaintext` is shown here and never again."""

    key: KeyView
    plaintext: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """Who changed what."""

    id: int
    at: datetime
    actor: str
    action: str
    noun: str
    noun_id: str
    detail: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One step of progress; streams resume after `id`."""

    id: int
    at: datetime
    kind: str
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What the agent of a device removed of a purged workload; `at` None: it was not there yet."""

    device: str
    host: str
    at: datetime | None
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """An uploaded traffic sample: what reading it found and what it says on its own.

    `privacy` says how much of the text is kept, `limits` what cannot be concluded because of it.
    At `expires_at` it is purged; after `purged_at` only this is left, and `swept` says which
    devices have removed what they held.
    """

    id: str
    name: str
    created_at: datetime
    digest: str
    requests: int
    bytes: int
    report: TraceReport
    summary: TrafficSummary
    privacy: Privacy
    limits: tuple[str, ...]
    expires_at: datetime | None
    purged_at: datetime | None
    swept: tuple[SweepView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """One installed engine; `flags` counts the flags of its schema."""

    id: str
    name: str
    host: str
    version: str
    distribution: str
    build: str
    interpreter: str
    flags: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """A device and whether its agent is there; `busy_with` is what it works on now."""

    id: str
    host: str
    name: str
    device_class: str
    facts: DeviceFacts | None
    agent_seen_at: datetime | None
    busy_with: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetView:
    """A model on a device class with an engine. `shape` and `device` are known once `ready`."""

    id: str
    name: str
    created_at: datetime
    model: str
    engine_id: str
    device_class: str
    functional: FunctionalSettings
    state: TargetState
    error: str | None
    model_digest: str | None
    shape: ModelShape | None
    device: DeviceFacts | None
    tokenizer_digest: str | None
    template_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRunView:
    """One start of an engine and what it said of itself."""

    id: str
    attempt: int
    state: RunState
    failure_kind: str | None
    failure_detail: str | None
    facts: EngineFacts | None
    created_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """One configuration under test; `plan.predicted` was computed before any probe of it.

    `quality_passes` counts the finished passes over the quality prompts; answers are never sent.
    """

    id: str
    seq: int
    key: str
    plan: TrialPlan
    config_hash: str
    state: TrialState
    failure_kind: str | None
    reason: str | None
    started_at: datetime | None
    ended_at: datetime | None
    runs: tuple[EngineRunView, ...]
    points: tuple[LoadPoint, ...]
    quality_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """A study as a line of a list. `progress` is in [0, 1], `remaining_s` None when unknown.

    `evidence_purged_at` is when its workload was purged: figures are left, what they were measured
    on is gone.
    """

    id: str
    name: str
    workload_id: str
    target_id: str
    device_class: str
    goal: Goal
    budget_s: float
    requests_per_point: int
    seed: int
    state: StudyState
    error: str | None
    progress: float
    remaining_s: float | None
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    evidence_purged_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView(StudySummary):
    """A study with its trials so far and what the planner would still do (`plan`).

    `techniques` are the keys that the user asked about; None means every technique. `options` has
    the user's own command, without what may be secret in it, and notes on what is not kept of it.
    """

    baseline: ServingConfig
    techniques: tuple[str, ...] | None
    options: StudyOptions
    trials: tuple[TrialView, ...]
    plan: tuple[TrialPlan, ...]
    recommendation_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewView:
    """A named user's decision on one recommendation."""

    id: str
    recommendation_hash: str
    config_hash: str
    user: str
    decision: str
    comment: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationView:
    """The immutable bundle, its hash and its reviews, oldest first.

    After `evidence_purged_at` its figures can no longer be traced to requests or answers. `outside`
    is what was measured of the target elsewhere, newest first: beside the bundle, not part of it.
    """

    id: str
    study_id: str
    hash: str
    state: RecommendationState
    created_at: datetime
    body: Recommendation
    reviews: tuple[ReviewView, ...]
    evidence_purged_at: datetime | None
    outside: tuple[MeasurementView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartView:
    """One picture of a recommendation, with the same figures as a table.

    `figure` is a plotly figure as JSON without a template: text and grid take the colours of the
    page that draws it. None: `missing` says in one sentence why there is no picture. `caption`
    names units, sources and intervals.
    """

    key: str
    title: str
    caption: str
    figure: JsonObject | None
    missing: str | None
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentView:
    """An approved configuration wanted on a device; `url` is its OpenAI-compatible base."""

    id: str
    name: str
    generation: int
    recommendation_id: str
    target_id: str
    device_class: str
    config: ServingConfig
    config_hash: str
    wanted: str
    state: DeploymentState
    reason: str | None
    served_model_name: str | None
    restarts: int
    created_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None
    url: str
