"""Calls about what a study needs: workloads, engines, devices, targets."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.canonical import as_json
from advisor.recommender.outlook import Outlook
from advisor.serving import FunctionalSettings
from advisor.traffic.trace import TrafficSummary
from api.calls.connection import Connection, page_of, part
from api.codec import read
from api.schemas import DeviceView, EngineView, Page, TargetView, WorkloadView

UPLOAD_TIMEOUT_S = 900.0


class InputCalls(Connection):
    """Workloads, engines, devices, targets."""

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

    def delete_workload(self, workload_id: str) -> None:
        """Delete a sample and everything derived from it."""
        self._wire.send("DELETE", f"/v1/workloads/{part(workload_id)}")

    def engines(self, *, limit: int = 50, cursor: str | None = None) -> Page[EngineView]:
        """Installed engines, newest first."""
        return self._wire.get("/v1/engines", Page[EngineView], page_of(limit, cursor))

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
