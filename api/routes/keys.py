"""Users, their keys and projects."""

from fastapi import APIRouter, status

from api import views
from api.deps import Admin, Db, Service, Viewer, identifier
from api.inputs import KeyIn, ProjectIn, UserIn
from api.schemas import KeyCreated, Page, PrincipalView, ProjectView, UserView
from db import identity
from db.identity import Role

router = APIRouter(prefix="/v1", tags=["people"])


@router.get("/whoami")
def whoami(caller: Viewer, session: Db, service: Service) -> PrincipalView:
    """The caller's name, role and projects."""
    principal = caller.principal
    found = identity.projects(session, principal.project_ids)
    return PrincipalView(
        id=str(principal.user_id),
        name=principal.name,
        role=str(principal.role),
        projects=tuple(views.project(row) for row in found),
        single_user=service.settings.single_user,
    )


@router.get("/projects")
def list_projects(caller: Viewer, session: Db) -> Page[ProjectView]:
    """The caller's projects."""
    found = identity.projects(session, caller.principal.project_ids)
    return Page(items=tuple(views.project(row) for row in found), next=None)


@router.post("/projects", status_code=status.HTTP_201_CREATED)
def create_project(body: ProjectIn, caller: Admin, session: Db, service: Service) -> ProjectView:
    """A project with the caller as its first member."""
    principal = caller.principal
    row = identity.create_project(
        session,
        name=body.name,
        member_id=principal.user_id,
        actor=principal.actor,
        now=service.clock(),
    )
    service.keys.forget()
    return views.project(row)


@router.post("/users", status_code=status.HTTP_201_CREATED)
def create_user(body: UserIn, caller: Admin, session: Db, service: Service) -> UserView:
    """A user who is a member of the caller's projects (or of the one that X-Project names)."""
    row = identity.create_user(
        session,
        name=body.name,
        role=Role(body.role),
        project_ids=caller.scope,
        actor=caller.principal.actor,
        now=service.clock(),
    )
    return views.user(row)


@router.post("/users/{user_id}/keys", status_code=status.HTTP_201_CREATED)
def create_key(
    *, user_id: str, body: KeyIn, caller: Admin, session: Db, service: Service
) -> KeyCreated:
    """A key of a user; its plaintext is in this answer only."""
    made = identity.create_key(
        session,
        user_id=identifier("user", user_id),
        label=body.label,
        actor=caller.principal.actor,
        now=service.clock(),
        expires_at=body.expires_at,
    )
    return KeyCreated(key=views.key(made.row), plaintext=made.text)


@router.delete("/keys/{key_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_key(key_id: str, caller: Admin, session: Db, service: Service) -> None:
    """Make a key useless, at once in this process and within the cache time in others."""
    identity.revoke_key(session, key_id, actor=caller.principal.actor, now=service.clock())
    service.keys.forget()
