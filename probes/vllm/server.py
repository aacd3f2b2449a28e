"""One supervised engine: start, wait until it is the right one and healthy, stop, verify."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from advisor.errors import EngineFailed
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import FailureKind
from advisor.units import GB
from db import guardian
from probes.vllm.command import HOST, EngineSpec, serve_argv, serve_env
from probes.vllm.engine import RunningEngine
from probes.vllm.failures import classify, last_lines
from probes.vllm.flags import CPU
from probes.vllm.metrics import UnusableCounters
from probes.vllm.processes import started_at
from probes.vllm.startup import read_startup, with_cache_info

START_BASE_S = 420.0
START_S_PER_GB = 10.0
STOP_GRACE_S = 20.0
_POLL_S = 0.2
_PORT_ATTEMPTS = 3
_PHASES = (
    ("Application startup complete", "serving"),
    ("KV cache size", "warming up"),
    ("Starting to load model", "loading"),
)


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

    @property
    def limit_s(self) -> float:
        """How long a start may take; loading 1 GB from a slow disk takes 10 s."""
        if self.start_timeout_s is not None:
            return self.start_timeout_s
        return START_BASE_S + START_S_PER_GB * self.model_bytes / GB


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """How far a start has come. `phase`: launching, loading, warming up or serving."""

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
    began_s = time.monotonic()
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
    )
    with _stopped_on_failure(engine):
        if watch.on_spawned is not None:
            watch.on_spawned(
                Spawned(pid=process.pid, pid_started_at=engine.pid_started_at, port=port)
            )
        _await_health(engine, plan, watch, began_s)
        start_s = time.monotonic() - began_s
        engine.facts = replace(_facts(engine, plan), start_s=start_s)
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


def _await_health(engine: RunningEngine, plan: StartPlan, watch: Watch, began_s: float) -> None:
    while True:
        elapsed_s = time.monotonic() - began_s
        if watch.on_progress is not None:
            watch.on_progress(
                StartProgress(elapsed_s=elapsed_s, limit_s=plan.limit_s, phase=_phase(engine))
            )
        exit_code = engine.exit_code
        if exit_code is not None:
            failure = classify(engine.read_log(), exit_code=exit_code)
            raise EngineFailed(failure.kind, failure.detail)
        if engine.healthy():
            _check_is_ours(engine)
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
    facts = read_startup(engine.read_log())
    try:
        facts = with_cache_info(facts, engine.snapshot())
    except UnusableCounters:
        return facts  # it serves all the same; what its log says is all there is
    levers = plan.config.levers
    if facts.headroom_bytes is None and plan.engine.schema.build == CPU:
        facts = replace(facts, headroom_bytes=int(psutil.virtual_memory().available))
    return replace(facts, max_num_seqs=levers.max_num_seqs)


def _phase(engine: RunningEngine) -> str:
    log = engine.read_log()
    return next((phase for line, phase in _PHASES if line in log), "launching")


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise EngineFailed(
                FailureKind.PORT_IN_USE, f"port {port} is taken ({error.strerror})"
            ) from error
