"""The measurement calls of the planted client: what was imported is kept in a list."""

# ruff: noqa: ARG002  the arguments are the real client's
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import RooftuneError
from advisor.measurement.benchmark_report import reports_of
from advisor.measurement.imports import read_result
from api.client import ApiProblem, MeasurementView, Page
from api.documents.yaml_text import as_yaml
from api.errors import problem_of
from tests.fakes import views


@dataclass(slots=True)
class PlantedMeasurements:
    """Reads a result as the service does; a study has no loads to export."""

    imported: list[MeasurementView] = field(default_factory=list)

    def import_measurement(
        self,
        source: Path | bytes,
        *,
        target_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> MeasurementView:
        body = source if isinstance(source, bytes) else source.read_bytes()
        try:
            report = read_result(body)
        except RooftuneError as error:
            raise ApiProblem(problem_of(error)) from error
        made = MeasurementView(
            id=views.identifier(400 + len(self.imported)),
            target_id=target_id,
            digest=hashlib.sha256(body).hexdigest(),
            source=report.rank.source,
            report=report,
            created_at=views.BEGIN,
        )
        self.imported.insert(0, made)
        return made

    def measurements(
        self, target_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[MeasurementView]:
        wanted = [item for item in self.imported if target_id in {None, item.target_id}]
        return Page(items=tuple(wanted), next=None)

    def measurement(self, measurement_id: str) -> MeasurementView:
        return next(item for item in self.imported if item.id == measurement_id)

    def delete_measurement(self, measurement_id: str) -> None:
        self.imported = [item for item in self.imported if item.id != measurement_id]

    def measurement_report(
        self, measurement_id: str, form: str = "json", *, load: int | None = None
    ) -> str:
        return as_yaml(reports_of(self.measurement(measurement_id).report, measurement_id))

    def study_report(self, study_id: str, form: str = "json", *, load: int | None = None) -> str:
        return as_yaml(())
