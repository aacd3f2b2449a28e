"""Workloads: upload, read, delete."""

from typing import Annotated, BinaryIO
from uuid import UUID

from fastapi import APIRouter, Query, Request, status
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from advisor.errors import Unavailable
from advisor.hardware import DeviceFacts, datasheet
from advisor.recommender.outlook import Outlook, Served, outlook
from advisor.serving import ServingConfig
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.formats.options import SESSION_LENGTHS, TIME_UNITS
from advisor.traffic.trace import Privacy
from api import views
from api.auth import Caller
from api.deps import Db, IdempotencyKey, Paging, Parts, Service, Submitter, Viewer, identifier
from api.inputs import WorkloadIn
from api.schemas import Page, WorkloadView
from api.uploads import Upload, store, summary_under
from db import purges, targets, workloads
from db.session import transaction

MULTIPART = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "name"],
                    "additionalProperties": False,
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "name": {"type": "string"},
                        "target_id": {"type": "string", "format": "uuid"},
                        "privacy": {"type": "string", "enum": [mode.value for mode in Privacy]},
                        "retention_days": {"type": "integer", "minimum": 1},
                        "columns": {"type": "string", "contentMediaType": "application/json"},
                        "time_unit": {"type": "string", "enum": list(TIME_UNITS)},
                        "session_lengths": {"type": "string", "enum": list(SESSION_LENGTHS)},
                        "format": {"type": "string"},
                    },
                }
            }
        },
    }
}
HEADROOM_BYTES = 1 << 16
FIELD_BYTES = 16_384
MOST_FIELDS = 16
NO_FILE = {"type": "missing", "loc": ("body", "file"), "msg": "send the traffic file in this field"}


def router(upload_max_bytes: int) -> APIRouter:
    """The routes; the upload's takes bodies up to `upload_max_bytes`."""
    routes = APIRouter(prefix="/v1/workloads", tags=["workloads"])
    routes.add_api_route(
        "",
        upload_workload,
        methods=["POST"],
        status_code=status.HTTP_201_CREATED,
        openapi_extra=MULTIPART,
        max_body_size=upload_max_bytes + HEADROOM_BYTES,
    )
    routes.add_api_route("", list_workloads, methods=["GET"])
    routes.add_api_route("/{workload_id}", read_workload, methods=["GET"])
    routes.add_api_route(
        "/{workload_id}",
        delete_workload,
        methods=["DELETE"],
        status_code=status.HTTP_204_NO_CONTENT,
    )
    routes.add_api_route("/{workload_id}/summary", read_summary, methods=["GET"])
    routes.add_api_route("/{workload_id}/forecast", read_forecast, methods=["GET"])
    return routes


async def upload_workload(
    request: Request,
    caller: Submitter,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> WorkloadView:
    """Read a traffic file (JSONL or CSV); with `target_id` its tokens are counted as well."""
    # Read here, after the key was checked: a declared form would be spooled before that.
    async with request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=FIELD_BYTES) as form:
        fields = dict(form)
        file = fields.pop("file", None)
        settings = _checked(fields)
        if not isinstance(file, UploadFile):
            raise RequestValidationError([NO_FILE])
        upload = Upload(
            fields=settings,
            file=_of_the_system(file),
            filename=file.filename or "upload",
            bytes=file.size or 0,
        )
        return await run_in_threadpool(store, service, caller, upload, idempotency_key)


def _checked(fields: dict[str, UploadFile | str]) -> WorkloadIn:
    try:
        return WorkloadIn.model_validate(fields)
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from None


def _of_the_system(file: UploadFile) -> BinaryIO:
    """The upload as a file with a descriptor, which a child process can read."""
    rollover = getattr(file.file, "rollover", None)
    if rollover is not None:
        rollover()
    file.file.seek(0)
    return file.file


def list_workloads(caller: Viewer, session: Db, paging: Paging) -> Page[WorkloadView]:
    """Workloads of the caller's projects, newest first."""
    found = workloads.page(session, caller.scope, limit=paging.limit, cursor=paging.cursor)
    return Page(items=tuple(views.workload(row) for row in found.items), next=found.next)


def read_workload(workload_id: str, caller: Viewer, session: Db) -> WorkloadView:
    """One workload; of a purged one, which devices have removed what they held."""
    row = workloads.one(session, identifier("workload", workload_id), caller.scope)
    return views.workload(row, (views.sweep(*found) for found in purges.sweeps(session, row)))


def delete_workload(
    *, workload_id: str, caller: Submitter, session: Db, service: Service, purge: bool = False
) -> None:
    """Delete a workload and everything derived from it; one that a study used stays.

    With `purge` only its name and figures stay, whatever used it: texts, token columns, answers,
    per-request records, engine logs and weights that were calibrated on it go, here and on every
    device. It is refused while a study runs on it or a deployment serves such weights.
    """
    remove = purges.purge if purge else workloads.delete
    remove(
        session,
        identifier("workload", workload_id),
        caller.scope,
        actor=caller.principal.actor,
        now=service.clock(),
    )


def read_summary(
    workload_id: str, caller: Viewer, service: Service, target_id: str | None = None
) -> TrafficSummary:
    """What the upload says; with a target, as its tokenizer counts (computed when first asked)."""
    return summary_under(
        service,
        caller,
        identifier("workload", workload_id),
        None if target_id is None else identifier("target", target_id),
    )


def read_forecast(
    *,
    workload_id: str,
    caller: Viewer,
    service: Service,
    target_id: str | None = None,
    hardware: str | None = None,
    concurrency: Annotated[int, Query(ge=1, le=1024)] = 16,
) -> Outlook:
    """What the upload promises per technique before anything is started.

    `target_id` names model, settings and tokenizer, `hardware` a GPU of the built-in table that
    stands in for the target's device. Without a target only what lengths alone say.
    """
    card = None if hardware is None else datasheet(hardware)
    wanted = None if target_id is None else identifier("target", target_id)
    served = None if wanted is None else _served(service, caller, wanted, card)
    summary = summary_under(service, caller, identifier("workload", workload_id), wanted)
    return outlook(summary, served, concurrency=concurrency)


def _served(parts: Parts, caller: Caller, target_id: UUID, card: DeviceFacts | None) -> Served:
    """The target's model on its device or on `card`; one that was not inspected is not ready."""
    with transaction(parts.sessions) as session:
        target = targets.one(session, target_id, caller.scope)
    device = card or target.device
    if target.shape is None or device is None:
        remedy = "see its error" if target.error else "wait until it is ready"
        raise Unavailable(f"target {target.name!r} is {target.state}", remedy)
    return Served(
        model=target.shape,
        device=device,
        baseline=ServingConfig(functional=target.functional),
    )
