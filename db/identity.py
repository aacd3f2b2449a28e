"""Users, their keys and the projects that they see."""

import re
import secrets
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error
from sqlalchemy import select
from sqlalchemy.orm import Session

from advisor.errors import InvalidInput, NotAllowed, NotFound
from db import audit
from db.audit import Actor
from db.identity_tables import KeyRow, MembershipRow, ProjectRow, UserRow
from db.paging import Page, page_of

KEY = re.compile(r"rt_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,62}")
DEFAULT_PROJECT = "default"
BOOTSTRAP = Actor(name="bootstrap")
# The secret has 256 random bits, so no table of guesses helps: OWASP's least memory is enough, and
# a verification takes some ten milliseconds.
HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
# Verified when the key's id is unknown, so that this takes as long as a wrong secret.
NO_KEY_HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA"
    "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)


class Role(StrEnum):
    """What a user may do; each role includes the ones before it."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    REVIEWER = "reviewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """Whether this role may do what `other` may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller; an admin's `project_ids` are all projects."""

    user_id: uuid.UUID
    name: str
    role: Role
    project_ids: frozenset[uuid.UUID]
    key_id: str | None = None

    @property
    def actor(self) -> Actor:
        """This caller in the audit."""
        return Actor(name=self.name, user_id=self.user_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key just made; `text` is shown once and kept nowhere."""

    row: KeyRow
    text: str


def utc_now() -> datetime:
    """The clock of the processes at the edge."""
    return datetime.now(UTC)


def create_user(
    session: Session,
    *,
    name: str,
    role: Role,
    project_ids: Iterable[uuid.UUID],
    actor: Actor,
    now: datetime,
) -> UserRow:
    """Add a user who sees the given projects; a taken name raises `AlreadyExists`."""
    if not NAME.fullmatch(name):
        raise InvalidInput("name", "1 to 63 letters, digits, spaces or . _ @ -")
    row = UserRow(id=uuid.uuid4(), name=name, role=role.value, created_at=now, disabled_at=None)
    session.add(row)
    session.flush()
    for project_id in set(project_ids):
        session.add(MembershipRow(user_id=row.id, project_id=project_id))
    session.flush()
    audit.write(
        session,
        actor=actor,
        action="create",
        noun="user",
        noun_id=row.id,
        now=now,
        detail={"name": name, "role": role.value},
    )
    return row


def user(session: Session, user_id: uuid.UUID) -> UserRow:
    """One user; raises `NotFound`."""
    row = session.get(UserRow, user_id)
    if row is None:
        raise NotFound("user", str(user_id))
    return row


def users(session: Session, *, limit: int, cursor: str | None) -> Page[UserRow]:
    """All users, newest first."""
    keys = (UserRow.created_at, UserRow.id)
    return page_of(session, select(UserRow), keys, limit=limit, cursor=cursor)


def create_key(
    session: Session,
    *,
    user_id: uuid.UUID,
    label: str,
    actor: Actor,
    now: datetime,
    expires_at: datetime | None = None,
) -> NewKey:
    """Make a key for a user: ``rt_<id>_<secret>``."""
    owner = user(session, user_id)
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expires_at", "lies in the past")
    secret = secrets.token_urlsafe(32)
    row = KeyRow(
        id=secrets.token_hex(6),
        user_id=owner.id,
        secret_hash=HASHER.hash(secret),
        label=label,
        created_at=now,
        expires_at=expires_at,
        revoked_at=None,
    )
    session.add(row)
    session.flush()
    detail = {"user": owner.name, "label": label}
    audit.write(
        session, actor=actor, action="create", noun="key", noun_id=row.id, now=now, detail=detail
    )
    return NewKey(row=row, text=f"rt_{row.id}_{secret}")


def revoke_key(session: Session, key_id: str, *, actor: Actor, now: datetime) -> KeyRow:
    """End a key now; a revoked one keeps its first time."""
    row = session.get(KeyRow, key_id)
    if row is None:
        raise NotFound("key", key_id)
    if row.revoked_at is None:
        row.revoked_at = now
        audit.write(session, actor=actor, action="revoke", noun="key", noun_id=key_id, now=now)
    return row


def keys(session: Session, user_id: uuid.UUID) -> list[KeyRow]:
    """Keys of a user, oldest first."""
    query = select(KeyRow).where(KeyRow.user_id == user_id)
    return list(session.scalars(query.order_by(KeyRow.created_at, KeyRow.id)))


def authenticate(session: Session, key_text: str, now: datetime) -> Principal:
    """Whose key this is; `NotAllowed` without a hint at what is wrong with it.

    A wrong secret and an unknown id take the same time.
    """
    match = KEY.fullmatch(key_text)
    found = None
    if match:
        query = select(KeyRow, UserRow).join(UserRow).where(KeyRow.id == match.group(1))
        found = session.execute(query).one_or_none()
    verified = _verified(found[0].secret_hash if found else NO_KEY_HASH, key_text.split("_", 2)[-1])
    if found is None or not verified:
        raise _refused()
    key, owner = found
    expired = key.expires_at is not None and key.expires_at <= now
    if expired or key.revoked_at is not None or owner.disabled_at is not None:
        raise _refused()
    role = Role(owner.role)
    return Principal(
        user_id=owner.id,
        name=owner.name,
        role=role,
        project_ids=_project_ids(session, owner.id, role),
        key_id=key.id,
    )


def _refused() -> NotAllowed:
    return NotAllowed("use this key", "it is unknown, expired or revoked: ask an admin for one")


def _verified(secret_hash: str, secret: str) -> bool:
    try:
        return HASHER.verify(secret_hash, secret)
    except Argon2Error:
        return False


def _project_ids(session: Session, user_id: uuid.UUID, role: Role) -> frozenset[uuid.UUID]:
    if role is Role.ADMIN:
        return frozenset(session.scalars(select(ProjectRow.id)))
    query = select(MembershipRow.project_id).where(MembershipRow.user_id == user_id)
    return frozenset(session.scalars(query))


def bootstrap_admin(session: Session, now: datetime) -> str | None:
    """The first admin with a key and the first project; None when an admin exists already."""
    session.connection().exec_driver_sql("LOCK TABLE users IN SHARE ROW EXCLUSIVE MODE")
    if session.scalars(select(UserRow.id).where(UserRow.role == Role.ADMIN.value).limit(1)).first():
        return None
    project = session.scalars(select(ProjectRow).where(ProjectRow.name == DEFAULT_PROJECT)).first()
    if project is None:
        project = ProjectRow(id=uuid.uuid4(), name=DEFAULT_PROJECT, created_at=now)
        session.add(project)
        session.flush()
    admin = create_user(
        session, name="admin", role=Role.ADMIN, project_ids=[project.id], actor=BOOTSTRAP, now=now
    )
    key = create_key(session, user_id=admin.id, label="bootstrap", actor=BOOTSTRAP, now=now)
    return key.text


def create_project(
    session: Session, *, name: str, member_id: uuid.UUID, actor: Actor, now: datetime
) -> ProjectRow:
    """A new project with its first member; a taken name raises `AlreadyExists`."""
    if not NAME.fullmatch(name):
        raise InvalidInput("name", "1 to 63 letters, digits, spaces or . _ @ -")
    row = ProjectRow(id=uuid.uuid4(), name=name, created_at=now)
    session.add(row)
    session.flush()
    audit.write(
        session,
        actor=actor,
        action="create",
        noun="project",
        noun_id=row.id,
        now=now,
        project_id=row.id,
        detail={"name": name},
    )
    add_member(session, user_id=member_id, project_id=row.id, actor=actor, now=now)
    return row


def projects(session: Session, project_ids: frozenset[uuid.UUID]) -> list[ProjectRow]:
    """These projects, oldest first."""
    query = select(ProjectRow).where(ProjectRow.id.in_(project_ids))
    return list(session.scalars(query.order_by(ProjectRow.created_at, ProjectRow.id)))


def add_member(
    session: Session,
    *,
    user_id: uuid.UUID,
    project_id: uuid.UUID,
    actor: Actor,
    now: datetime,
) -> None:
    """Let a user see a project; a second time changes nothing."""
    if session.get(MembershipRow, (user_id, project_id)) is not None:
        return
    session.add(MembershipRow(user_id=user(session, user_id).id, project_id=project_id))
    session.flush()
    audit.write(
        session,
        actor=actor,
        action="add_member",
        noun="project",
        noun_id=project_id,
        now=now,
        project_id=project_id,
        detail={"user": str(user_id)},
    )
