"""The accelerators of this machine, from what ``scripts/device.py`` collected of the driver."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.errors import InvalidInput
from advisor.hardware.live import LiveDevice, SeenDevice, recognise
from advisor.units import MIB

# Fields of nvidia-smi, and what they are called here.
SMI_FIELDS: Mapping[str, str] = {
    "name": "name",
    "memory.total": "memory_bytes",
    "compute_cap": "compute_capability",
    "power.limit": "power_limit_watts",
    "power.default_limit": "default_power_watts",
    "clocks.applications.graphics": "sm_clock_mhz",
    "clocks.max.sm": "most_sm_clock_mhz",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.max": "most_pcie_generation",
    "pcie.link.width.current": "pcie_lanes",
    "pcie.link.width.max": "most_pcie_lanes",
    "mig.mode.current": "mig_enabled",
    "driver_version": "driver",
}
_TEXTS = ("name", "compute_capability", "driver")
_WHOLE = ("pcie_generation", "most_pcie_generation", "pcie_lanes", "most_pcie_lanes")
_NVML: Mapping[str, tuple[str, float]] = {
    "power_limit_mw": ("power_limit_watts", 1e-3),
    "default_power_mw": ("default_power_watts", 1e-3),
    "application_clock_mhz": ("sm_clock_mhz", 1.0),
    "most_clock_mhz": ("most_sm_clock_mhz", 1.0),
}


def live_devices(collected: Mapping[str, Any]) -> tuple[LiveDevice, ...]:
    """Every accelerator that torch, NVML or nvidia-smi saw; none on a machine that has only a CPU.

    NVML says most and is taken where it answered, else nvidia-smi; torch adds what they lack, as
    long as all of them count the same devices. A broken report raises `InvalidInput`.
    """
    try:
        told = [_from_nvml(item) for item in collected.get("nvml") or ()]
        if not told and collected.get("smi"):
            told = list(parse_smi(str(collected["smi"]), collected.get("smi_fields")))
        by_torch = [_from_torch(item) for item in collected.get("torch") or ()]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("device report", f"unexpected output: {error!r}") from error
    if len(told) == len(by_torch):
        told = [_completed(first, second) for first, second in zip(told, by_torch, strict=True)]
    return tuple(recognise(seen) for seen in told or by_torch)


def parse_smi(text: str, fields: Sequence[str] | None = None) -> tuple[SeenDevice, ...]:
    """Rows of ``nvidia-smi --query-gpu=... --format=csv,noheader,nounits``.

    ``[N/A]`` and ``[Not Supported]`` are None. A row with another number of fields raises
    `InvalidInput` with its line.
    """
    names = tuple(fields or SMI_FIELDS)
    found: list[SeenDevice] = []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip() for cell in line.split(",")]
        if not line.strip():
            continue
        if len(cells) != len(names):
            raise InvalidInput(
                f"nvidia-smi line {number}", f"has {len(cells)} fields instead of {len(names)}"
            )
        values = {SMI_FIELDS[name]: cell for name, cell in zip(names, cells, strict=True)}
        found.append(_from_cells(values, number))
    return tuple(found)


def _from_cells(cells: Mapping[str, str], number: int) -> SeenDevice:
    held: dict[str, Any] = {}
    for name, cell in cells.items():
        if cell.startswith("[") or cell == "N/A":
            continue
        try:
            held[name] = _value(name, cell)
        except ValueError:
            raise InvalidInput(
                f"nvidia-smi line {number}", f"{name} is {cell!r}, not a number"
            ) from None
    return SeenDevice(**held)


def _value(name: str, cell: str) -> object:
    if name in _TEXTS:
        return cell
    if name == "mig_enabled":
        return cell.lower() == "enabled"
    if name == "memory_bytes":
        return round(float(cell) * MIB)
    return int(cell) if name in _WHOLE else float(cell)


def _from_nvml(item: Mapping[str, Any]) -> SeenDevice:
    held: dict[str, Any] = {"name": str(item["name"])}
    for theirs, (ours, factor) in _NVML.items():
        if item.get(theirs) is not None:
            held[ours] = float(item[theirs]) * factor
    for name in (*_WHOLE, "memory_bytes", "nvlink_links"):
        if item.get(name) is not None:
            held[name] = int(item[name])
    if item.get("mig_enabled") is not None:
        held["mig_enabled"] = bool(item["mig_enabled"])
    if item.get("driver") is not None:
        held["driver"] = str(item["driver"])
    return SeenDevice(**held)


def _from_torch(item: Mapping[str, Any]) -> SeenDevice:
    return SeenDevice(
        name=str(item["name"]),
        memory_bytes=int(item["memory_bytes"]),
        multiprocessors=int(item["multiprocessors"]),
        compute_capability=str(item["compute_capability"]),
    )


def _completed(told: SeenDevice, by_torch: SeenDevice) -> SeenDevice:
    """Torch knows the memory that a process gets, and a slice by its name."""
    return replace(
        told,
        name=by_torch.name,
        memory_bytes=by_torch.memory_bytes,
        multiprocessors=by_torch.multiprocessors,
        compute_capability=by_torch.compute_capability,
    )
