"""Make the engine on this device match the wanted deployments: start, watch, drain, stop."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from sqlalchemy.orm import Session

from advisor.errors import EngineFailed, InvalidInput, Unavailable
from advisor.failures import LASTING, explained
from advisor.states import DeploymentState, FailureKind, RunState
from db import deployments, devices, runs
from db.session import transaction
from db.tables import DeploymentRow, EngineRunRow
from probes.deployed_model import DeployedStart, deployed_start
from probes.device_memory import memory_reader, refuse_held
from probes.engine_log import packed_log
from probes.lease import DeviceHold
from probes.served_engine import Serving, requests_open
from probes.vllm.engine import RunningEngine
from probes.vllm.server import Spawned, start_engine
from probes.vllm.watchdog import Progress, hung
from probes.workplace import Workplace

RUNNING = "running"
DRAIN_POLL_S = 0.2
# The proxy learns of the draining state a moment later; requests may still arrive until then.
DRAIN_SETTLE_S = 1.0
UNHEALTHY_CHECKS = 3
DEAD_CHECKS = 30
LONGEST_BACKOFF_S = 60.0
LOG = logging.getLogger(__name__)


class Deployments:
    """Reconciles one device, called about once a second. Holds the lease while it serves."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self._hold: DeviceHold | None = None
        self._serving: Serving | None = None
        self._not_before_s = 0.0

    def reconcile(self, take: Callable[[str, UUID], None]) -> bool:
        """One look at the rows and the engine; whether a deployment needs the device.

        `take` is told which deployment is in hand, to be marked failed if that breaks.
        """
        self._drop_lost()
        rows = self._rows()
        for row in rows:
            if row.wanted != RUNNING:
                take("deployment", row.id)
                self._retire(row)
        wanted = [row for row in rows if row.wanted == RUNNING]
        if self._serving is not None and self._serving.deployment_id not in {r.id for r in wanted}:
            self._end_engine(RunState.STOPPED)
        if not wanted:
            self._free()
            return False
        chosen = self._chosen(wanted)
        take("deployment", chosen.id)
        self._tell_others(wanted, chosen)
        if self._serving is None:
            self._start(chosen)
        else:
            self._watch(chosen, self._serving)
        return True

    def close(self) -> None:
        """The agent ends, and its engine with it; the next agent starts it again."""
        serving = self._serving
        if serving is not None:
            self._end_engine(RunState.STOPPED)
            with transaction(self.place.sessions) as session:
                row = self._row(session, serving.deployment_id)
                if row.state == DeploymentState.SERVING:
                    self._move(session, row, DeploymentState.UNHEALTHY, "the agent stopped")
        self._free()

    # -------------------------------------------------------------------------------- rows

    def _rows(self) -> list[DeploymentRow]:
        with transaction(self.place.sessions) as session:
            return deployments.for_device(session, self.place.device)

    def _row(self, session: Session, deployment_id: UUID) -> DeploymentRow:
        return deployments.one(session, deployment_id, None)

    def _move(
        self, session: Session, row: DeploymentRow, wanted: DeploymentState, reason: str | None
    ) -> None:
        deployments.transition(
            session, row, wanted, actor=self.place.actor, now=self.place.now(), reason=reason
        )

    def _chosen(self, wanted: Sequence[DeploymentRow]) -> DeploymentRow:
        """The one that serves already, else one that this device was given, else the oldest."""
        mine = None if self._serving is None else self._serving.deployment_id
        return min(wanted, key=lambda row: (row.id != mine, row.device_id is None, row.created_at))

    def _tell_others(self, wanted: Sequence[DeploymentRow], chosen: DeploymentRow) -> None:
        """One device holds one engine: the others wait, and say for what."""
        reason = f"waits for the device, which serves {chosen.name!r}; stop that one first"
        waiting = [row.id for row in wanted if row.id != chosen.id and row.reason != reason]
        if not waiting:
            return
        with transaction(self.place.sessions) as session:
            for deployment_id in waiting:
                self._row(session, deployment_id).reason = reason

    # ------------------------------------------------------------------------------- start

    def _start(self, row: DeploymentRow) -> None:
        if time.monotonic() < self._not_before_s or self.place.stop.is_set():
            return
        hold = self._held(row)
        if hold is None:
            return
        cancelled = hold.interruption.event
        try:
            start = deployed_start(self.place, row, cancelled)
        except (EngineFailed, InvalidInput, Unavailable) as error:
            if not cancelled.is_set():  # else the next look at the rows decides
                self._fail(row.id, str(error))
            return
        with transaction(self.place.sessions) as session:
            fresh = self._row(session, row.id)
            deployments.assign(session, fresh, self.place.device.id)
            self._move(session, fresh, DeploymentState.STARTING, None)
            run = runs.begin_for_deployment(
                session,
                fresh,
                device_id=self.place.device.id,
                fencing_token=hold.token,
                token=start.plan.token,
                now=self.place.now(),
            )
        self._launch(row, run, start, hold)

    def _held(self, row: DeploymentRow) -> DeviceHold | None:
        """The lease of the device, taken for this deployment if it is not held yet."""
        if self._hold is None or self._hold.interruption.event.is_set():
            self._free()
            deployment_id = row.id
            hold = self.place.hold(
                f"deployment {row.name}", watch=lambda: self._unwanted(deployment_id)
            )
            if hold is not None:
                hold.__enter__()
            self._hold = hold
        return self._hold

    def _unwanted(self, deployment_id: UUID) -> str | None:
        with transaction(self.place.sessions) as session:
            wanted = self._row(session, deployment_id).wanted == RUNNING
        return None if wanted else "the deployment is no longer wanted"

    def _launch(
        self, row: DeploymentRow, run: EngineRunRow, start: DeployedStart, hold: DeviceHold
    ) -> None:
        def spawned(started: Spawned) -> None:
            with transaction(self.place.sessions) as session:
                runs.started(
                    session,
                    session.get_one(EngineRunRow, run.id),
                    pid=started.pid,
                    pid_started_at=started.pid_started_at,
                    port=started.port,
                )

        plan = start.plan
        settings = self.place.settings
        try:
            refuse_held(
                memory_reader(settings.device_kind, settings.device_name),
                plan.config,
                non_kv_bytes=plan.model_bytes,
                ours=self.place.own_processes,
                cancelled=hold.interruption.event,
            )
            engine = start_engine(plan, cancelled=hold.interruption.event, on_spawned=spawned)
        except (EngineFailed, InvalidInput) as error:
            self._start_failed(row.id, run.id, plan.log_path, error)
            return
        engine.facts = replace(engine.facts, checkpoint_digest=start.checkpoint_digest)
        self._serving = Serving(
            deployment_id=row.id,
            run_id=run.id,
            engine=engine,
            progress=Progress(limit_s=engine.hang_s),
        )
        self._publish(self._serving)

    def _publish(self, serving: Serving) -> None:
        """Say where the ready engine listens: from now on requests go to it."""
        engine = serving.engine
        with transaction(self.place.sessions) as session:
            fresh = self._row(session, serving.deployment_id)
            run = session.get_one(EngineRunRow, serving.run_id)
            runs.ready(session, run, engine.facts, now=self.place.now())
            deployments.set_endpoint(
                session,
                fresh,
                host=engine.host,
                port=engine.port,
                served_model_name=engine.served_model_name,
            )
            self._move(session, fresh, DeploymentState.SERVING, None)

    def _start_failed(
        self, deployment_id: UUID, run_id: UUID, log: Path, error: EngineFailed | InvalidInput
    ) -> None:
        if isinstance(error, InvalidInput):
            kind, detail = FailureKind.INVALID_SETTING, str(error)
        else:
            kind, detail = FailureKind(error.kind), error.detail
        cancelled = kind is FailureKind.CANCELLED
        detail = detail if cancelled else explained(kind, detail)
        self._end_run(
            run_id,
            log,
            RunState.STOPPED if cancelled else RunState.FAILED,
            kind=kind,
            detail=detail,
        )
        if cancelled:
            return  # not wanted any more, or the agent ends: the next look at the rows decides
        if kind in LASTING:
            self._fail(deployment_id, f"{kind}: {detail}")
        else:
            self._again_later(deployment_id, f"{kind}: {detail}")

    # ------------------------------------------------------------------------------- watch

    def _watch(self, row: DeploymentRow, serving: Serving) -> None:
        try:
            serving.engine.check_alive()
        except EngineFailed as error:
            self._lost(serving, error)
            return
        if serving.engine.healthy():
            serving.failed_checks = 0
            reason = serving.stalled()
            if reason is not None:
                self._lost(serving, hung(serving.engine, reason))
                return
            if row.state == DeploymentState.STARTING:
                self._publish(serving)  # the database was away when it became ready
            self._show(row.id, DeploymentState.UNHEALTHY, DeploymentState.SERVING, None)
            return
        serving.failed_checks += 1
        if serving.failed_checks >= DEAD_CHECKS:
            detail = f"/health failed {serving.failed_checks} times in a row"
            self._lost(serving, EngineFailed(FailureKind.DIED, detail))
        elif serving.failed_checks >= UNHEALTHY_CHECKS:
            reason = "the engine does not answer /health"
            self._show(row.id, DeploymentState.SERVING, DeploymentState.UNHEALTHY, reason)

    def _show(
        self, deployment_id: UUID, state: DeploymentState, wanted: DeploymentState, why: str | None
    ) -> None:
        with transaction(self.place.sessions) as session:
            row = self._row(session, deployment_id)
            if row.state == state:
                self._move(session, row, wanted, why)

    def _lost(self, serving: Serving, error: EngineFailed) -> None:
        reason = f"the engine died ({error.kind}): {error.detail}"
        self._show(
            serving.deployment_id, DeploymentState.SERVING, DeploymentState.UNHEALTHY, reason
        )
        self._end_engine(RunState.FAILED, kind=FailureKind(error.kind), detail=error.detail)
        self._again_later(serving.deployment_id, reason)

    def _again_later(self, deployment_id: UUID, reason: str) -> None:
        """Count a restart and wait longer before each; give up after the limit."""
        settings = self.place.settings
        with transaction(self.place.sessions) as session:
            row = self._row(session, deployment_id)
            deployments.count_restart(session, row)
            restarts = row.restarts
        if restarts > settings.max_restarts:
            self._fail(deployment_id, f"given up after {settings.max_restarts} restarts: {reason}")
            return
        pause_s = min(LONGEST_BACKOFF_S, settings.restart_backoff_s * 2 ** (restarts - 1))
        self._not_before_s = time.monotonic() + pause_s

    def _fail(self, deployment_id: UUID, reason: str) -> None:
        with transaction(self.place.sessions) as session:
            self._move(session, self._row(session, deployment_id), DeploymentState.FAILED, reason)

    # -------------------------------------------------------------------------------- stop

    def _retire(self, row: DeploymentRow) -> None:
        """Drain and stop a deployment that is no longer wanted."""
        serving = self._serving
        reason = None
        if serving is not None and serving.deployment_id == row.id:
            if row.state != DeploymentState.DRAINING:
                with transaction(self.place.sessions) as session:
                    fresh = self._row(session, row.id)
                    self._move(session, fresh, DeploymentState.DRAINING, None)
            cut = self._drain(serving.engine, row.drain_s)
            if cut:
                reason = f"{cut} requests were cut after {row.drain_s:g} s of draining"
            self.place.event("deployment", row.id, "drain", {"cut_requests": cut})
            self._end_engine(RunState.STOPPED)
            self._free()
        with transaction(self.place.sessions) as session:
            self._move(session, self._row(session, row.id), DeploymentState.STOPPED, reason)

    def _drain(self, engine: RunningEngine, drain_s: float) -> int:
        """Wait until no request is open; the number still open when the time was up."""
        began_s = time.monotonic()
        while True:
            open_requests = requests_open(engine)
            waited_s = time.monotonic() - began_s
            settled = waited_s >= min(DRAIN_SETTLE_S, drain_s)
            if (open_requests == 0 and settled) or waited_s >= drain_s:
                return open_requests
            if self.place.stop.wait(DRAIN_POLL_S):
                return requests_open(engine)

    def _end_engine(
        self, state: RunState, *, kind: FailureKind | None = None, detail: str | None = None
    ) -> None:
        serving = self._serving
        if serving is None:
            return
        self._serving = None
        serving.engine.stop()
        self._end_run(serving.run_id, serving.engine.log_path, state, kind=kind, detail=detail)

    def _end_run(
        self,
        run_id: UUID,
        log: Path,
        state: RunState,
        *,
        kind: FailureKind | None,
        detail: str | None,
    ) -> None:
        packed = packed_log(log, self.place.settings.log_limit_bytes)
        if self._hold is None or self._hold.lost:
            return  # fenced off: the sweep of whoever holds the device ends the run
        with transaction(self.place.sessions) as session:
            devices.check_lease(session, self.place.device.id, self._hold.token)
            runs.ended(
                session,
                session.get_one(EngineRunRow, run_id),
                state,
                now=self.place.now(),
                failure_kind=kind,
                failure_detail=detail,
                log=packed,
            )

    def _drop_lost(self) -> None:
        """Stop the engine of a lease that now belongs to somebody else."""
        if self._hold is None or not self._hold.lost:
            return
        LOG.warning("the lease of device %s was lost", self.place.device.name)
        serving = self._serving
        self._end_engine(RunState.FAILED)
        if serving is not None:
            reason = "the device lease was lost"
            self._show(
                serving.deployment_id, DeploymentState.SERVING, DeploymentState.UNHEALTHY, reason
            )
        self._free()

    def _free(self) -> None:
        self._not_before_s = 0.0
        if self._hold is not None:
            self._hold.close()
            self._hold = None
