"""A database as the first version left it: one row of every noun, at revision 0001."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from db.stored import load
from tests.fakes.values import recommendation

SAVED = Path(__file__).resolve().parent.parent / "golden" / "stored"
BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
TABLES = (
    *("users", "projects", "memberships", "engines", "devices", "workloads", "workload_chunks"),
    *("targets", "studies", "trials", "engine_runs", "load_points", "request_records"),
    *("recommendations", "reviews"),
)
# Which saved file a column of bytes holds.
KINDS = {
    ("devices", "facts"): "DeviceFacts",
    ("workloads", "report"): "TraceReport",
    ("workloads", "summary"): "TrafficSummary",
    ("targets", "functional"): "FunctionalSettings",
    ("targets", "shape"): "ModelShape",
    ("targets", "device"): "DeviceFacts",
    ("studies", "goal"): "Goal",
    ("studies", "baseline"): "ServingConfig",
    ("trials", "plan"): "TrialPlan",
    ("engine_runs", "facts"): "EngineFacts",
    ("load_points", "point"): "LoadPoint",
    ("recommendations", "body"): "Recommendation",
}
# Some value of each other type of column.
SMALL: tuple[tuple[type[TypeEngine[Any]], object], ...] = (
    (JSONB, {}),
    (LargeBinary, b"body"),
    (Boolean, False),
    (Integer, 1),
    (Double, 1.0),
    (DateTime, BEGIN),
)
STATES = {
    "targets": "ready",
    "studies": "done",
    "trials": "done",
    "engine_runs": "stopped",
    "recommendations": "approved",
}


def saved(kind: str) -> bytes:
    """What the first version wrote of a kind."""
    return (SAVED / f"{kind}.1.json").read_bytes()


def identifier(table: str) -> uuid.UUID:
    """The id of the table's one row."""
    return uuid.uuid5(uuid.NAMESPACE_URL, table)


def furnish(connection: Connection) -> None:
    """One row in every table of `TABLES`, as their columns are at the database's revision."""
    known = MetaData()
    known.reflect(connection)
    for name in TABLES:
        table = known.tables[name]
        row = {
            column.name: _value(table, column)
            for column in table.columns
            if not column.nullable or (name, column.name) in KINDS
        }
        connection.execute(table.insert().values({**row, **_special(name)}))


def _special(table: str) -> Mapping[str, object]:
    """What a column's kind does not say."""
    bundle = load(type(recommendation()), saved("Recommendation"))
    approved = bundle.best.config_hash
    told: Mapping[str, Mapping[str, object]] = {
        "users": {"role": "admin"},
        "targets": {"model_digest": "m0"},
        "trials": {"key": "baseline"},
        "engine_runs": {"trial_id": identifier("trials"), "token": "t0"},
        "load_points": {"concurrency": 16, "repeat": 1},
        "recommendations": {"hash": "b0"},
        "reviews": {"recommendation_hash": "b0", "config_hash": approved, "decision": "approve"},
    }
    state = {"state": STATES[table]} if table in STATES else {}
    return {**told.get(table, {}), **state}


def _value(table: Table, column: Column[Any]) -> object:
    if column.foreign_keys:
        (key,) = column.foreign_keys
        return identifier(key.column.table.name)
    if isinstance(column.type, Uuid):
        return identifier(table.name)
    if isinstance(column.type, Text):
        return column.name
    if (table.name, column.name) in KINDS:
        return saved(KINDS[table.name, column.name])
    return next(value for kind, value in SMALL if isinstance(column.type, kind))
