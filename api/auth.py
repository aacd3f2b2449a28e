"""Who is asking: a bearer key becomes a principal, a principal a caller in its projects."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from advisor.errors import InvalidInput, NotAllowed, NotFound
from api.errors import NotAuthenticated
from db.identity import Principal, Role

SCHEME = "bearer"
MOST_KEYS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A principal and the projects that this request is about."""

    principal: Principal
    scope: frozenset[UUID]

    @property
    def project_id(self) -> UUID:
        """The one project in which something is created."""
        if len(self.scope) != 1:
            raise InvalidInput("X-Project", f"name one of your {len(self.scope)} projects")
        return next(iter(self.scope))

    @property
    def narrowed(self) -> Principal:
        """The principal as one that sees these projects only."""
        return replace(self.principal, project_ids=self.scope)

    def require(self, role: Role) -> None:
        """Raise `NotAllowed` unless the principal's role includes `role`."""
        if not self.principal.role.includes(role):
            raise NotAllowed(
                f"do this as {self.principal.role}", f"it takes the role {role} or above"
            )


class KeyCache:
    """Principals of keys that were verified a moment ago; argon2 is slow on purpose.

    Keys are remembered by SHA-256 for `lifetime_s`, so a revocation takes at most that long
    to be felt in other processes.
    """

    def __init__(self, lifetime_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._known: dict[bytes, tuple[float, Principal]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, verify: Callable[[str], Principal]) -> Principal:
        """The principal of `key`, asking `verify` when it is not remembered."""
        digest = hashlib.sha256(key.encode()).digest()
        with self._lock:
            until, principal = self._known.get(digest, (0.0, None))
        if principal is not None and self._clock() < until:
            return principal
        principal = verify(key)
        with self._lock:
            if len(self._known) >= MOST_KEYS:
                self._known.clear()
            self._known[digest] = (self._clock() + self._lifetime_s, principal)
        return principal

    def forget(self) -> None:
        """Verify every key anew."""
        with self._lock:
            self._known.clear()


def bearer(header: str | None) -> str:
    """The key in an ``Authorization`` header."""
    if header is None:
        raise NotAuthenticated("no key was sent")
    scheme, _, key = header.partition(" ")
    if scheme.lower() != SCHEME or not key.strip():
        raise NotAuthenticated("the Authorization header holds no bearer key")
    return key.strip()


def narrowed(principal: Principal, project: str | None) -> Caller:
    """The caller in one of its projects (by id), or in all of them."""
    if project is None:
        return Caller(principal=principal, scope=principal.project_ids)
    wanted = [item for item in principal.project_ids if str(item) == project]
    if not wanted:
        raise NotFound("project", project)
    return Caller(principal=principal, scope=frozenset(wanted))
