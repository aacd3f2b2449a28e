"""The agent's device: its class, and what a micro-benchmark on the engine's threads measured."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.hardware import DeviceFacts
from advisor.units import bytes_text

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The strongest instruction set names the class; the order is from strong to weak.
FEATURES = (
    ("amx_tile", "amx"),
    ("avx512_bf16", "avx512bf16"),
    ("avx512f", "avx512"),
    ("avx2", "avx2"),
    ("sve", "sve"),
    ("asimd", "neon"),
)
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16", "fp8": "float8", "int8": "int8"}


def physical_cores() -> int:
    """Cores of this machine that this process may use (two threads of one core count once)."""
    usable = len(psutil.Process().cpu_affinity() or [0])
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))


def engine_threads(wanted: int | None) -> int:
    """Threads that the engine computes on: as vLLM's own binding, all cores but one."""
    return wanted or max(1, physical_cores() - 1)


def boot_id() -> str:
    """Identifier of this boot of the machine; figures measured before another boot are stale."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else f"{psutil.boot_time():.0f}"


def device_class(kind: str, name: str, features: Sequence[str], cores: int) -> str:
    """A short name that equal devices share: ``cpu-2c-avx2``, or the accelerator's name."""
    if kind == "cpu":
        held = set(features)
        feature = next((short for flag, short in FEATURES if flag in held), "generic")
        return f"cpu-{cores}c-{feature}"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _estimate(figure: Mapping[str, Any], unit: str) -> Estimate:
    samples = figure.get("samples", "several")
    return Estimate(
        value=float(figure[f"value_{unit}"]),
        low=float(figure["low"]),
        high=float(figure["high"]),
        source=Source.MEASURED,
        basis=f"micro-benchmark, range of {samples} samples",
    )


def device_facts(measured: Mapping[str, Any]) -> DeviceFacts:
    """The output of ``scripts/microbench.py`` as facts; a broken one raises `InvalidInput`."""
    try:
        return DeviceFacts(
            name=str(measured["device_name"]),
            kind=str(measured["device"]),
            threads=int(measured["threads"]),
            memory_bytes=int(measured["total_memory_bytes"]),
            bandwidth_bytes_per_s=_estimate(measured["memory_bandwidth"], "bytes_per_s"),
            matrix_rate_flops_per_s={
                DTYPES.get(name, name): _estimate(figure, "flops_per_s")
                for name, figure in measured["matrix_rate"].items()
            },
            cpu_features=tuple(str(item) for item in measured["cpu_features"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("microbench", f"unexpected output: {error!r}") from error


def machine_text(facts: DeviceFacts) -> str:
    """The machine for a person: processor, threads that computed, memory."""
    threads = "" if facts.threads is None else f", {facts.threads} compute threads"
    return f"{facts.name}, {physical_cores()} cores{threads}, {bytes_text(facts.memory_bytes)}"
