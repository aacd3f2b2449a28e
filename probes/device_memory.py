"""Who holds the device's memory now, asked before an engine is started (cases E-08 and E-22).

An engine that starts on memory that others hold runs out of it, and its configuration would be
blamed. nvidia-smi is asked on a GPU, the kernel on a CPU.
"""

import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import psutil

from advisor.errors import EngineFailed, InvalidInput
from advisor.roofline.memory.budget import UTILIZATION, DeviceMemory
from advisor.serving import ServingConfig
from advisor.states import FailureKind
from advisor.units import GIB, MIB

ASK_TIMEOUT_S = 20.0
# A driver frees the memory of a killed process a moment after the process is gone.
SETTLE_S = 10.0
_POLL_S = 0.5
_GPU_FIELDS = ("index", "uuid", "memory.total", "memory.free")
_APP_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
# Processes of a CPU's memory that are worth naming.
_SHOWN_SHARE = 0.02
_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process with memory of the device; `used_bytes` None where the driver does not say."""

    pid: int
    name: str
    used_bytes: int | None

    @property
    def text(self) -> str:
        """How it is named to a user."""
        used = "" if self.used_bytes is None else f", {self.used_bytes / GIB:.1f} GiB"
        return f"pid {self.pid} ({self.name}{used})"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """The memory of one device at one moment, and who holds it."""

    kind: str
    total_bytes: int
    free_bytes: int
    holders: tuple[Holder, ...] = ()


ReadMemory: TypeAlias = Callable[[], MemoryReading | None]


def parse_gpu_memory(gpus: str, processes: str, index: int) -> MemoryReading:
    """A GPU's memory from nvidia-smi's rows for ``--query-gpu`` and ``--query-compute-apps``.

    CSV without header and units (MiB). A row of another form, or an index that is not there,
    raises `InvalidInput`.
    """
    by_index = {row["index"]: row for row in _rows("--query-gpu", gpus, _GPU_FIELDS)}
    gpu = by_index.get(str(index))
    if gpu is None:
        raise InvalidInput("nvidia-smi", f"shows no GPU {index}")
    total, free = _bytes(gpu["memory.total"]), _bytes(gpu["memory.free"])
    if total is None or free is None:
        raise InvalidInput("nvidia-smi", f"does not say how much memory GPU {index} has")
    holders = tuple(
        Holder(pid=int(row["pid"]), name=row["process_name"], used_bytes=_bytes(row["used_memory"]))
        for row in _rows("--query-compute-apps", processes, _APP_FIELDS)
        if row["gpu_uuid"] == gpu["uuid"]
    )
    return MemoryReading(kind="cuda", total_bytes=total, free_bytes=free, holders=holders)


def gpu_memory(index: int) -> MemoryReading | None:
    """What the driver says of GPU `index`; None where nvidia-smi is missing or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    gpus = _asked([program, f"--query-gpu={','.join(_GPU_FIELDS)}"])
    processes = _asked([program, f"--query-compute-apps={','.join(_APP_FIELDS)}"])
    if gpus is None or processes is None:
        return None
    try:
        return parse_gpu_memory(gpus, processes, index)
    except (InvalidInput, ValueError):
        return None


def cpu_memory() -> MemoryReading:
    """The machine's memory and the processes that hold most of it."""
    memory = psutil.virtual_memory()
    held: list[Holder] = []
    for process in psutil.process_iter():
        try:
            used = int(process.memory_info().rss)
            if used >= _SHOWN_SHARE * memory.total:
                held.append(Holder(pid=process.pid, name=process.name(), used_bytes=used))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    held.sort(key=lambda holder: -(holder.used_bytes or 0))
    return MemoryReading(
        kind="cpu",
        total_bytes=int(memory.total),
        free_bytes=int(memory.available),
        holders=tuple(held[:_SHOWN]),
    )


def memory_reader(kind: str, device_name: str) -> ReadMemory:
    """The reader for a device of this kind; its index is the number that its name ends in."""
    if kind == "cpu":
        return cpu_memory
    number = re.search(r"(\d+)$", device_name)
    index = int(number[1]) if number else 0
    return lambda: gpu_memory(index)


def why_held(
    reading: MemoryReading, config: ServingConfig, *, non_kv_bytes: int, ours: Collection[int] = ()
) -> str | None:
    """Why `config` cannot start beside what others hold now; None when it can.

    `non_kv_bytes` is what it needs beside its cache, as far as known. `ours` are processes of this
    service, which are not to be blamed.
    """
    if reading.kind == "cpu":
        return _cpu_held(reading, config, non_kv_bytes, ours)
    asked = DeviceMemory(
        kind="cuda",
        total_bytes=reading.total_bytes,
        utilization=config.levers.gpu_memory_utilization or UTILIZATION,
        free_bytes=reading.free_bytes,
    )
    if not asked.is_too_full:
        return None
    # Rounded down: the highest share that starts, in steps of a thousandth.
    share = math.floor(1000 * reading.free_bytes / reading.total_bytes) / 1000
    left = max(0.0, share * reading.total_bytes - non_kv_bytes)
    return (
        f"GPU still held by {_names(reading, ours)}: {asked.requested_bytes / GIB:.1f} GiB asked"
        f" (gpu_memory_utilization {asked.utilization:g} of all {reading.total_bytes / GIB:.1f}),"
        f" {reading.free_bytes / GIB:.1f} free; the highest gpu_memory_utilization that starts is"
        f" {share:g}, with at most {left / GIB:.1f} GiB for the KV cache"
    )


def refuse_held(
    read: ReadMemory,
    config: ServingConfig,
    *,
    non_kv_bytes: int,
    ours: Collection[int] = (),
    cancelled: threading.Event | None = None,
    settle_s: float = SETTLE_S,
) -> None:
    """Raise `EngineFailed` (`DEVICE_HELD`) when others hold what the start needs.

    What the last engine held may come free a moment later: asked again for `settle_s`. A device
    that cannot be asked refuses nothing.
    """
    limit_s = time.monotonic() + settle_s
    stop = cancelled or threading.Event()
    while True:
        reading = read()
        why = None
        if reading is not None:
            why = why_held(reading, config, non_kv_bytes=non_kv_bytes, ours=ours)
        if why is None:
            return
        if time.monotonic() >= limit_s or stop.wait(_POLL_S):
            raise EngineFailed(
                FailureKind.DEVICE_HELD, why, setting="gpu_memory_utilization", bound=None
            )


def _cpu_held(
    reading: MemoryReading, config: ServingConfig, non_kv_bytes: int, ours: Collection[int]
) -> str | None:
    space = config.functional.kv_cache_space_gib
    needed = non_kv_bytes + (space or 0) * GIB
    # What does not fit the machine at all is the configuration's own fault: the engine says so.
    if needed <= reading.free_bytes or needed > reading.total_bytes:
        return None
    return (
        f"memory still held by {_names(reading, ours)}: {needed / GIB:.1f} GiB needed (weights,"
        f" and kv_cache_space_gib {space or 0}), {reading.free_bytes / GIB:.1f} of"
        f" {reading.total_bytes / GIB:.1f} free"
    )


def _names(reading: MemoryReading, ours: Collection[int]) -> str:
    others = [holder.text for holder in reading.holders if holder.pid not in ours]
    return ", ".join(others) or "processes that the driver does not name here (a container's?)"


def _rows(query: str, text: str, names: Sequence[str]) -> list[Mapping[str, str]]:
    found: list[Mapping[str, str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip():
            continue
        if len(cells) != len(names):
            raise InvalidInput(f"nvidia-smi {query}", f"a row has {len(cells)} fields")
        found.append(dict(zip(names, cells, strict=True)))
    return found


def _bytes(cell: str) -> int | None:
    return round(float(cell) * MIB) if re.fullmatch(r"\d+(?:\.\d+)?", cell) else None


def _asked(argv: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            [*argv, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=False,
            timeout=ASK_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
