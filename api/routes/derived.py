"""Workloads that are made of others."""

from fastapi import APIRouter, status

from api.deps import IdempotencyKey, Service, Submitter
from api.derived import derive
from api.inputs import DerivedIn
from api.schemas import WorkloadView

router = APIRouter(prefix="/v1/workloads", tags=["workloads"])


@router.post("/derived", status_code=status.HTTP_201_CREATED)
def derive_workload(
    body: DerivedIn, caller: Submitter, service: Service, idempotency_key: IdempotencyKey = None
) -> WorkloadView:
    """The same traffic at another rate, drawn longer or shorter, or several workloads as one.

    Gaps are divided by `rate`; `requests` are drawn by sessions in stretches of time; ids, sessions
    and block ids of several workloads are kept apart. Privacy and retention are the strictest of
    the sources; it is purged with any of them.
    """
    return derive(service, caller, body, idempotency_key)
