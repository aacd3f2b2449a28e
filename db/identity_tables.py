"""Rows of people, projects and access, and what is remembered of every change."""

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base

Id = uuid.UUID


class UserRow(Base):
    """A named principal. `role`: viewer, submitter, reviewer, operator or admin."""

    __tablename__ = "users"

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    role: Mapped[str]
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]


class KeyRow(Base):
    """An API key: `rt_<id>_<secret>`; only an argon2 hash of the secret is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[Id] = mapped_column(ForeignKey("users.id"), index=True)
    secret_hash: Mapped[str]
    label: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class ProjectRow(Base):
    """Projects do not see each other."""

    __tablename__ = "projects"

    id: Mapped[Id] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]


class MembershipRow(Base):
    """Which users see which project."""

    __tablename__ = "memberships"

    user_id: Mapped[Id] = mapped_column(ForeignKey("users.id"), primary_key=True)
    project_id: Mapped[Id] = mapped_column(ForeignKey("projects.id"), primary_key=True)


class AuditRow(Base):
    """Who changed what: written in the transaction of the change."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    user_id: Mapped[Id | None] = mapped_column(ForeignKey("users.id"))
    project_id: Mapped[Id | None] = mapped_column(ForeignKey("projects.id"), index=True)
    actor: Mapped[str]
    action: Mapped[str]
    noun: Mapped[str]
    noun_id: Mapped[str]
    detail: Mapped[dict[str, Any]]


class EventRow(Base):
    """Progress of a noun, read in order by `id` (server-sent events resume from it)."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_noun_noun_id_id", "noun", "noun_id", "id"),)

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=True)
    at: Mapped[datetime]
    noun: Mapped[str]
    noun_id: Mapped[str]
    kind: Mapped[str]
    body: Mapped[dict[str, Any]]


class IdempotencyRow(Base):
    """The answer that a POST with this `Idempotency-Key` got the first time."""

    __tablename__ = "idempotency_keys"

    user_id: Mapped[Id] = mapped_column(ForeignKey("users.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    route: Mapped[str]
    request_digest: Mapped[str]
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
