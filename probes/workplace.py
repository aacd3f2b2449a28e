"""What every part of the agent works with: settings, database, its device and the clock."""

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from advisor.errors import InvalidInput, Unavailable
from advisor.serving import ServingConfig
from db import devices, events
from db.audit import Actor
from db.session import Sessions, transaction
from db.tables import DeviceRow, EngineRow
from probes.lease import DeviceHold
from probes.settings import AgentSettings
from probes.sweep import sweep
from probes.vllm.command import EngineSpec
from probes.vllm.flags import read_schema
from probes.vllm.server import StartPlan

WEIGHTS_SUFFIX = ".safetensors"


def process_holder(host: str) -> str:
    """Names this process so that a later agent of this host can tell whether it still lives."""
    return f"{host}/{os.getpid()}/{psutil.Process().create_time():.2f}"


def holder_is_dead(holder: str, host: str) -> bool:
    """Whether `holder` was a process of this host that no longer runs.

    The start time is compared too, since a process identifier comes back in time.
    """
    name, _, rest = holder.rpartition("/")
    name, _, pid = name.rpartition("/")
    if name != host or not pid.isdigit():
        return False
    try:
        began = float(psutil.Process(int(pid)).create_time())
    except psutil.NoSuchProcess:
        return True
    return abs(began - float(rest)) > 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """The agent's surroundings. `stop` is set once, when the process is to end."""

    settings: AgentSettings
    sessions: Sessions
    device: DeviceRow
    actor: Actor
    holder: str
    stop: threading.Event
    now: Callable[[], datetime]
    base_env: Mapping[str, str]

    @property
    def log_folder(self) -> Path:
        """Where running engines write; a finished run's log is in the database."""
        return self.settings.data_dir.absolute() / "engine-logs"

    @property
    def own_processes(self) -> tuple[int, ...]:
        """This agent and the service's supervisor: what is below them is no stranger's."""
        pid = self.settings.service_pid
        return (os.getpid(), *(() if pid is None else (pid,)))

    def event(self, noun: str, noun_id: UUID, kind: str, body: Mapping[str, Any]) -> None:
        """One event in a transaction of its own."""
        with transaction(self.sessions) as session:
            events.append(
                session, noun=noun, noun_id=str(noun_id), kind=kind, body=dict(body), now=self.now()
            )

    def hold(self, purpose: str, watch: Callable[[], str | None]) -> DeviceHold | None:
        """The device's lease, to be entered; None while another living process has it.

        Whatever an earlier holder left running is ended first.
        """
        with transaction(self.sessions) as session:
            holder = devices.lease(session, self.device.id).holder
            dead = holder is not None and holder_is_dead(holder, self.settings.host_name)
            token = devices.take_lease(
                session,
                self.device.id,
                holder=self.holder,
                purpose=purpose,
                now=self.now(),
                ttl_s=self.settings.lease_ttl_s,
                replaces=holder if dead else None,
            )
        if token is None:
            return None
        sweep(
            self.sessions,
            self.device.id,
            actor=self.actor,
            now=self.now,
            logs=self.log_folder,
            log_limit_bytes=self.settings.log_limit_bytes,
        )
        return DeviceHold(
            token=token,
            renewals=DeviceRenewals(place=self, token=token),
            ttl_s=self.settings.lease_ttl_s,
            stop=self.stop,
            watch=watch,
        )

    def engine_spec(self, engine: EngineRow) -> EngineSpec:
        """How to start a registered engine; one of another host cannot be started here."""
        if engine.host != self.settings.host_name:
            raise InvalidInput(
                "engine", f"{engine.name!r} is installed on {engine.host!r}, not on this host"
            )
        return EngineSpec(
            interpreter=engine.interpreter,
            launcher=engine.launcher,
            schema=read_schema(engine.flags),
        )

    def start_plan(
        self,
        engine: EngineRow,
        config: ServingConfig,
        *,
        model_path: str,
        served_model_name: str | None = None,
    ) -> StartPlan:
        """A start of `config`; without a served name it is a probe, named by its token."""
        token = f"rt-{secrets.token_hex(12)}"
        self.log_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return StartPlan(
            engine=self.engine_spec(engine),
            config=config,
            model_path=model_path,
            model_bytes=weight_file_bytes(Path(model_path)),
            served_model_name=served_model_name or token,
            token=token,
            log_path=self.log_folder / f"{token}.log",
            base_env=self.base_env,
            dev_mode=served_model_name is None,
            start_timeout_s=self.settings.start_timeout_s,
            stop_grace_s=self.settings.stop_grace_s,
            hang_s=self.settings.hang_s,
        )


def weight_file_bytes(folder: Path) -> int:
    """Size of the weight files of a model, in bytes."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.suffix == WEIGHTS_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRenewals:
    """The database side of one lease of the agent's device."""

    place: Workplace
    token: int

    def renew(self) -> bool:
        """Prolong the lease and say that the agent is alive; False when it was taken over."""
        place = self.place
        with transaction(place.sessions) as session:
            now = place.now()
            devices.seen(session, place.device.id, now)
            return devices.renew_lease(
                session,
                place.device.id,
                token=self.token,
                now=now,
                ttl_s=place.settings.lease_ttl_s,
            )

    def release(self) -> None:
        """Give the lease back; if the database is away it runs out by itself."""
        try:
            with transaction(self.place.sessions) as session:
                devices.release_lease(session, self.place.device.id, token=self.token)
        except Unavailable:
            return
