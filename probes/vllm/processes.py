"""Finding and ending the processes of an engine by the token in their environment (case E-22)."""

import time
from collections.abc import Collection
from dataclasses import dataclass

import psutil

from advisor.errors import EngineFailed
from advisor.states import FailureKind
from probes.vllm.command import TOKEN_VARIABLE

_KILL_LIMIT_S = 10.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProcess:
    """A live process that carries an engine's token; `started_at` is seconds since the epoch."""

    pid: int
    started_at: float
    token: str
    name: str


def find_engines(tokens: Collection[str]) -> tuple[EngineProcess, ...]:
    """Live processes whose environment has one of `tokens`; zombies hold nothing and are left out.

    A free port is no proof that an engine is gone: its core can live on with the memory.
    """
    found = []
    for process in psutil.process_iter():
        try:
            token = process.environ().get(TOKEN_VARIABLE)
            if token in tokens and process.status() != psutil.STATUS_ZOMBIE:
                found.append(
                    EngineProcess(
                        pid=process.pid,
                        started_at=process.create_time(),
                        token=str(token),
                        name=process.name(),
                    )
                )
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue
    return tuple(found)


def kill_engines(tokens: Collection[str]) -> int:
    """SIGKILL every process with one of `tokens` and verify; how many there were.

    One that survives raises `EngineFailed` naming it, so that no start is blamed for its memory.
    """
    limit_s = time.monotonic() + _KILL_LIMIT_S
    killed: set[int] = set()
    while left := find_engines(tokens):
        if time.monotonic() > limit_s:
            held = ", ".join(f"{process.pid} ({process.name})" for process in left)
            raise EngineFailed(FailureKind.DIED, f"device still held by process {held}")
        for process in left:
            _kill(process)
            killed.add(process.pid)
        time.sleep(_POLL_S)
    return len(killed)


def started_at(pid: int) -> float | None:
    """Start time of a process in seconds since the epoch; with its pid it names it for good."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def _kill(process: EngineProcess) -> None:
    try:
        handle = psutil.Process(process.pid)
        if handle.create_time() == process.started_at:
            handle.kill()
    except psutil.NoSuchProcess:
        return
