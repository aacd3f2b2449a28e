"""Engines and devices that agents registered."""

from fastapi import APIRouter

from api import views
from api.deps import Db, Paging, Viewer
from api.schemas import DeviceView, EngineView, Page
from db import devices, engines

router = APIRouter(prefix="/v1", tags=["engines"])


@router.get("/engines")
def list_engines(_: Viewer, session: Db, paging: Paging) -> Page[EngineView]:
    """Installed engines, newest first."""
    found = engines.page(session, limit=paging.limit, cursor=paging.cursor)
    return Page(items=tuple(views.engine(row) for row in found.items), next=found.next)


@router.get("/devices")
def list_devices(_: Viewer, session: Db, paging: Paging) -> Page[DeviceView]:
    """Devices that agents look after, newest first."""
    found = devices.page(session, limit=paging.limit, cursor=paging.cursor)
    items = tuple(views.device(row, devices.lease(session, row.id)) for row in found.items)
    return Page(items=items, next=found.next)
