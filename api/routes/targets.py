"""Targets: a model on a device class with an engine. An agent inspects them."""

from fastapi import APIRouter, status
from sqlalchemy.orm import Session

from advisor.errors import InvalidInput, Unavailable
from api import views
from api.deps import (
    Ask,
    Db,
    IdempotencyKey,
    Paging,
    Service,
    Submitter,
    Viewer,
    identifier,
    once,
)
from api.inputs import TargetIn
from api.schemas import Page, TargetView
from db import devices, engines, targets
from db.tables import EngineRow

router = APIRouter(prefix="/v1/targets", tags=["targets"])


@router.post("", status_code=status.HTTP_202_ACCEPTED)
def create_target(
    *,
    body: TargetIn,
    caller: Submitter,
    session: Db,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> TargetView:
    """Have an agent of the device class inspect a model; `state` tells when it has."""

    def make() -> TargetView:
        new = targets.NewTarget(
            project_id=caller.project_id,
            name=body.name,
            model=body.model,
            engine_id=_engine(session, body.engine_id).id,
            device_class=_device_class(session, body.device_class),
            functional=body.functional.to_domain(),
        )
        principal = caller.principal
        row = targets.create(
            session,
            new,
            created_by=principal.user_id,
            actor=principal.actor,
            now=service.clock(),
        )
        return views.target(row)

    ask = Ask.of(caller, idempotency_key, "POST /v1/targets", body)
    return once(
        session, ask, TargetView, make, status=status.HTTP_202_ACCEPTED, now=service.clock()
    )


def _engine(session: Session, engine_id: str | None) -> EngineRow:
    if engine_id is not None:
        return engines.one(session, identifier("engine", engine_id))
    newest = engines.newest(session)
    if newest is None:
        raise Unavailable("no engine is registered yet", "wait for an agent, or see its log")
    return newest


def _device_class(session: Session, wanted: str | None) -> str:
    """The class asked for, or the only one there is."""
    known = sorted(devices.classes(session))
    if wanted is not None and wanted in known:
        return wanted
    if wanted is not None:
        raise InvalidInput("device_class", f"no agent has it; known: {', '.join(known) or 'none'}")
    if not known:
        raise Unavailable("no device is registered yet", "wait for an agent, or see its log")
    if len(known) > 1:
        raise InvalidInput("device_class", f"name one of {', '.join(known)}")
    return known[0]


@router.get("")
def list_targets(caller: Viewer, session: Db, paging: Paging) -> Page[TargetView]:
    """Targets of the caller's projects, newest first."""
    found = targets.page(session, caller.scope, limit=paging.limit, cursor=paging.cursor)
    return Page(items=tuple(views.target(row) for row in found.items), next=found.next)


@router.get("/{target_id}")
def read_target(target_id: str, caller: Viewer, session: Db) -> TargetView:
    """One target."""
    return views.target(targets.one(session, identifier("target", target_id), caller.scope))
