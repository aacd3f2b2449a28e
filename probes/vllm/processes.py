"""Finding and ending the processes of an engine by the token in their environment (case E-22)."""

import re
import socket
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from advisor.errors import EngineFailed
from advisor.states import FailureKind
from probes.vllm.command import TOKEN_VARIABLE

_KILL_LIMIT_S = 10.0
_POLL_S = 0.05
_CONNECT_LIMIT_S = 1.0
# Named segments of Python's multiprocessing, which vLLM's processes talk through.
_SEGMENT = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-)\S+)$", re.MULTILINE)


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


def shared_memory(tokens: Collection[str]) -> frozenset[Path]:
    """Segments of shared memory that the processes with one of `tokens` have mapped now.

    A killed process leaves its segments, and with them the memory, to nobody.
    """
    return _mapped(process.pid for process in find_engines(tokens))


def shared_memory_below(pid: int) -> frozenset[Path]:
    """The same of the processes below `pid`: cheap enough to be asked again and again."""
    try:
        return _mapped(child.pid for child in psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return frozenset()


def _mapped(pids: Iterable[int]) -> frozenset[Path]:
    found: set[Path] = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        except OSError:
            continue
        found.update(Path(name) for name in _SEGMENT.findall(maps))
    return frozenset(found)


def remove_shared_memory(segments: Collection[Path]) -> None:
    """Give back segments whose processes are all gone."""
    for segment in segments:
        segment.unlink(missing_ok=True)


def kill_engines(tokens: Collection[str]) -> int:
    """SIGKILL every process with one of `tokens` and verify; how many there were.

    Their shared memory goes with them.

    One that survives raises `EngineFailed` naming it, so that no start is blamed for its memory.
    """
    limit_s = time.monotonic() + _KILL_LIMIT_S
    killed: set[int] = set()
    segments = shared_memory(tokens)
    while left := find_engines(tokens):
        if time.monotonic() > limit_s:
            held = ", ".join(f"{process.pid} ({process.name})" for process in left)
            raise EngineFailed(FailureKind.DEVICE_HELD, f"device still held by process {held}")
        for process in left:
            _kill(process)
            killed.add(process.pid)
        time.sleep(_POLL_S)
    remove_shared_memory(segments)
    return len(killed)


def memory_bytes(tokens: Collection[str]) -> int:
    """Resident memory of the processes with one of `tokens`, in bytes; shared pages count twice."""
    total = 0
    for found in find_engines(tokens):
        try:
            total += int(psutil.Process(found.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            continue
    return total


def listens(host: str, port: int) -> bool:
    """Whether anybody accepts connections on that port."""
    with socket.socket() as probe:
        probe.settimeout(_CONNECT_LIMIT_S)
        return probe.connect_ex((host, port)) == 0


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
