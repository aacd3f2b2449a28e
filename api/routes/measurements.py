"""Measurements that no study made: import, read, export, delete."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response, status
from starlette.concurrency import run_in_threadpool

from advisor.measurement.imports.reading import MOST_BYTES
from api import benchmark_reports, views
from api.deps import Db, IdempotencyKey, Paging, Service, Submitter, Viewer, identifier
from api.measured import MeasurementView
from api.results import Result, keep
from api.schemas import Page
from db import measurements, studies

NOUN = measurements.NOUN
BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {}}, "application/jsonl": {"schema": {}}},
    }
}
Form = Annotated[Literal["json", "yaml"], Query()]
Place = Annotated[int | None, Query(ge=0, description="One load alone, counted from 0.")]
EXPORTED: dict[int | str, dict[str, object]] = {
    status.HTTP_200_OK: {
        "description": "Benchmark reports",
        "content": {kind: {} for kind in benchmark_reports.MEDIA_TYPES.values()},
    }
}
router = APIRouter(tags=["measurements"])


async def import_measurement(
    *,
    request: Request,
    caller: Submitter,
    service: Service,
    target_id: str | None = None,
    idempotency_key: IdempotencyKey = None,
) -> MeasurementView:
    """Read the result file of another tool, or a report of `rooftune measure`; keep its figures.

    Figures, names and versions are kept; the file, its prompts and answers are not.
    """
    result = Result(body=await request.body(), target_id=target_id)
    return await run_in_threadpool(keep, service, caller, result, idempotency_key)


router.add_api_route(
    "/v1/measurements",
    import_measurement,
    methods=["POST"],
    status_code=status.HTTP_201_CREATED,
    openapi_extra=BODY,
    max_body_size=MOST_BYTES,
)


@router.get("/v1/measurements")
def list_measurements(
    caller: Viewer, session: Db, paging: Paging, target_id: str | None = None
) -> Page[MeasurementView]:
    """Measurements of the caller's projects, newest first; of one target if given."""
    found = measurements.page(
        session,
        caller.scope,
        limit=paging.limit,
        cursor=paging.cursor,
        target_id=None if target_id is None else identifier("target", target_id),
    )
    items = tuple(views.measurement(row, whole=False) for row in found.items)
    return Page(items=items, next=found.next)


@router.get("/v1/measurements/{measurement_id}")
def read_measurement(measurement_id: str, caller: Viewer, session: Db) -> MeasurementView:
    """One measurement with all that is known of its loads."""
    identified = identifier(NOUN, measurement_id)
    return views.measurement(measurements.one(session, identified, caller.scope))


@router.delete("/v1/measurements/{measurement_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_measurement(
    measurement_id: str, caller: Submitter, session: Db, service: Service
) -> None:
    """Delete a measurement; nothing is computed from it, so nothing else changes."""
    measurements.delete(
        session,
        identifier(NOUN, measurement_id),
        caller.scope,
        actor=caller.principal.actor,
        now=service.clock(),
    )


@router.get(
    "/v1/measurements/{measurement_id}/benchmark-report",
    response_class=Response,
    responses=EXPORTED,
)
def export_measurement(
    *,
    measurement_id: str,
    caller: Viewer,
    session: Db,
    form: Form = "json",
    load: Place = None,
) -> Response:
    """The usable loads of a measurement as llm-d benchmark reports (schema 0.2.1)."""
    row = measurements.one(session, identifier(NOUN, measurement_id), caller.scope)
    return _exported(benchmark_reports.of_measurement(row), form, load)


@router.get(
    "/v1/studies/{study_id}/benchmark-report",
    response_class=Response,
    responses=EXPORTED,
)
def export_study(
    *, study_id: str, caller: Viewer, session: Db, form: Form = "json", load: Place = None
) -> Response:
    """The usable loads of a study's trials as llm-d benchmark reports (schema 0.2.1)."""
    row = studies.one(session, identifier("study", study_id), caller.scope)
    return _exported(benchmark_reports.of_study(session, row), form, load)


def _exported(
    reports: tuple[benchmark_reports.Report, ...], form: str, load: int | None
) -> Response:
    return Response(
        benchmark_reports.written(reports, form, load),
        media_type=benchmark_reports.MEDIA_TYPES[form],
        headers={"x-content-type-options": "nosniff"},
    )
