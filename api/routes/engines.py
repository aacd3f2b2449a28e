"""Engines and devices that agents registered."""

from fastapi import APIRouter, status

from advisor.failures import RememberedFailure
from api import views
from api.deps import Db, Operator, Paging, Service, Viewer, identifier
from api.schemas import DeviceView, EngineView, Page
from db import devices, engine_failures, engines

router = APIRouter(prefix="/v1", tags=["engines"])


@router.get("/engines")
def list_engines(_: Viewer, session: Db, paging: Paging) -> Page[EngineView]:
    """Installed engines, newest first."""
    found = engines.page(session, limit=paging.limit, cursor=paging.cursor)
    return Page(items=tuple(views.engine(row) for row in found.items), next=found.next)


@router.get("/engines/{engine_id}/failures")
def list_failures(engine_id: str, _: Viewer, session: Db) -> tuple[RememberedFailure, ...]:
    """What this engine's version and build failed at and is not started with again."""
    row = engines.one(session, identifier("engine", engine_id))
    return engine_failures.of_engine(session, row)


@router.delete("/engines/{engine_id}/failures", status_code=status.HTTP_204_NO_CONTENT)
def forget_failures(engine_id: str, caller: Operator, session: Db, service: Service) -> None:
    """Forget them: the next study tries them again."""
    row = engines.one(session, identifier("engine", engine_id))
    engine_failures.forget(session, row, actor=caller.principal.actor, now=service.clock())


@router.get("/devices")
def list_devices(_: Viewer, session: Db, paging: Paging) -> Page[DeviceView]:
    """Devices that agents look after, newest first."""
    found = devices.page(session, limit=paging.limit, cursor=paging.cursor)
    items = tuple(views.device(row, devices.lease(session, row.id)) for row in found.items)
    return Page(items=items, next=found.next)
