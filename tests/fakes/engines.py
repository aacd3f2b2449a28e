"""Start plans of the planted engine and of the cases' stub engine, for tests."""

import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.serving import ServingConfig
from advisor.traffic.trace import Request, RequestKind
from probes.vllm.command import EngineSpec
from probes.vllm.flags import read_schema
from probes.vllm.server import StartPlan
from tests.fakes.planted_engine import TRUTH_VARIABLE, flags
from tests.fakes.planted_text import flags_document

FAKES = Path(__file__).resolve().parent
PLANTED_LAUNCHER = FAKES / "planted_engine.py"
STUB_LAUNCHER = FAKES / "stub_launcher.py"


def planted_spec(launcher: Path = PLANTED_LAUNCHER) -> EngineSpec:
    """The planted engine as an installed engine."""
    schema = read_schema(flags_document(flags()))
    return EngineSpec(interpreter=sys.executable, launcher=str(launcher), schema=schema)


def planted_plan(
    folder: Path, truth: Mapping[str, Any], config: ServingConfig, **changes: Any
) -> StartPlan:
    """One start of the planted engine with this truth."""
    path = folder / "truth.json"
    path.write_text(json.dumps(truth))
    return _plan(
        folder,
        spec=planted_spec(),
        config=config,
        env={TRUTH_VARIABLE: str(path)},
        changes=changes,
    )


def stub_plan(folder: Path, stub: str, **changes: Any) -> StartPlan:
    """One start of the stub engine; `stub` is its script, mode and options."""
    spec = planted_spec(STUB_LAUNCHER)
    return _plan(
        folder, spec=spec, config=ServingConfig(), env={"ROOFTUNE_STUB": stub}, changes=changes
    )


def _plan(
    folder: Path,
    *,
    spec: EngineSpec,
    config: ServingConfig,
    env: Mapping[str, str],
    changes: Mapping[str, Any],
) -> StartPlan:
    token = f"rt-{uuid.uuid4().hex[:12]}"
    values: dict[str, Any] = {
        "engine": spec,
        "config": config,
        "model_path": "planted",
        "model_bytes": 1,
        "served_model_name": token,
        "token": token,
        "log_path": folder / f"{token}.log",
        "base_env": {"PATH": "/usr/bin:/bin", **env},
        "stop_grace_s": 5.0,
    }
    return StartPlan(**values | dict(changes))


def chat_request(index: int, text: str, **values: Any) -> Request:
    """A chat request with one turn."""
    return Request(
        id=f"r{index}",
        index=index,
        line=index + 1,
        kind=RequestKind.CHAT,
        messages=json.dumps([{"role": "user", "content": text}]),
        **values,
    )
