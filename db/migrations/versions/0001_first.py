"""First schema: everything, and procrastinate's tables from its own schema file."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from procrastinate.schema import SchemaManager
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import TypeEngine

DROP_PROCRASTINATE = """
DO $$
DECLARE item text;
BEGIN
    FOR item IN
        SELECT format('TABLE %I', tablename) FROM pg_tables
            WHERE schemaname = current_schema() AND starts_with(tablename, 'procrastinate_')
        UNION ALL SELECT format('FUNCTION %s', p.oid::regprocedure) FROM pg_proc p
            WHERE pronamespace = current_schema()::regnamespace
            AND starts_with(proname, 'procrastinate_')
        UNION ALL SELECT format('TYPE %I', typname) FROM pg_type
            WHERE typnamespace = current_schema()::regnamespace
            AND starts_with(typname, 'procrastinate_')
    LOOP
        EXECUTE format('DROP %s CASCADE', regexp_replace(item, ' ', ' IF EXISTS '));
    END LOOP;
END;
$$
"""
revision = "0001"
down_revision = None
ID, TEXT, BYTES = sa.Uuid(), sa.Text(), sa.LargeBinary()
INT, BIG, FLAG = sa.Integer(), sa.BigInteger(), sa.Boolean()
REAL: TypeEngine[Any] = sa.Double()
TIME = sa.DateTime(timezone=True)
JSON = postgresql.JSONB(astext_type=TEXT)


def _must(kind: TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _may(kind: TypeEngine[Any], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def _key(table: str, *names: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*names, name=f"pk_{table}")


def _only(table: str, *names: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*names, name=f"uq_{table}_{'_'.join(names)}")


def _to(table: str, name: str, other: str, *, cascade: bool = False) -> sa.ForeignKeyConstraint:
    label, ondelete = f"fk_{table}_{name}_{other}", "CASCADE" if cascade else None
    return sa.ForeignKeyConstraint([name], [f"{other}.id"], name=label, ondelete=ondelete)


def upgrade() -> None:
    """From nothing to the first release."""
    _people()
    _journal()
    _machines()
    _inputs()
    _studies()
    _advice()
    _measurements()
    _script(SchemaManager.get_schema())


def downgrade() -> None:
    """Back to nothing; all data goes."""
    _script(DROP_PROCRASTINATE)
    ours = sa.MetaData()
    ours.reflect(op.get_bind())
    ours.remove(ours.tables["alembic_version"])
    ours.drop_all(op.get_bind())


def _script(sql: str) -> None:
    """Several statements, in which the driver must not look for placeholders."""
    op.get_bind().exec_driver_sql(sql, execution_options={"no_parameters": True})


def _people() -> None:
    op.create_table(
        "projects",
        *_must(ID, "id"),
        *_must(TEXT, "name"),
        *_must(TIME, "created_at"),
        _key("projects", "id"),
        _only("projects", "name"),
    )
    op.create_table(
        "users",
        *_must(ID, "id"),
        *_must(TEXT, "name", "role"),
        *_must(TIME, "created_at"),
        *_may(TIME, "disabled_at"),
        _key("users", "id"),
        _only("users", "name"),
    )
    op.create_table(
        "api_keys",
        *_must(TEXT, "id"),
        *_must(ID, "user_id"),
        *_must(TEXT, "secret_hash", "label"),
        *_must(TIME, "created_at"),
        *_may(TIME, "expires_at", "revoked_at"),
        _to("api_keys", "user_id", "users"),
        _key("api_keys", "id"),
    )
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"])
    op.create_table(
        "memberships",
        *_must(ID, "user_id", "project_id"),
        _to("memberships", "project_id", "projects"),
        _to("memberships", "user_id", "users"),
        _key("memberships", "user_id", "project_id"),
    )


def _journal() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        *_must(TIME, "at"),
        *_may(ID, "user_id", "project_id"),
        *_must(TEXT, "actor", "action", "noun", "noun_id"),
        *_must(JSON, "detail"),
        _to("audit", "project_id", "projects"),
        _to("audit", "user_id", "users"),
        _key("audit", "id"),
    )
    op.create_index("ix_audit_project_id", "audit", ["project_id"])
    op.create_table(
        "events",
        sa.Column("id", BIG, autoincrement=True, nullable=False),
        *_must(TIME, "at"),
        *_must(TEXT, "noun", "noun_id", "kind"),
        *_must(JSON, "body"),
        _key("events", "id"),
    )
    op.create_index("ix_events_noun_noun_id_id", "events", ["noun", "noun_id", "id"])
    op.create_table(
        "idempotency_keys",
        *_must(ID, "user_id"),
        *_must(TEXT, "key", "route", "request_digest"),
        *_must(INT, "status"),
        *_must(JSON, "body"),
        *_must(TIME, "created_at"),
        _to("idempotency_keys", "user_id", "users"),
        _key("idempotency_keys", "user_id", "key"),
    )


def _machines() -> None:
    op.create_table(
        "devices",
        *_must(ID, "id"),
        *_must(TEXT, "host", "name", "device_class"),
        *_may(BYTES, "facts"),
        *_may(TEXT, "facts_boot_id"),
        *_may(TIME, "agent_seen_at"),
        *_must(TIME, "created_at"),
        _key("devices", "id"),
        _only("devices", "host", "name"),
    )
    op.create_index("ix_devices_device_class", "devices", ["device_class"])
    op.create_table(
        "device_leases",
        *_must(ID, "device_id"),
        *_may(TEXT, "holder"),
        *_must(BIG, "fencing_token"),
        *_may(TEXT, "purpose"),
        *_may(TIME, "heartbeat_at", "expires_at"),
        _to("device_leases", "device_id", "devices"),
        _key("device_leases", "device_id"),
    )
    op.create_table(
        "engines",
        *_must(ID, "id"),
        *_must(TEXT, "name", "host", "interpreter"),
        *_may(TEXT, "launcher"),
        *_must(TEXT, "version", "distribution", "build"),
        *_must(JSON, "flags"),
        *_must(TIME, "created_at"),
        _key("engines", "id"),
        _only("engines", "host", "interpreter", "version"),
    )


def _inputs() -> None:
    op.create_table(
        "workloads",
        *_must(ID, "id", "project_id"),
        *_must(TEXT, "name"),
        *_must(ID, "created_by"),
        *_must(TIME, "created_at"),
        *_must(TEXT, "digest"),
        *_must(INT, "requests"),
        *_must(BIG, "bytes"),
        *_must(BYTES, "report", "summary"),
        _to("workloads", "created_by", "users"),
        _to("workloads", "project_id", "projects"),
        _key("workloads", "id"),
    )
    op.create_index("ix_workloads_project_id", "workloads", ["project_id"])
    op.create_table(
        "workload_chunks",
        *_must(ID, "workload_id"),
        *_must(INT, "seq"),
        *_must(BYTES, "body"),
        _to("workload_chunks", "workload_id", "workloads", cascade=True),
        _key("workload_chunks", "workload_id", "seq"),
    )
    op.create_table(
        "targets",
        *_must(ID, "id", "project_id"),
        *_must(TEXT, "name"),
        *_must(ID, "created_by"),
        *_must(TIME, "created_at"),
        *_must(TEXT, "model"),
        *_must(ID, "engine_id"),
        *_must(TEXT, "device_class"),
        *_must(BYTES, "functional"),
        *_must(TEXT, "state"),
        *_may(TEXT, "error", "model_path", "model_digest"),
        *_may(BYTES, "shape", "device", "tokenizer"),
        *_may(TEXT, "tokenizer_digest", "chat_template", "template_digest"),
        _to("targets", "created_by", "users"),
        _to("targets", "engine_id", "engines"),
        _to("targets", "project_id", "projects"),
        _key("targets", "id"),
    )
    op.create_index("ix_targets_project_id", "targets", ["project_id"])
    op.create_index("ix_targets_state", "targets", ["state"])
    op.create_table(
        "token_columns",
        *_must(ID, "workload_id"),
        *_must(TEXT, "tokenizer_digest", "template_digest"),
        *_must(BYTES, "summary", "body"),
        _to("token_columns", "workload_id", "workloads", cascade=True),
        _key("token_columns", "workload_id", "tokenizer_digest", "template_digest"),
    )


def _studies() -> None:
    op.create_table(
        "studies",
        *_must(ID, "id", "project_id"),
        *_must(TEXT, "name"),
        *_must(ID, "workload_id", "target_id"),
        *_must(TEXT, "device_class"),
        *_may(ID, "device_id"),
        *_must(BYTES, "goal", "baseline"),
        *_must(REAL, "budget_s"),
        *_must(INT, "requests_per_point"),
        *_may(JSON, "techniques"),
        *_must(INT, "seed"),
        *_must(TEXT, "state"),
        *_may(TEXT, "error"),
        *_must(REAL, "progress"),
        *_may(REAL, "remaining_s"),
        *_must(FLAG, "cancel_requested"),
        *_must(ID, "created_by"),
        *_must(TIME, "created_at"),
        *_may(TIME, "started_at", "ended_at"),
        _to("studies", "created_by", "users"),
        _to("studies", "device_id", "devices"),
        _to("studies", "project_id", "projects"),
        _to("studies", "target_id", "targets"),
        _to("studies", "workload_id", "workloads"),
        _key("studies", "id"),
    )
    op.create_index("ix_studies_device_id", "studies", ["device_id"])
    op.create_index("ix_studies_project_id", "studies", ["project_id"])
    op.create_index("ix_studies_state", "studies", ["state"])
    op.create_table(
        "trials",
        *_must(ID, "id", "study_id"),
        *_must(INT, "seq"),
        *_must(TEXT, "key"),
        *_must(BYTES, "plan"),
        *_must(TEXT, "config_hash", "state"),
        *_may(TEXT, "failure_kind", "reason"),
        *_must(TIME, "created_at"),
        *_may(TIME, "started_at", "ended_at"),
        _to("trials", "study_id", "studies", cascade=True),
        _key("trials", "id"),
        _only("trials", "study_id", "key"),
    )
    op.create_index("ix_trials_study_id", "trials", ["study_id"])


def _advice() -> None:
    op.create_table(
        "recommendations",
        *_must(ID, "id", "project_id", "study_id"),
        *_must(TEXT, "hash"),
        *_must(BYTES, "body"),
        *_must(TEXT, "state"),
        *_must(TIME, "created_at"),
        _to("recommendations", "project_id", "projects"),
        _to("recommendations", "study_id", "studies"),
        _key("recommendations", "id"),
        _only("recommendations", "study_id"),
    )
    op.create_index("ix_recommendations_hash", "recommendations", ["hash"])
    op.create_index("ix_recommendations_project_id", "recommendations", ["project_id"])
    op.create_table(
        "reviews",
        *_must(ID, "id", "recommendation_id"),
        *_must(TEXT, "recommendation_hash", "config_hash"),
        *_must(ID, "user_id"),
        *_must(TEXT, "decision", "comment"),
        *_must(TIME, "at"),
        _to("reviews", "recommendation_id", "recommendations"),
        _to("reviews", "user_id", "users"),
        _key("reviews", "id"),
    )
    op.create_index("ix_reviews_recommendation_id", "reviews", ["recommendation_id"])
    op.create_table(
        "deployments",
        *_must(ID, "id", "project_id"),
        *_must(TEXT, "name"),
        *_must(INT, "generation"),
        *_must(ID, "recommendation_id", "target_id"),
        *_must(TEXT, "device_class"),
        *_may(ID, "device_id"),
        *_must(BYTES, "config"),
        *_must(TEXT, "config_hash", "wanted", "state"),
        *_may(TEXT, "reason", "host"),
        *_may(INT, "port"),
        *_may(TEXT, "served_model_name"),
        *_must(INT, "restarts"),
        *_must(REAL, "drain_s"),
        *_must(ID, "created_by"),
        *_must(TIME, "created_at"),
        *_may(TIME, "ready_at", "ended_at"),
        _to("deployments", "created_by", "users"),
        _to("deployments", "device_id", "devices"),
        _to("deployments", "project_id", "projects"),
        _to("deployments", "recommendation_id", "recommendations"),
        _to("deployments", "target_id", "targets"),
        _key("deployments", "id"),
        _only("deployments", "name", "generation"),
    )
    op.create_index("ix_deployments_project_id", "deployments", ["project_id"])
    op.create_index("ix_deployments_state", "deployments", ["state"])


def _measurements() -> None:
    op.create_table(
        "engine_runs",
        *_must(ID, "id"),
        *_may(ID, "trial_id", "deployment_id"),
        *_must(ID, "device_id"),
        *_must(BIG, "fencing_token"),
        *_must(INT, "attempt"),
        *_must(TEXT, "state"),
        *_may(TEXT, "failure_kind", "failure_detail"),
        *_may(INT, "pid"),
        *_may(REAL, "pid_started_at"),
        *_must(TEXT, "token"),
        *_may(INT, "port"),
        *_may(BYTES, "facts", "log"),
        *_must(TIME, "created_at"),
        *_may(TIME, "ready_at", "ended_at"),
        sa.CheckConstraint("(trial_id IS NULL) <> (deployment_id IS NULL)", name="one_owner"),
        _to("engine_runs", "deployment_id", "deployments"),
        _to("engine_runs", "device_id", "devices"),
        _to("engine_runs", "trial_id", "trials", cascade=True),
        _key("engine_runs", "id"),
        _only("engine_runs", "token"),
    )
    op.create_index("ix_engine_runs_deployment_id", "engine_runs", ["deployment_id"])
    op.create_index("ix_engine_runs_trial_id", "engine_runs", ["trial_id"])
    op.create_table(
        "load_points",
        *_must(ID, "id", "trial_id", "engine_run_id"),
        *_must(INT, "concurrency", "repeat"),
        *_must(BYTES, "point"),
        *_must(TIME, "created_at"),
        _to("load_points", "engine_run_id", "engine_runs", cascade=True),
        _to("load_points", "trial_id", "trials", cascade=True),
        _key("load_points", "id"),
        _only("load_points", "trial_id", "concurrency", "repeat"),
    )
    op.create_index("ix_load_points_trial_id", "load_points", ["trial_id"])
    op.create_table(
        "request_records",
        *_must(ID, "load_point_id"),
        *_must(BYTES, "body"),
        _to("request_records", "load_point_id", "load_points", cascade=True),
        _key("request_records", "load_point_id"),
    )
