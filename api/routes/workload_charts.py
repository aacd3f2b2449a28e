"""Pictures of what an upload says."""

from uuid import UUID

from fastapi import APIRouter

from advisor.recommender.capacity import CacheSize, cache_size
from advisor.serving import ServingConfig
from api.auth import Caller
from api.charts.traffic import traffic_charts
from api.deps import Parts, Service, Viewer, identifier
from api.schemas import ChartView
from api.uploads import summary_under
from db import targets
from db.session import transaction

router = APIRouter(prefix="/v1/workloads", tags=["workloads"])


@router.get("/{workload_id}/charts")
def read_charts(
    workload_id: str, caller: Viewer, service: Service, target_id: str | None = None
) -> tuple[ChartView, ...]:
    """Lengths, arrivals, reuse and drafts; with a target, as its tokenizer counts."""
    wanted = None if target_id is None else identifier("target", target_id)
    found = summary_under(service, caller, identifier("workload", workload_id), wanted)
    return traffic_charts(found, cache=None if wanted is None else _cache(service, caller, wanted))


def _cache(parts: Parts, caller: Caller, target_id: UUID) -> CacheSize | None:
    """The KV cache of the target on its device, where both are known."""
    with transaction(parts.sessions) as session:
        target = targets.one(session, target_id, caller.scope)
    if target.shape is None or target.device is None:
        return None
    config = ServingConfig(functional=target.functional)
    return cache_size(target.shape, target.device, config)
