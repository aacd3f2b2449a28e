"""Deployments: approved configurations that are wanted on a device."""

from fastapi import APIRouter, status

from api import views
from api.deps import (
    Ask,
    Db,
    IdempotencyKey,
    Operator,
    Paging,
    Service,
    Viewer,
    identifier,
    once,
)
from api.inputs import DeploymentIn
from api.schemas import DeploymentView, Page
from db import deployments

router = APIRouter(prefix="/v1/deployments", tags=["deployments"])


@router.post("", status_code=status.HTTP_202_ACCEPTED)
def deploy(
    *,
    body: DeploymentIn,
    caller: Operator,
    session: Db,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> DeploymentView:
    """Want an approved configuration served; an earlier one of that name is drained first."""

    def make() -> DeploymentView:
        row = deployments.create(
            session,
            name=body.name,
            recommendation_id=identifier("recommendation", body.recommendation_id),
            config_hash=body.config_hash,
            principal=caller.narrowed,
            now=service.clock(),
        )
        return views.deployment(row, service.settings.proxy_url)

    ask = Ask.of(caller, idempotency_key, "POST /v1/deployments", body)
    return once(
        session, ask, DeploymentView, make, status=status.HTTP_202_ACCEPTED, now=service.clock()
    )


@router.get("")
def list_deployments(
    caller: Viewer, session: Db, service: Service, paging: Paging
) -> Page[DeploymentView]:
    """Deployments of the caller's projects, newest first."""
    found = deployments.page(session, caller.scope, limit=paging.limit, cursor=paging.cursor)
    url = service.settings.proxy_url
    return Page(items=tuple(views.deployment(row, url) for row in found.items), next=found.next)


@router.get("/{deployment_id}")
def read_deployment(
    deployment_id: str, caller: Viewer, session: Db, service: Service
) -> DeploymentView:
    """One deployment."""
    row = deployments.one(session, identifier("deployment", deployment_id), caller.scope)
    return views.deployment(row, service.settings.proxy_url)


@router.post("/{deployment_id}/stop", status_code=status.HTTP_202_ACCEPTED)
def stop_deployment(
    deployment_id: str, caller: Operator, session: Db, service: Service
) -> DeploymentView:
    """Drain and stop; asking twice is asking once."""
    row = deployments.request_stop(
        session,
        identifier("deployment", deployment_id),
        caller.scope,
        actor=caller.principal.actor,
        now=service.clock(),
    )
    return views.deployment(row, service.settings.proxy_url)
