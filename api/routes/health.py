"""Whether the process lives, whether it can work, and what it did. No key is asked for."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text

from advisor.errors import Unavailable
from api.deps import Db, Service
from api.schemas import Health
from db import migrate

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Health:
    """The process answers."""
    return Health(status="ok", checks={})


@router.get("/readyz")
def readyz(session: Db, service: Service) -> Health:
    """Database and schema are there; else 503."""
    session.execute(text("SELECT 1"))
    found, wanted = migrate.current(service.settings.database_url), migrate.head()
    if found != wanted:
        raise Unavailable(f"the schema is at {found}, not {wanted}", "run `rooftune up`")
    return Health(status="ok", checks={"database": "ok", "schema": str(wanted)})


@router.get("/metrics", response_class=Response)
def metrics(service: Service) -> Response:
    """Prometheus text: requests by route and status."""
    return Response(generate_latest(service.figures.registry), media_type=CONTENT_TYPE_LATEST)
