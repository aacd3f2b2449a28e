"""Calls about measurements that no study made, and about benchmark reports."""

import uuid
from pathlib import Path

from api.calls.connection import Connection, page_of, part
from api.codec import read
from api.measured import MeasurementView
from api.schemas import Page

IMPORT_TIMEOUT_S = 300.0


class MeasurementCalls(Connection):
    """Measurements from outside."""

    def import_measurement(
        self,
        source: Path | bytes,
        *,
        target_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> MeasurementView:
        """Send a tool's result file, or a report of `rooftune measure`; its figures are kept."""
        response = self._wire.send(
            "POST",
            "/v1/measurements",
            content=source if isinstance(source, bytes) else source.read_bytes(),
            params={"target_id": target_id} if target_id else {},
            headers={
                "content-type": "application/json",
                "idempotency-key": idempotency_key or str(uuid.uuid4()),
            },
            timeout=IMPORT_TIMEOUT_S,
        )
        return read(response.content, MeasurementView)

    def measurements(
        self, target_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[MeasurementView]:
        """Measurements, newest first; of one target if given."""
        params = page_of(limit, cursor) | ({"target_id": target_id} if target_id else {})
        return self._wire.get("/v1/measurements", Page[MeasurementView], params)

    def measurement(self, measurement_id: str) -> MeasurementView:
        """One measurement with its loads."""
        return self._wire.get(f"/v1/measurements/{part(measurement_id)}", MeasurementView)

    def delete_measurement(self, measurement_id: str) -> None:
        """Delete a measurement."""
        self._wire.send("DELETE", f"/v1/measurements/{part(measurement_id)}")

    def measurement_report(
        self, measurement_id: str, form: str = "json", *, load: int | None = None
    ) -> str:
        """Its usable loads as llm-d benchmark reports; `form` is json or yaml, `load` one alone."""
        return self._exported(f"/v1/measurements/{part(measurement_id)}", form, load)

    def study_report(self, study_id: str, form: str = "json", *, load: int | None = None) -> str:
        """The usable loads of a study as llm-d benchmark reports."""
        return self._exported(f"/v1/studies/{part(study_id)}", form, load)

    def _exported(self, path: str, form: str, load: int | None) -> str:
        params = {"form": form} | ({} if load is None else {"load": str(load)})
        return self._wire.send("GET", f"{path}/benchmark-report", params=params).text
