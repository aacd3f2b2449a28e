"""Rows of the nouns. A column of type `Stored(X)` holds an advisor value as canonical bytes."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    LargeBinary,
    UniqueConstraint,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.measurement.records import LoadPoint, QualityRecord
from advisor.recommender.evidence import StudyOptions, TrialPlan
from advisor.recommender.recommendation import Recommendation
from advisor.serving import EngineFacts, FunctionalSettings, ServingConfig
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import TraceReport
from db.base import Base
from db.failure_tables import EngineFailureRow
from db.identity_tables import Id
from db.measurement_tables import MeasurementRow
from db.stored import Stored

# Of every table: those of other modules are imported above.
ALL = Base.metadata
OF_OTHER_MODULES = (EngineFailureRow, MeasurementRow)


class WorkloadRow(Base):
    """An uploaded traffic sample; immutable. `digest` hashes the accepted requests.

    `privacy` says how much of the text is kept. After `expires_at` it is purged; of a purged one
    (`purged_at`) only this row is left, its summary without what was derived from text.
    """

    __tablename__ = "workloads"

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    created_by: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    digest: Mapped[str]
    requests: Mapped[int]
    bytes: Mapped[int] = mapped_column(BigInteger)
    report: Mapped[TraceReport] = mapped_column(Stored(TraceReport))
    summary: Mapped[TrafficSummary] = mapped_column(Stored(TrafficSummary))
    privacy: Mapped[str]
    expires_at: Mapped[datetime | None]
    purged_at: Mapped[datetime | None]


class WorkloadChunkRow(Base):
    """Requests of a workload as compressed Parquet, in order of `seq`."""

    __tablename__ = "workload_chunks"

    workload_id: Mapped[Id] = mapped_column(
        ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True
    )
    seq: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class TokenColumnsRow(Base):
    """The summary of a workload under one tokenizer and template; its token ids are in chunks.

    Of a workload without text there are no chunks: its summary was computed before the text went.
    """

    __tablename__ = "token_columns"

    workload_id: Mapped[Id] = mapped_column(
        ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True
    )
    tokenizer_digest: Mapped[str] = mapped_column(primary_key=True)
    template_digest: Mapped[str] = mapped_column(primary_key=True)
    summary: Mapped[TrafficSummary] = mapped_column(Stored(TrafficSummary))


class TokenChunkRow(Base):
    """Token ids of consecutive requests as compressed Parquet, in order of `seq`."""

    __tablename__ = "token_chunks"
    __table_args__ = (
        ForeignKeyConstraint(
            ["workload_id", "tokenizer_digest", "template_digest"],
            [
                "token_columns.workload_id",
                "token_columns.tokenizer_digest",
                "token_columns.template_digest",
            ],
            ondelete="CASCADE",
        ),
    )

    workload_id: Mapped[Id] = mapped_column(primary_key=True)
    tokenizer_digest: Mapped[str] = mapped_column(primary_key=True)
    template_digest: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[bytes] = mapped_column(LargeBinary)


class WorkloadOriginRow(Base):
    """A workload that was made of another one's requests (scaled, resampled, merged)."""

    __tablename__ = "workload_origins"

    workload_id: Mapped[Id] = mapped_column(
        ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True
    )
    origin_id: Mapped[Id] = mapped_column(
        ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True, index=True
    )


class WorkloadPurgeRow(Base):
    """What an agent did about a purged workload: `removed` files and folders of its disk."""

    __tablename__ = "workload_purges"

    workload_id: Mapped[Id] = mapped_column(
        ForeignKey("workloads.id", ondelete="CASCADE"), primary_key=True
    )
    device_id: Mapped[Id] = mapped_column(ForeignKey("devices.id"), primary_key=True)
    at: Mapped[datetime]
    removed: Mapped[int]


class EngineRow(Base):
    """One installed engine: interpreter, version, build and its flag schema."""

    __tablename__ = "engines"
    __table_args__ = (UniqueConstraint("host", "interpreter", "version"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str]
    host: Mapped[str]
    interpreter: Mapped[str]
    launcher: Mapped[str | None]
    version: Mapped[str]
    distribution: Mapped[str]
    build: Mapped[str]
    flags: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class DeviceRow(Base):
    """A device that an agent looks after; `facts` come from the agent's micro-benchmark.

    They were measured in the boot of the machine named by `facts_boot_id`.
    """

    __tablename__ = "devices"
    __table_args__ = (UniqueConstraint("host", "name"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    host: Mapped[str]
    name: Mapped[str]
    device_class: Mapped[str] = mapped_column(index=True)
    facts: Mapped[DeviceFacts | None] = mapped_column(Stored(DeviceFacts))
    facts_boot_id: Mapped[str | None]
    agent_seen_at: Mapped[datetime | None]
    created_at: Mapped[datetime]


class LeaseRow(Base):
    """Who may use a device now. The fencing token grows with every grant."""

    __tablename__ = "device_leases"

    device_id: Mapped[Id] = mapped_column(ForeignKey("devices.id"), primary_key=True)
    holder: Mapped[str | None]
    fencing_token: Mapped[int] = mapped_column(BigInteger)
    purpose: Mapped[str | None]
    heartbeat_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]


class TargetRow(Base):
    """A model on a device class with an engine, and its functional settings."""

    __tablename__ = "targets"

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    created_by: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    model: Mapped[str]
    engine_id: Mapped[Id] = mapped_column(ForeignKey("engines.id"))
    device_class: Mapped[str]
    functional: Mapped[FunctionalSettings] = mapped_column(Stored(FunctionalSettings))
    state: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None]
    model_path: Mapped[str | None]
    model_digest: Mapped[str | None]
    shape: Mapped[ModelShape | None] = mapped_column(Stored(ModelShape))
    device: Mapped[DeviceFacts | None] = mapped_column(Stored(DeviceFacts))
    tokenizer: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    tokenizer_digest: Mapped[str | None]
    chat_template: Mapped[str | None]
    template_digest: Mapped[str | None]


class StudyRow(Base):
    """One run of workload x target x goal x budget. The row is the truth; jobs only wake agents.

    `device_id` is the device it began on and stays on, so that its figures are comparable, unless
    its host disappears (`db/takeover.py`).
    """

    __tablename__ = "studies"

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    workload_id: Mapped[Id] = mapped_column(ForeignKey("workloads.id"))
    target_id: Mapped[Id] = mapped_column(ForeignKey("targets.id"))
    device_class: Mapped[str]
    device_id: Mapped[Id | None] = mapped_column(ForeignKey("devices.id"), index=True)
    goal: Mapped[Goal] = mapped_column(Stored(Goal))
    baseline: Mapped[ServingConfig] = mapped_column(Stored(ServingConfig))
    budget_s: Mapped[float]
    requests_per_point: Mapped[int]
    techniques: Mapped[list[str] | None] = mapped_column(JSONB)
    options: Mapped[StudyOptions] = mapped_column(Stored(StudyOptions))
    seed: Mapped[int]
    state: Mapped[str] = mapped_column(index=True)
    error: Mapped[str | None]
    progress: Mapped[float]
    remaining_s: Mapped[float | None]
    cancel_requested: Mapped[bool]
    created_by: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class TrialRow(Base):
    """One configuration under test."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("study_id", "key"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    study_id: Mapped[Id] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), index=True)
    seq: Mapped[int]
    key: Mapped[str]
    plan: Mapped[TrialPlan] = mapped_column(Stored(TrialPlan))
    quality: Mapped[QualityRecord | None] = mapped_column(Stored(QualityRecord))
    config_hash: Mapped[str]
    state: Mapped[str]
    failure_kind: Mapped[str | None]
    reason: Mapped[str | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class EngineRunRow(Base):
    """One start of an engine, for a trial or a deployment; `log` is zstd-compressed text."""

    __tablename__ = "engine_runs"
    __table_args__ = (
        CheckConstraint("(trial_id IS NULL) <> (deployment_id IS NULL)", name="one_owner"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    trial_id: Mapped[Id | None] = mapped_column(
        ForeignKey("trials.id", ondelete="CASCADE"), index=True
    )
    deployment_id: Mapped[Id | None] = mapped_column(ForeignKey("deployments.id"), index=True)
    device_id: Mapped[Id] = mapped_column(ForeignKey("devices.id"))
    fencing_token: Mapped[int] = mapped_column(BigInteger)
    attempt: Mapped[int]
    state: Mapped[str]
    failure_kind: Mapped[str | None]
    failure_detail: Mapped[str | None]
    pid: Mapped[int | None]
    pid_started_at: Mapped[float | None]
    token: Mapped[str] = mapped_column(unique=True)
    port: Mapped[int | None]
    facts: Mapped[EngineFacts | None] = mapped_column(Stored(EngineFacts))
    log: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime]
    ready_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class LoadPointRow(Base):
    """One finished load point. The unique key is the law: none is measured twice."""

    __tablename__ = "load_points"
    __table_args__ = (UniqueConstraint("trial_id", "role", "concurrency", "repeat"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    trial_id: Mapped[Id] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    engine_run_id: Mapped[Id] = mapped_column(ForeignKey("engine_runs.id", ondelete="CASCADE"))
    role: Mapped[str]
    concurrency: Mapped[int]
    repeat: Mapped[int]
    point: Mapped[LoadPoint] = mapped_column(Stored(LoadPoint))
    created_at: Mapped[datetime]


class RequestRecordsRow(Base):
    """Per-request records of a load point as compressed Parquet."""

    __tablename__ = "request_records"

    load_point_id: Mapped[Id] = mapped_column(
        ForeignKey("load_points.id", ondelete="CASCADE"), primary_key=True
    )
    body: Mapped[bytes] = mapped_column(LargeBinary)


class RecommendationRow(Base):
    """An immutable bundle and the state of its review."""

    __tablename__ = "recommendations"

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    study_id: Mapped[Id] = mapped_column(ForeignKey("studies.id"), unique=True)
    hash: Mapped[str] = mapped_column(index=True)
    body: Mapped[Recommendation] = mapped_column(Stored(Recommendation))
    state: Mapped[str]
    created_at: Mapped[datetime]


class ReviewRow(Base):
    """A named user's decision on one recommendation."""

    __tablename__ = "reviews"

    id: Mapped[Id] = mapped_column(primary_key=True)
    recommendation_id: Mapped[Id] = mapped_column(ForeignKey("recommendations.id"), index=True)
    recommendation_hash: Mapped[str]
    config_hash: Mapped[str]
    user_id: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    decision: Mapped[str]
    comment: Mapped[str]
    at: Mapped[datetime]


class DeploymentRow(Base):
    """An approved configuration that is wanted on a device. `wanted`: running or stopped."""

    __tablename__ = "deployments"
    __table_args__ = (UniqueConstraint("name", "generation"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    generation: Mapped[int]
    recommendation_id: Mapped[Id] = mapped_column(ForeignKey("recommendations.id"))
    target_id: Mapped[Id] = mapped_column(ForeignKey("targets.id"))
    device_class: Mapped[str]
    device_id: Mapped[Id | None] = mapped_column(ForeignKey("devices.id"))
    config: Mapped[ServingConfig] = mapped_column(Stored(ServingConfig))
    config_hash: Mapped[str]
    wanted: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str | None]
    host: Mapped[str | None]
    port: Mapped[int | None]
    served_model_name: Mapped[str | None]
    restarts: Mapped[int]
    drain_s: Mapped[float]
    created_by: Mapped[Id] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[datetime]
    ready_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
