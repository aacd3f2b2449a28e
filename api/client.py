"""The REST API as Python calls: one method per route, answers are the values of `api.schemas`.

Nothing of the server is imported here, so command line, dashboard and scripts know it by this only.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from api.calls.inputs import InputCalls
from api.calls.measurements import MeasurementCalls
from api.calls.people import PeopleCalls
from api.calls.serving import ServingCalls
from api.calls.studies import StudyCalls
from api.measured import NOT_USED, MeasurementView
from api.schemas import (
    AuditView,
    ChartView,
    DeploymentView,
    DeviceView,
    EngineView,
    EventView,
    FieldProblem,
    Health,
    KeyCreated,
    KeyView,
    Page,
    PrincipalView,
    Problem,
    ProjectView,
    RecommendationView,
    ReviewView,
    StudySummary,
    StudyView,
    TargetView,
    TrialView,
    UserView,
    WorkloadView,
)
from api.wire import Answer, ApiProblem

__all__ = [
    "NOT_USED",
    "Answer",
    "ApiProblem",
    "AuditView",
    "ChartView",
    "Client",
    "DeploymentView",
    "DeviceView",
    "EngineView",
    "EventView",
    "FieldProblem",
    "Health",
    "KeyCreated",
    "KeyView",
    "MeasurementView",
    "Page",
    "PrincipalView",
    "Problem",
    "ProjectView",
    "RecommendationView",
    "ReviewView",
    "StudySummary",
    "StudyView",
    "TargetView",
    "TrialView",
    "UserView",
    "WorkloadView",
    "every",
]

T = TypeVar("T")


class Client(PeopleCalls, InputCalls, StudyCalls, ServingCalls, MeasurementCalls):
    """A connection to one Rooftune service as one principal; use it as a context manager."""


def every(page_of: Callable[..., Page[T]], **options: Any) -> Iterator[T]:
    """All items of a list route: ``every(client.studies)``."""
    cursor = None
    while True:
        page = page_of(cursor=cursor, **options)
        yield from page.items
        cursor = page.next
        if cursor is None:
            return
