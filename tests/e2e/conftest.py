"""What the end-to-end tests share."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The real demo model, built once per checkout by the engine's interpreter."""
    if not ENGINE_PYTHON.exists():
        pytest.skip("the engine environment is not installed (make setup)")
    script = ROOT / "probes" / "scripts" / "demo_model.py"
    out = ROOT / ".rooftune-dev" / "models" / "demo"
    done = subprocess.run(
        [ENGINE_PYTHON, script, "--out", out], stdout=subprocess.PIPE, check=True, timeout=600
    )
    return Path(json.loads(done.stdout)["path"])
