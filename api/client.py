"""The REST API as Python calls: one method per route, answers are the values of `api.schemas`.

Nothing of the server is imported here, so command line, dashboard and scripts know it by this only.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from advisor.canonical import as_json
from advisor.goal import Goal
from advisor.serving import FunctionalSettings, Levers
from advisor.traffic.trace import TrafficSummary
from api.codec import read
from api.schemas import (
    AuditView,
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
from api.wire import Answer, ApiProblem, Wire

__all__ = [
    "Answer",
    "ApiProblem",
    "AuditView",
    "Client",
    "DeploymentView",
    "DeviceView",
    "EngineView",
    "EventView",
    "FieldProblem",
    "Health",
    "KeyCreated",
    "KeyView",
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
TIMEOUT_S = 60.0
UPLOAD_TIMEOUT_S = 900.0
RESUME_ATTEMPTS = 5


class Client:
    """A connection to one Rooftune service as one principal; use it as a context manager.

    A refused request raises `ApiProblem`, a service that does not answer `Unavailable`.
    `transport` is for tests.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        project: str | None = None,
        timeout_s: float = TIMEOUT_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        if project is not None:
            headers["x-project"] = project
        self.base_url = base_url.rstrip("/")
        self._wire = Wire(
            httpx.Client(
                base_url=self.base_url, headers=headers, timeout=timeout_s, transport=transport
            )
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._wire.http.close()

    # ---- service and people

    def health(self) -> Health:
        """Whether the process answers."""
        return self._wire.get("/healthz", Health)

    def ready(self) -> Health:
        """Whether database and schema are there; raises `ApiProblem` 503 if not."""
        return self._wire.get("/readyz", Health)

    def whoami(self) -> PrincipalView:
        """The caller, its role and its projects."""
        return self._wire.get("/v1/whoami", PrincipalView)

    def projects(self) -> Page[ProjectView]:
        """The caller's projects."""
        return self._wire.get("/v1/projects", Page[ProjectView])

    def create_project(self, name: str) -> ProjectView:
        """A project of which the caller is a member."""
        return self._wire.post("/v1/projects", ProjectView, {"name": name})

    def create_user(self, name: str, role: str) -> UserView:
        """A user in the caller's project."""
        return self._wire.post("/v1/users", UserView, {"name": name, "role": role})

    def create_key(
        self, user_id: str, label: str, *, expires_at: datetime | None = None
    ) -> KeyCreated:
        """A key whose plaintext is in this answer only."""
        expiry = expires_at.isoformat() if expires_at else None
        body = {"label": label, "expires_at": expiry}
        return self._wire.post(f"/v1/users/{_part(user_id)}/keys", KeyCreated, body)

    def revoke_key(self, key_id: str) -> None:
        """Make a key useless."""
        self._wire.send("DELETE", f"/v1/keys/{_part(key_id)}")

    def audit(self, *, limit: int = 50, cursor: str | None = None) -> Page[AuditView]:
        """Who changed what, newest first."""
        return self._wire.get("/v1/audit", Page[AuditView], _page(limit, cursor))

    # ---- workloads, engines, devices, targets

    def upload_workload(
        self,
        source: Path | bytes,
        *,
        name: str,
        filename: str | None = None,
        target_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> WorkloadView:
        """Upload a traffic sample; with a target its token columns are computed at once."""
        form = {"name": name} | ({"target_id": target_id} if target_id else {})
        headers = {"idempotency-key": idempotency_key or str(uuid.uuid4())}
        title = filename or (source.name if isinstance(source, Path) else name)
        if isinstance(source, bytes):
            return self._upload(form, (title, source), headers)
        with source.open("rb") as file:
            return self._upload(form, (title, file), headers)

    def _upload(
        self, form: Mapping[str, str], file: tuple[str, Any], headers: Mapping[str, str]
    ) -> WorkloadView:
        response = self._wire.send(
            "POST",
            "/v1/workloads",
            data=form,
            files={"file": file},
            headers=headers,
            timeout=UPLOAD_TIMEOUT_S,
        )
        return read(response.content, WorkloadView)

    def workloads(self, *, limit: int = 50, cursor: str | None = None) -> Page[WorkloadView]:
        """Uploaded samples, newest first."""
        return self._wire.get("/v1/workloads", Page[WorkloadView], _page(limit, cursor))

    def workload(self, workload_id: str) -> WorkloadView:
        """One uploaded sample."""
        return self._wire.get(f"/v1/workloads/{_part(workload_id)}", WorkloadView)

    def workload_summary(self, workload_id: str, target_id: str | None = None) -> TrafficSummary:
        """What the upload says; with a target, as its tokenizer counts."""
        params = {"target_id": target_id} if target_id else {}
        path = f"/v1/workloads/{_part(workload_id)}/summary"
        return self._wire.get(path, TrafficSummary, params)

    def delete_workload(self, workload_id: str) -> None:
        """Delete a sample and everything derived from it."""
        self._wire.send("DELETE", f"/v1/workloads/{_part(workload_id)}")

    def engines(self, *, limit: int = 50, cursor: str | None = None) -> Page[EngineView]:
        """Installed engines, newest first."""
        return self._wire.get("/v1/engines", Page[EngineView], _page(limit, cursor))

    def devices(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeviceView]:
        """Devices that agents look after."""
        return self._wire.get("/v1/devices", Page[DeviceView], _page(limit, cursor))

    def create_target(
        self,
        *,
        name: str,
        model: str,
        engine_id: str | None = None,
        device_class: str | None = None,
        functional: FunctionalSettings | None = None,
        idempotency_key: str | None = None,
    ) -> TargetView:
        """Ask an agent to inspect a model; the answer is pending until it has."""
        body = {
            "name": name,
            "model": model,
            "engine_id": engine_id,
            "device_class": device_class,
            "functional": as_json(functional or FunctionalSettings()),
        }
        return self._wire.post("/v1/targets", TargetView, body, idempotency_key)

    def targets(self, *, limit: int = 50, cursor: str | None = None) -> Page[TargetView]:
        """Targets, newest first."""
        return self._wire.get("/v1/targets", Page[TargetView], _page(limit, cursor))

    def target(self, target_id: str) -> TargetView:
        """One target."""
        return self._wire.get(f"/v1/targets/{_part(target_id)}", TargetView)

    # ---- studies and what comes of them

    def create_study(  # noqa: PLR0913  (one argument per field of the form)
        self,
        *,
        name: str,
        workload_id: str,
        target_id: str,
        goal: Goal | None = None,
        baseline: Levers | None = None,
        techniques: Sequence[str] | None = None,
        budget_s: float = 1800.0,
        requests_per_point: int = 48,
        seed: int = 0,
        idempotency_key: str | None = None,
    ) -> StudyView:
        """Queue a study for an agent of the target's device class.

        `baseline` are the levers to start from (None: vLLM's defaults), `techniques` the keys to
        test (None: all).
        """
        body = {
            "name": name,
            "workload_id": workload_id,
            "target_id": target_id,
            "goal": as_json(goal or Goal()),
            "baseline": as_json(baseline or Levers()),
            "techniques": None if techniques is None else list(techniques),
            "budget_s": budget_s,
            "requests_per_point": requests_per_point,
            "seed": seed,
        }
        return self._wire.post("/v1/studies", StudyView, body, idempotency_key)

    def studies(self, *, limit: int = 50, cursor: str | None = None) -> Page[StudySummary]:
        """Studies, newest first."""
        return self._wire.get("/v1/studies", Page[StudySummary], _page(limit, cursor))

    def study(self, study_id: str) -> StudyView:
        """One study with its trials and what is still planned."""
        return self._wire.get(f"/v1/studies/{_part(study_id)}", StudyView)

    def cancel_study(self, study_id: str) -> StudyView:
        """Ask for the end of a study; its agent stops at the next safe point."""
        return self._wire.post(f"/v1/studies/{_part(study_id)}/cancel", StudyView, None)

    def study_events(self, study_id: str, last_id: int = 0) -> Iterator[EventView]:
        """Events after `last_id` until the study is over; a broken stream is resumed."""
        path = f"/v1/studies/{_part(study_id)}/events"
        failures = 0
        while failures < RESUME_ATTEMPTS:
            try:
                for frame in self._wire.frames(path, last_id):
                    failures = 0
                    if frame.event == "end":
                        return
                    event = read(frame.data, EventView)
                    last_id = event.id
                    yield event
            except httpx.TransportError:
                time.sleep(min(2.0**failures, 10.0))
            failures += 1
        raise self._wire.unreachable()

    def recommendations(
        self, study_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[RecommendationView]:
        """Recommendations, newest first; of one study if given."""
        params = _page(limit, cursor) | ({"study_id": study_id} if study_id else {})
        return self._wire.get("/v1/recommendations", Page[RecommendationView], params)

    def recommendation(self, recommendation_id: str) -> RecommendationView:
        """One recommendation with its reviews."""
        path = f"/v1/recommendations/{_part(recommendation_id)}"
        return self._wire.get(path, RecommendationView)

    def review(
        self,
        recommendation_id: str,
        *,
        decision: str,
        config_hash: str,
        recommendation_hash: str,
        comment: str = "",
    ) -> RecommendationView:
        """Approve, reject or send back; `decision` is approve, reject or request_changes."""
        body = {
            "decision": decision,
            "config_hash": config_hash,
            "recommendation_hash": recommendation_hash,
            "comment": comment,
        }
        path = f"/v1/recommendations/{_part(recommendation_id)}/reviews"
        return self._wire.post(path, RecommendationView, body)

    def deploy(
        self,
        *,
        name: str,
        recommendation_id: str,
        config_hash: str,
        idempotency_key: str | None = None,
    ) -> DeploymentView:
        """Want an approved configuration served as `name`; replaces an earlier generation."""
        body = {
            "name": name,
            "recommendation_id": recommendation_id,
            "config_hash": config_hash,
        }
        return self._wire.post("/v1/deployments", DeploymentView, body, idempotency_key)

    def deployments(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeploymentView]:
        """Deployments, newest first."""
        return self._wire.get("/v1/deployments", Page[DeploymentView], _page(limit, cursor))

    def deployment(self, deployment_id: str) -> DeploymentView:
        """One deployment."""
        return self._wire.get(f"/v1/deployments/{_part(deployment_id)}", DeploymentView)

    def stop_deployment(self, deployment_id: str) -> DeploymentView:
        """Drain and stop."""
        return self._wire.post(f"/v1/deployments/{_part(deployment_id)}/stop", DeploymentView, None)

    def ask(self, url: str, question: str, *, model: str, max_tokens: int = 256) -> Answer:
        """A served model's answer; `url` and `model` are the deployment's `url` and `name`."""
        return self._wire.ask(url, model=model, question=question, max_tokens=max_tokens)


def every(page_of: Callable[..., Page[T]], **options: Any) -> Iterator[T]:
    """All items of a list route: ``every(client.studies)``."""
    cursor = None
    while True:
        page = page_of(cursor=cursor, **options)
        yield from page.items
        cursor = page.next
        if cursor is None:
            return


def _part(identifier: str) -> str:
    return quote(identifier, safe="")


def _page(limit: int, cursor: str | None) -> dict[str, str]:
    return {"limit": str(limit)} | ({"cursor": cursor} if cursor else {})
