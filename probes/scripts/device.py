"""Say what accelerators this machine has, as torch, NVML and nvidia-smi report them.

Run by the engine's interpreter, without arguments; nothing is measured and no setting is changed.
NVML is asked through pynvml (its own package, or vLLM's copy), else the text of nvidia-smi is
handed on as it is. One JSON object on stdout: ``kind`` (cpu or cuda), ``torch`` and ``nvml`` (a
list of devices, or null where the library is not there or fails, with the reason in
``unavailable``), ``smi`` (text or null), ``smi_fields``.
"""

import importlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

ASK_TIMEOUT_S = 20.0
# In the order of the columns that nvidia-smi is asked for.
SMI_FIELDS = (
    *("name", "memory.total", "compute_cap", "power.limit", "power.default_limit"),
    *("clocks.applications.graphics", "clocks.max.sm", "pcie.link.gen.current"),
    *("pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
    *("mig.mode.current", "driver_version"),
)
MOST_LINKS = 18


def torch_devices() -> list[dict[str, object]]:
    """Name, memory, multiprocessors and capability of each device that torch sees."""
    import torch

    found: list[dict[str, object]] = []
    for index in range(torch.cuda.device_count()):
        held = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": held.name,
                "memory_bytes": int(held.total_memory),
                "multiprocessors": int(held.multi_processor_count),
                "compute_capability": f"{held.major}.{held.minor}",
            }
        )
    return found


def nvml() -> ModuleType:
    """NVML's bindings: the package, or the copy in vLLM, without importing vLLM itself."""
    if importlib.util.find_spec("pynvml") is not None:
        return importlib.import_module("pynvml")
    found = importlib.util.find_spec("vllm")
    folders = [] if found is None else list(found.submodule_search_locations or [])
    for folder in folders:
        file = Path(folder) / "third_party" / "pynvml.py"
        spec = importlib.util.spec_from_file_location("vllm_pynvml", file)
        if file.exists() and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
            return module
    message = "no pynvml"
    raise ImportError(message)


def asked(question: Callable[[], object]) -> object:
    """The answer, or null where this device or driver has none."""
    try:
        answer = question()
    except Exception:  # noqa: BLE001  # NVML's errors are classes of a module found at run time
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def nvml_devices() -> list[dict[str, object]]:
    """Limits, clocks, links and MIG mode of each device that NVML sees."""
    library = nvml()
    library.nvmlInit()
    try:
        count = int(library.nvmlDeviceGetCount())
        return [nvml_device(library, index) for index in range(count)]
    finally:
        library.nvmlShutdown()


def nvml_device(library: ModuleType, index: int) -> dict[str, object]:
    """One device; power in milliwatts, clocks in MHz, as NVML says them."""
    handle = library.nvmlDeviceGetHandleByIndex(index)
    clock = library.NVML_CLOCK_SM
    memory = asked(lambda: library.nvmlDeviceGetMemoryInfo(handle).total)
    links = [
        asked(partial(library.nvmlDeviceGetNvLinkState, handle, link)) for link in range(MOST_LINKS)
    ]
    mode = asked(lambda: library.nvmlDeviceGetMigMode(handle)[0])
    return {
        "name": asked(lambda: library.nvmlDeviceGetName(handle)),
        "memory_bytes": memory,
        "power_limit_mw": asked(lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle)),
        "default_power_mw": asked(lambda: library.nvmlDeviceGetPowerManagementDefaultLimit(handle)),
        "application_clock_mhz": asked(
            lambda: library.nvmlDeviceGetApplicationsClock(handle, clock)
        ),
        "most_clock_mhz": asked(lambda: library.nvmlDeviceGetMaxClockInfo(handle, clock)),
        "pcie_generation": asked(lambda: library.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        "most_pcie_generation": asked(lambda: library.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        "pcie_lanes": asked(lambda: library.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        "most_pcie_lanes": asked(lambda: library.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        "nvlink_links": sum(1 for state in links if state == 1),
        "mig_enabled": None if mode is None else mode == 1,
        "driver": asked(library.nvmlSystemGetDriverVersion),
    }


def smi_text() -> str | None:
    """Rows of nvidia-smi, a line a device; null where it is not installed or fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    argv = [program, f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main() -> int:
    """Ask all three and print what they said."""
    answers: dict[str, object] = {}
    unavailable: dict[str, str] = {}
    for name, ask in (("torch", torch_devices), ("nvml", nvml_devices)):
        try:
            answers[name] = ask()
        except Exception as error:  # noqa: BLE001  # a library that is not there, or a driver
            answers[name] = None
            unavailable[name] = f"{type(error).__name__}: {error}"[:200]
    smi = smi_text()
    found = bool(answers["torch"] or answers["nvml"] or smi)
    answers |= {"kind": "cuda" if found else "cpu", "smi": smi, "smi_fields": SMI_FIELDS}
    print(json.dumps({**answers, "unavailable": unavailable}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
