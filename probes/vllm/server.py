"""One supervised engine: start, wait until it is the right one and healthy, stop, verify."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from advisor.conflicts import combination_of, refusals
from advisor.errors import EngineFailed, Unavailable
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import FailureKind
from advisor.units import GB
from db import guardian
from probes.power import open_nvml
from probes.vllm.checkpoint import draft_vocabulary, model_shape
from probes.vllm.command import HOST, EngineSpec, serve_argv, serve_env
from probes.vllm.engine import HANG_S, RunningEngine
from probes.vllm.failures import classify, last_lines
from probes.vllm.flags import CPU
from probes.vllm.metrics import UnusableCounters
from probes.vllm.phases import PhaseClock
from probes.vllm.processes import started_at
from probes.vllm.server_info import with_server_info
from probes.vllm.startup import read_startup, with_cache_info

START_BASE_S = 420.0
START_S_PER_GB = 10.0
STOP_GRACE_S = 20.0
_POLL_S = 0.2
_PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """One start of an engine.

    `token` marks all of its processes; `served_model_name` is what it must list as its model (the
    token itself for probes, so that a stranger on the port is never measured, case E-23).
    `port` None takes a free one. `start_timeout_s` None grows with `model_bytes`. The engine
    writes to `log_path`, which is kept.
    """

    engine: EngineSpec
    config: ServingConfig
    model_path: str
    model_bytes: int
    served_model_name: str
    token: str
    log_path: Path
    base_env: Mapping[str, str] = field(repr=False)
    dev_mode: bool = True
    port: int | None = None
    start_timeout_s: float | None = None
    stop_grace_s: float = STOP_GRACE_S
    hang_s: float = HANG_S

    @property
    def limit_s(self) -> float:
        """How long a start may take; loading 1 GB from a slow disk takes 10 s."""
        if self.start_timeout_s is not None:
            return self.start_timeout_s
        return START_BASE_S + START_S_PER_GB * self.model_bytes / GB


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """How far a start has come; `phase` is one of `probes.vllm.phases`."""

    elapsed_s: float
    limit_s: float
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """The supervising process of a start, to be noted before the engine is ready."""

    pid: int
    pid_started_at: float
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who hears of a start and who may end it."""

    on_progress: Callable[[StartProgress], None] | None = None
    on_spawned: Callable[[Spawned], None] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def start_engine(
    plan: StartPlan,
    *,
    on_progress: Callable[[StartProgress], None] | None = None,
    on_spawned: Callable[[Spawned], None] | None = None,
    cancelled: threading.Event | None = None,
) -> RunningEngine:
    """Start an engine and wait until it serves its own model; on failure nothing is left.

    Raises `EngineFailed` with what the log says: at once when the process ends (case E-24), else
    at the limit; `CANCELLED` when `cancelled` is set. A port that somebody else took in between is
    given up for another, unless the plan names it.
    """
    watch = Watch(
        on_progress=on_progress,
        on_spawned=on_spawned,
        cancelled=cancelled or threading.Event(),
    )
    _refuse_conflicts(plan)
    if plan.port is not None:
        _refuse_taken(plan.port)
        return _start(plan, plan.port, watch)
    for _ in range(_PORT_ATTEMPTS - 1):
        try:
            return _start(plan, free_port(), watch)
        except EngineFailed as failure:
            if failure.kind not in {FailureKind.PORT_IN_USE, FailureKind.WRONG_SERVER}:
                raise
    return _start(plan, free_port(), watch)


def _start(plan: StartPlan, port: int, watch: Watch) -> RunningEngine:
    argv = serve_argv(
        plan.engine,
        plan.config,
        model_path=plan.model_path,
        port=port,
        served_model_name=plan.served_model_name,
    )
    env = serve_env(
        plan.base_env, plan.engine, plan.config, token=plan.token, dev_mode=plan.dev_mode
    )
    clock = PhaseClock(time.monotonic)
    plan.log_path.parent.mkdir(parents=True, exist_ok=True)
    with plan.log_path.open("wb") as log:
        process = subprocess.Popen(
            guardian.command(argv, grace_s=plan.stop_grace_s),
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    engine = RunningEngine(
        process=process,
        port=port,
        token=plan.token,
        served_model_name=plan.served_model_name,
        log_path=plan.log_path,
        pid_started_at=started_at(process.pid) or 0.0,
        stop_grace_s=plan.stop_grace_s,
        hang_s=plan.hang_s,
    )
    with _stopped_on_failure(engine):
        if watch.on_spawned is not None:
            watch.on_spawned(
                Spawned(pid=process.pid, pid_started_at=engine.pid_started_at, port=port)
            )
        _await_health(engine, plan, watch, clock)
        start_s = clock.elapsed_s
        engine.facts = replace(
            _facts(engine, plan), start_s=start_s, start_phases=clock.durations(start_s)
        )
    return engine


@contextmanager
def _stopped_on_failure(engine: RunningEngine) -> Iterator[None]:
    ready = False
    try:
        yield
        ready = True
    finally:
        if not ready:
            engine.stop()


def _await_health(engine: RunningEngine, plan: StartPlan, watch: Watch, clock: PhaseClock) -> None:
    while True:
        elapsed_s, phase = clock.elapsed_s, clock.look(engine.read_log())
        engine.note_shared_memory()
        if watch.on_progress is not None:
            watch.on_progress(StartProgress(elapsed_s=elapsed_s, limit_s=plan.limit_s, phase=phase))
        exit_code = engine.exit_code
        if exit_code is not None:
            raise classify(engine.read_log(), exit_code=exit_code).error()
        if engine.healthy():
            _check_is_ours(engine)
            engine.note_shared_memory()
            return
        if elapsed_s > plan.limit_s:
            tail = "\n".join(last_lines(engine.read_log()))
            raise EngineFailed(
                FailureKind.START_TIMEOUT, f"not healthy after {plan.limit_s:.0f} s\n{tail}"
            )
        if watch.cancelled.wait(_POLL_S):
            raise EngineFailed(FailureKind.CANCELLED, "the start was cancelled")


def _check_is_ours(engine: RunningEngine) -> None:
    """The server on the port must list the model under this start's own name (case E-23)."""
    names = engine.model_names()
    if engine.served_model_name not in names:
        raise EngineFailed(
            FailureKind.WRONG_SERVER,
            f"port {engine.port} is answered by a server of {', '.join(names) or 'no model'}",
        )


def _facts(engine: RunningEngine, plan: StartPlan) -> EngineFacts:
    """What the engine's log, its metrics and its resolved configuration say, and the driver."""
    schema = plan.engine.schema
    facts = replace(
        read_startup(engine.read_log()),
        max_num_seqs=plan.config.levers.max_num_seqs,
        vllm_commit=schema.commit,
        torch_version=schema.torch_version,
        cuda_version=schema.cuda_version,
    )
    # Without counters it serves all the same; what else it says is all there is.
    with suppress(UnusableCounters):
        facts = with_cache_info(facts, engine.snapshot())
    if plan.dev_mode:
        facts = with_server_info(facts, engine.server_info())
    if schema.build == CPU:
        if facts.headroom_bytes is None:
            facts = replace(facts, headroom_bytes=int(psutil.virtual_memory().available))
        return facts
    return _with_gpu(facts, plan.base_env)


def _with_gpu(facts: EngineFacts, environment: Mapping[str, str]) -> EngineFacts:
    """Driver and clocks of the first GPU that the engine sees; as they were if none answers."""
    try:
        source = open_nvml(environment)
        first = source.read()[0]
    except Unavailable:
        return facts
    return replace(
        facts,
        driver_version=source.driver_version,
        sm_clock_mhz=first.sm_clock_mhz,
        memory_clock_mhz=first.memory_clock_mhz,
    )


def _refuse_conflicts(plan: StartPlan) -> None:
    """Settings that exclude each other are refused with the reason, and nothing is started."""
    model = model_shape(Path(plan.model_path))
    asked = combination_of(
        plan.config,
        plan.engine.schema.build,
        model=model,
        draft_vocabulary=draft_vocabulary(plan.config),
    )
    for conflict in refusals(asked):
        raise EngineFailed(FailureKind.INCOMPATIBLE_SETTINGS, conflict.text)


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EngineFailed(
                FailureKind.PORT_IN_USE, f"port {port} is taken ({error.strerror})"
            ) from error
