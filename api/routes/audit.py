"""Who changed what."""

from fastapi import APIRouter

from api import views
from api.deps import Admin, Db, Paging
from api.schemas import AuditView, Page
from db import audit

router = APIRouter(prefix="/v1/audit", tags=["audit"])


@router.get("")
def list_audit(caller: Admin, session: Db, paging: Paging) -> Page[AuditView]:
    """Changes in the caller's projects, newest first."""
    found = audit.page(session, caller.scope, limit=paging.limit, cursor=paging.cursor)
    return Page(items=tuple(views.audit(row) for row in found.items), next=found.next)
