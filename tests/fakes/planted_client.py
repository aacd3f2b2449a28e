"""`api.client.Client` without a service: what pages ask is answered from lists in memory.

Its public methods have the real client's names and signatures (a test compares them).
"""

# ruff: noqa: ARG002  the arguments are the real client's
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from advisor.errors import RooftuneError
from advisor.failures import RememberedFailure
from advisor.goal import Goal
from advisor.hardware import DATASHEETS
from advisor.recommender.outlook import Outlook, Served, outlook
from advisor.serving import FunctionalSettings, Levers
from advisor.states import DeploymentState, StudyState, TargetState
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import Privacy
from api.charts.gallery import charts_of
from api.charts.traffic import traffic_charts
from api.client import (
    Answer,
    ApiProblem,
    AuditView,
    ChartView,
    DeploymentView,
    DeviceView,
    EngineView,
    EventView,
    Health,
    KeyCreated,
    Page,
    PrincipalView,
    ProjectView,
    RecommendationView,
    StudySummary,
    StudyView,
    TargetView,
    UserView,
    WorkloadView,
)
from api.errors import problem_of
from tests.fakes import planted_world, views
from tests.fakes.planted_measurements import PlantedMeasurements

T = TypeVar("T")
HEALTHY = Health(status="ok", checks={})


def _page(items: Sequence[T]) -> Page[T]:
    return Page(items=tuple(items), next=None)


@dataclass(slots=True)
class PlantedClient(PlantedMeasurements):
    """Answers from its lists and remembers in `asked` what it was told to change.

    A `refusal` is raised by the next change, as the service would answer it.
    """

    uploads: list[WorkloadView] = field(default_factory=list)
    known_targets: list[TargetView] = field(default_factory=list)
    known_studies: list[StudyView] = field(default_factory=list)
    found: list[RecommendationView] = field(default_factory=list)
    served: list[DeploymentView] = field(default_factory=list)
    caller: PrincipalView = field(default_factory=views.principal)
    asked: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    forecasts: list[tuple[str, str | None, str | None, int]] = field(default_factory=list)
    drawn: int = 0
    refusal: RooftuneError | None = None
    closed: bool = False

    def _change(self, action: str, **told: object) -> None:
        if self.refusal is not None:
            raise ApiProblem(problem_of(self.refusal))
        self.asked.append((action, told))

    def close(self) -> None:
        self.closed = True

    def health(self) -> Health:
        return HEALTHY

    def ready(self) -> Health:
        return HEALTHY

    def whoami(self) -> PrincipalView:
        return self.caller

    def projects(self) -> Page[ProjectView]:
        return _page(self.caller.projects)

    def create_project(self, name: str) -> ProjectView:
        self._change("create_project", name=name)
        return self.caller.projects[0]

    def create_user(self, name: str, role: str) -> UserView:
        self._change("create_user", name=name, role=role)
        return UserView(id=views.identifier(8), name=name, role=role, created_at=views.BEGIN)

    def create_key(
        self, user_id: str, label: str, *, expires_at: datetime | None = None
    ) -> KeyCreated:
        raise NotImplementedError

    def revoke_key(self, key_id: str) -> None:
        self._change("revoke_key", key_id=key_id)

    def audit(self, *, limit: int = 50, cursor: str | None = None) -> Page[AuditView]:
        return _page(())

    def upload_workload(  # noqa: PLR0913  (the real client's)
        self,
        source: Path | bytes,
        *,
        name: str,
        filename: str | None = None,
        target_id: str | None = None,
        privacy: Privacy = Privacy.RAW,
        retention_days: int | None = None,
        columns: Mapping[str, str] | None = None,
        time_unit: str | None = None,
        session_lengths: str | None = None,
        format: str | None = None,  # noqa: A002  (the real client's)
        idempotency_key: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> WorkloadView:
        self._change(
            "upload_workload",
            name=name,
            filename=filename,
            target_id=target_id,
            privacy=privacy,
            retention_days=retention_days,
            columns=columns,
            time_unit=time_unit,
            session_lengths=session_lengths,
            format=format,
        )
        content = source if isinstance(source, bytes) else source.read_bytes()
        number = 100 + len(self.uploads)
        try:
            made = views.workload(content, name=name, filename=filename or name, number=number)
        except RooftuneError as error:
            raise ApiProblem(problem_of(error)) from error
        made = replace(made, privacy=privacy)
        self.uploads.insert(0, made)
        return made

    def workloads(self, *, limit: int = 50, cursor: str | None = None) -> Page[WorkloadView]:
        return _page(self.uploads)

    def workload(self, workload_id: str) -> WorkloadView:
        return next(item for item in self.uploads if item.id == workload_id)

    def workload_summary(self, workload_id: str, target_id: str | None = None) -> TrafficSummary:
        counted = planted_world.summary()
        return counted if target_id else self.workload(workload_id).summary

    def derive_workload(  # noqa: PLR0913  (the real client's)
        self,
        workload_ids: Sequence[str],
        *,
        name: str,
        rate: float = 1.0,
        requests: int | None = None,
        seed: int = 0,
        outputs: float = 1.0,
        label_by_workload: bool = False,
        by_time: bool = False,
        idempotency_key: str | None = None,
    ) -> WorkloadView:
        self._change("derive_workload", workload_ids=workload_ids, name=name, rate=rate)
        made = replace(self.workload(workload_ids[0]), id=views.identifier(300), name=name)
        self.uploads.insert(0, made)
        return made

    def workload_charts(
        self, workload_id: str, target_id: str | None = None
    ) -> tuple[ChartView, ...]:
        return traffic_charts(self.workload_summary(workload_id, target_id))

    def forecast(
        self,
        workload_id: str,
        target_id: str | None = None,
        *,
        hardware: str | None = None,
        concurrency: int = 16,
    ) -> Outlook:
        self.forecasts.append((workload_id, target_id, hardware, concurrency))
        if target_id is None:
            return outlook(self.workload(workload_id).summary, None, concurrency=concurrency)
        device = planted_world.DEVICE if hardware is None else DATASHEETS[hardware]
        served = Served(model=planted_world.MODEL, device=device)
        return outlook(planted_world.summary(), served, concurrency=concurrency)

    def delete_workload(self, workload_id: str, *, purge: bool = False) -> None:
        self._change("delete_workload", workload_id=workload_id, purge=purge)
        if purge:
            purged = replace(self.workload(workload_id), purged_at=views.BEGIN)
            self.uploads = [purged if item.id == workload_id else item for item in self.uploads]
            return
        self.uploads = [item for item in self.uploads if item.id != workload_id]

    def engines(self, *, limit: int = 50, cursor: str | None = None) -> Page[EngineView]:
        return _page([views.engine()])

    def engine_failures(self, engine_id: str) -> tuple[RememberedFailure, ...]:
        return ()

    def forget_failures(self, engine_id: str) -> None:
        self._change("forget_failures", engine_id=engine_id)

    def devices(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeviceView]:
        return _page([views.device()])

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
        self._change("create_target", name=name, model=model, functional=functional)
        made = replace(views.target(TargetState.PENDING), id=views.identifier(200), name=name)
        self.known_targets.insert(0, made)
        return made

    def targets(self, *, limit: int = 50, cursor: str | None = None) -> Page[TargetView]:
        return _page(self.known_targets)

    def target(self, target_id: str) -> TargetView:
        return next(item for item in self.known_targets if item.id == target_id)

    def create_study(  # noqa: PLR0913  (the real client's)
        self,
        *,
        name: str,
        workload_id: str,
        target_id: str,
        goal: Goal | None = None,
        baseline: Levers | None = None,
        baseline_command: str | None = None,
        techniques: Sequence[str] | None = None,
        budget_s: float = 1800.0,
        requests_per_point: int = 48,
        seed: int = 0,
        ladder_top: int = 32,
        confirm: bool = True,
        idempotency_key: str | None = None,
    ) -> StudyView:
        self._change(
            "create_study",
            name=name,
            goal=goal,
            techniques=techniques,
            budget_s=budget_s,
            baseline_command=baseline_command,
            ladder_top=ladder_top,
            confirm=confirm,
        )
        made = replace(views.running_study(), name=name, state=StudyState.QUEUED, trials=())
        self.known_studies.insert(0, made)
        return made

    def studies(self, *, limit: int = 50, cursor: str | None = None) -> Page[StudySummary]:
        return _page(self.known_studies)

    def study(self, study_id: str) -> StudyView:
        return next(item for item in self.known_studies if item.id == study_id)

    def cancel_study(self, study_id: str) -> StudyView:
        self._change("cancel_study", study_id=study_id)
        self.known_studies = [
            replace(item, cancel_requested=True) if item.id == study_id else item
            for item in self.known_studies
        ]
        return self.study(study_id)

    def study_events(self, study_id: str, last_id: int = 0) -> Iterator[EventView]:
        return iter(())

    def recommendations(
        self, study_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[RecommendationView]:
        return _page(self.found)

    def recommendation(self, recommendation_id: str) -> RecommendationView:
        return next(item for item in self.found if item.id == recommendation_id)

    def recommendation_charts(self, recommendation_id: str) -> tuple[ChartView, ...]:
        self.drawn += 1
        return charts_of(self.recommendation(recommendation_id).body)

    def recommendation_report(self, recommendation_id: str, form: str = "html") -> str:
        return f"{form} of {self.recommendation(recommendation_id).hash}"

    def review(
        self,
        recommendation_id: str,
        *,
        decision: str,
        config_hash: str,
        recommendation_hash: str,
        comment: str = "",
    ) -> RecommendationView:
        self._change(
            "review",
            decision=decision,
            config_hash=config_hash,
            recommendation_hash=recommendation_hash,
            comment=comment,
        )
        review = views.review(decision, config_hash, comment=comment)
        self.found = [views.recommendation((*self.found[0].reviews, review))]
        return self.found[0]

    def deploy(
        self,
        *,
        name: str,
        recommendation_id: str,
        config_hash: str,
        idempotency_key: str | None = None,
    ) -> DeploymentView:
        self._change("deploy", name=name, config_hash=config_hash)
        self.served = [views.deployment(DeploymentState.PENDING)]
        return self.served[0]

    def deployments(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeploymentView]:
        return _page(self.served)

    def deployment(self, deployment_id: str) -> DeploymentView:
        return next(item for item in self.served if item.id == deployment_id)

    def stop_deployment(self, deployment_id: str) -> DeploymentView:
        self._change("stop_deployment", deployment_id=deployment_id)
        self.served = [replace(self.served[0], state=DeploymentState.DRAINING, wanted="stopped")]
        return self.served[0]

    def ask(
        self, url: str, question: str, *, model: str, max_tokens: int = 256, wait_s: float = 0.0
    ) -> Answer:
        self._change("ask", url=url, question=question, model=model)
        return Answer(
            text="Paris *is* the answer.", prompt_tokens=12, output_tokens=7, finish_reason="stop"
        )
