"""Calls about the service itself, people, keys and what was changed."""

from datetime import datetime

from api.calls.connection import Connection, page_of, part
from api.schemas import (
    AuditView,
    Health,
    KeyCreated,
    Page,
    PrincipalView,
    ProjectView,
    UserView,
)


class PeopleCalls(Connection):
    """Service and people."""

    def health(self) -> Health:
        """Whether the process answers."""
        return self._wire.get("/healthz", Health)

    def ready(self) -> Health:
        """Whether database and schema are there; raises `ApiProblem` 503 if not."""
        return self._wire.get("/readyz", Health)

    def whoami(self) -> PrincipalView:
        """The caller, its role and its projects."""
        return self._wire.get("/v1/whoami", PrincipalView)

    def projects(self) -> Page[ProjectView]:
        """The caller's projects."""
        return self._wire.get("/v1/projects", Page[ProjectView])

    def create_project(self, name: str) -> ProjectView:
        """A project of which the caller is a member."""
        return self._wire.post("/v1/projects", ProjectView, {"name": name})

    def create_user(self, name: str, role: str) -> UserView:
        """A user in the caller's project."""
        return self._wire.post("/v1/users", UserView, {"name": name, "role": role})

    def create_key(
        self, user_id: str, label: str, *, expires_at: datetime | None = None
    ) -> KeyCreated:
        """A key whose plaintext is in this answer only."""
        expiry = expires_at.isoformat() if expires_at else None
        body = {"label": label, "expires_at": expiry}
        return self._wire.post(f"/v1/users/{part(user_id)}/keys", KeyCreated, body)

    def revoke_key(self, key_id: str) -> None:
        """Make a key useless."""
        self._wire.send("DELETE", f"/v1/keys/{part(key_id)}")

    def audit(self, *, limit: int = 50, cursor: str | None = None) -> Page[AuditView]:
        """Who changed what, newest first."""
        return self._wire.get("/v1/audit", Page[AuditView], page_of(limit, cursor))
