"""Before the agent's loop: the engine tells its flags, the device is measured, rows are written."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from advisor.errors import InvalidInput, Unavailable
from advisor.hardware import DeviceFacts
from db import devices, engines, events
from db.audit import Actor
from db.engines import NewEngine
from db.session import Sessions, transaction
from db.tables import DeviceRow, EngineRow
from probes.device import boot_id, device_class, device_facts, engine_threads, physical_cores
from probes.engines import FLAGS_TIMEOUT_S, Interpreter, run_script
from probes.lease import DeviceHold
from probes.settings import AgentSettings
from probes.vllm.flags import microbench_command, read_schema
from probes.workplace import Workplace, process_holder

MEASURED = "measured"
LOG = logging.getLogger(__name__)


class Registration:
    """Registers the engines and the device of the agent of `settings`."""

    def __init__(
        self,
        settings: AgentSettings,
        sessions: Sessions,
        *,
        stop: threading.Event,
        now: Callable[[], datetime],
        base_env: Mapping[str, str],
    ) -> None:
        self.settings = settings
        self.sessions = sessions
        self.stop = stop
        self.now = now
        self.base_env = base_env
        # Not resolved: the interpreter of a virtual environment is a link out of it.
        self.interpreter = str(settings.engine_python.absolute())
        launcher = settings.engine_launcher
        self.launcher = None if launcher is None else str(launcher.absolute())

    def workplace(self) -> Workplace:
        """Everything registered and measured; sweeps what an earlier agent left."""
        self.engine()
        place = Workplace(
            settings=self.settings,
            sessions=self.sessions,
            device=self.device(),
            actor=Actor(name=f"agent {self.settings.host_name}/{self.settings.device_name}"),
            holder=process_holder(self.settings.host_name),
            stop=self.stop,
            now=self.now,
            base_env=self.base_env,
        )
        with self.free_device(place):
            measured = self.current_facts(place)
        return replace(place, device=measured)

    def free_device(self, place: Workplace) -> DeviceHold:
        """The device's lease, once no other living agent has it."""
        while True:
            hold = place.hold("start of the agent", watch=lambda: None)
            if hold is not None:
                return hold
            LOG.warning("device %s is held by another agent", place.device.name)
            if self.stop.wait(self.settings.poll_s):
                raise Unavailable("the device is held by another agent", "stop that one first")

    def engine(self) -> EngineRow:
        """The row of the agent's own engine; further ones are registered beside it, and before.

        One of those that does not answer is told and left out.
        """
        further = self.settings.further_interpreters
        for python in further:
            try:
                self.registered(Interpreter(python=python))
            except (Unavailable, InvalidInput) as error:
                LOG.warning("the engine of %s is not registered: %s", python, error)
        own = Interpreter(python=Path(self.interpreter), launcher=self.settings.engine_launcher)
        return self.registered(own, as_newest=bool(further))

    def registered(self, installed: Interpreter, *, as_newest: bool = False) -> EngineRow:
        """The row of an installed engine, with the flags that its own interpreter says it has."""
        launcher = None if installed.launcher is None else str(installed.launcher.absolute())
        dump = installed.flags(
            env=self.base_env, timeout_s=FLAGS_TIMEOUT_S, stopped=self.stop.is_set
        )
        schema = read_schema(dump)
        new = NewEngine(
            name=f"{schema.distribution} {schema.version}",
            host=self.settings.host_name,
            interpreter=str(installed.python),
            launcher=launcher,
            version=schema.version,
            distribution=schema.distribution,
            build=schema.build,
            flags=dump,
        )
        with transaction(self.sessions) as session:
            return engines.register(session, new, self.now(), as_newest=as_newest)

    def device(self) -> DeviceRow:
        """The row of the device. Its class is the configured one, else named by the benchmark."""
        settings = self.settings
        with transaction(self.sessions) as session:
            known = devices.named(session, host=settings.host_name, name=settings.device_name)
        name = settings.device_class or (known.device_class if known else None)
        facts = None
        if name is None:
            facts = self.measured()
            name = device_class(facts.kind, facts.name, facts.cpu_features, cores=physical_cores())
        with transaction(self.sessions) as session:
            row = devices.register(
                session,
                host=settings.host_name,
                name=settings.device_name,
                device_class=name,
                now=self.now(),
            )
        return row if facts is None else self.kept(row, facts)

    def current_facts(self, place: Workplace) -> DeviceRow:
        """The device row with facts of this boot that are not too old, measured if need be."""
        with transaction(self.sessions) as session:
            row = devices.one(session, place.device.id)
            told = events.after(session, "device", str(row.id), 0)
        measured_at = max((event.at for event in told if event.kind == MEASURED), default=None)
        oldest = self.now() - timedelta(seconds=self.settings.facts_max_age_s)
        fresh = measured_at is not None and measured_at >= oldest
        threads = engine_threads(self.settings.engine_threads)
        same_boot = row.facts_boot_id == boot_id()
        if fresh and same_boot and row.facts is not None and row.facts.threads == threads:
            return row
        return self.kept(row, self.measured())

    def measured(self) -> DeviceFacts:
        """What the micro-benchmark finds on the threads that the engine will use."""
        argv = microbench_command(
            self.interpreter,
            self.launcher,
            threads=engine_threads(self.settings.engine_threads),
            seconds=self.settings.microbench_s,
        )
        if self.launcher is None:
            argv += ["--device", self.settings.device_kind]
        began_s = time.monotonic()
        facts = device_facts(
            run_script(
                argv,
                env=self.base_env,
                timeout_s=FLAGS_TIMEOUT_S + 10 * self.settings.microbench_s,
                stopped=self.stop.is_set,
            )
        )
        LOG.info("measured %s in %.1f s", facts.name, time.monotonic() - began_s)
        return facts

    def kept(self, row: DeviceRow, facts: DeviceFacts) -> DeviceRow:
        """The row with new facts, and the event that says when they were measured."""
        with transaction(self.sessions) as session:
            now = self.now()
            devices.record_facts(session, row.id, facts, boot_id=boot_id(), now=now)
            events.append(
                session, noun="device", noun_id=str(row.id), kind=MEASURED, body={}, now=now
            )
            return devices.one(session, row.id)
