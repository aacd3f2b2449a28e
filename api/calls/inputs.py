"""Calls about what a study needs: workloads, engines, devices, targets."""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.canonical import as_json
from advisor.failures import RememberedFailure
from advisor.recommender.outlook import Outlook
from advisor.serving import FunctionalSettings
from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import Privacy
from api.calls.connection import Connection, page_of, part
from api.calls.sending import Told, Watched
from api.codec import read
from api.schemas import ChartView, DeviceView, EngineView, Page, TargetView, WorkloadView

UPLOAD_TIMEOUT_S = 900.0


class InputCalls(Connection):
    """Workloads, engines, devices, targets."""

    def upload_workload(  # noqa: PLR0913  (one argument per field of the form)
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
        format: str | None = None,  # noqa: A002  (named as the form's field)
        idempotency_key: str | None = None,
        progress: Told | None = None,
    ) -> WorkloadView:
        """Upload a traffic sample; with a target its token columns are computed at once.

        `privacy` says how much of the text is kept, after `retention_days` it is purged (None: as
        the service is set). `columns` (our field -> the file's name), `time_unit`,
        `session_lengths` and `format` answer what the file leaves open. `progress` hears how many
        bytes of a file were sent.
        """
        given = {
            "target_id": target_id,
            "privacy": Privacy(privacy).value,
            "retention_days": None if retention_days is None else str(retention_days),
            "columns": json.dumps(dict(columns)) if columns else None,
            "time_unit": time_unit,
            "session_lengths": session_lengths,
            "format": format,
        }
        form = {"name": name} | {field: value for field, value in given.items() if value}
        headers = {"idempotency-key": idempotency_key or str(uuid.uuid4())}
        title = filename or (source.name if isinstance(source, Path) else name)
        if isinstance(source, bytes):
            return self._upload(form, (title, source), headers)
        with source.open("rb") as file:
            sent = file if progress is None else Watched(file, progress)
            return self._upload(form, (title, sent), headers)

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

    def derive_workload(  # noqa: PLR0913  (one argument per field of the body)
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
        """A new workload made of others: faster, drawn anew, several as one."""
        body = {
            "workload_ids": list(workload_ids),
            "name": name,
            "rate": rate,
            "requests": requests,
            "seed": seed,
            "outputs": outputs,
            "label_by_workload": label_by_workload,
            "by_time": by_time,
        }
        response = self._wire.send(
            "POST",
            "/v1/workloads/derived",
            json=body,
            headers={"idempotency-key": idempotency_key or str(uuid.uuid4())},
            timeout=UPLOAD_TIMEOUT_S,
        )
        return read(response.content, WorkloadView)

    def workloads(self, *, limit: int = 50, cursor: str | None = None) -> Page[WorkloadView]:
        """Uploaded samples, newest first."""
        return self._wire.get("/v1/workloads", Page[WorkloadView], page_of(limit, cursor))

    def workload(self, workload_id: str) -> WorkloadView:
        """One uploaded sample."""
        return self._wire.get(f"/v1/workloads/{part(workload_id)}", WorkloadView)

    def workload_summary(self, workload_id: str, target_id: str | None = None) -> TrafficSummary:
        """What the upload says; with a target, as its tokenizer counts."""
        params = {"target_id": target_id} if target_id else {}
        path = f"/v1/workloads/{part(workload_id)}/summary"
        return self._wire.get(path, TrafficSummary, params)

    def forecast(
        self,
        workload_id: str,
        target_id: str | None = None,
        *,
        hardware: str | None = None,
        concurrency: int = 16,
    ) -> Outlook:
        """What the upload promises per technique before anything is started.

        `hardware` is a name of `advisor.hardware.DATASHEETS`; None: the target's own device.
        Without a target only what lengths alone say.
        """
        params = {"concurrency": str(concurrency)}
        params |= {"target_id": target_id} if target_id else {}
        params |= {"hardware": hardware} if hardware else {}
        return self._wire.get(f"/v1/workloads/{part(workload_id)}/forecast", Outlook, params)

    def workload_charts(
        self, workload_id: str, target_id: str | None = None
    ) -> tuple[ChartView, ...]:
        """Pictures of what the upload says; with a target, as its tokenizer counts."""
        params = {"target_id": target_id} if target_id else {}
        path = f"/v1/workloads/{part(workload_id)}/charts"
        return self._wire.get(path, tuple[ChartView, ...], params)

    def delete_workload(self, workload_id: str, *, purge: bool = False) -> None:
        """Delete a sample and everything derived from it; one that a study used can be purged.

        `purge` deletes its texts and all that was made of them, and keeps the figures of studies.
        """
        params = {"purge": "true"} if purge else {}
        self._wire.send("DELETE", f"/v1/workloads/{part(workload_id)}", params=params)

    def engines(self, *, limit: int = 50, cursor: str | None = None) -> Page[EngineView]:
        """Installed engines, newest first."""
        return self._wire.get("/v1/engines", Page[EngineView], page_of(limit, cursor))

    def engine_failures(self, engine_id: str) -> tuple[RememberedFailure, ...]:
        """What an engine failed at and is not started with again, the latest first."""
        path = f"/v1/engines/{part(engine_id)}/failures"
        return self._wire.get(path, tuple[RememberedFailure, ...])

    def forget_failures(self, engine_id: str) -> None:
        """Have the next study try again what an engine failed at."""
        self._wire.send("DELETE", f"/v1/engines/{part(engine_id)}/failures")

    def devices(self, *, limit: int = 50, cursor: str | None = None) -> Page[DeviceView]:
        """Devices that agents look after."""
        return self._wire.get("/v1/devices", Page[DeviceView], page_of(limit, cursor))

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
        return self._wire.get("/v1/targets", Page[TargetView], page_of(limit, cursor))

    def target(self, target_id: str) -> TargetView:
        """One target."""
        return self._wire.get(f"/v1/targets/{part(target_id)}", TargetView)
