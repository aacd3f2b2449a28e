"""One real engine with the demo model, for all parts of `make measure-checks` that load it."""

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.serving import FunctionalSettings, Levers, ServingConfig
from probes.settings import engine_environment
from probes.vllm.command import EngineSpec
from probes.vllm.server import StartPlan
from tests.fakes.real_engine import find_demo_model, find_engine, find_interpreter

CONFIG = ServingConfig(
    functional=FunctionalSettings(max_model_len=2048, enforce_eager=True, kv_cache_space_gib=1),
    # 32-bit floats: the type that every processor has instructions for. Without those for
    # bfloat16 a load takes many times as long, and no check would fit its time.
    levers=Levers(enable_prefix_caching=True, dtype="float32"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The installed vLLM and the folder of the demo model."""

    spec: EngineSpec
    model: Path


def installed(folder: Path) -> Installed:
    """What `make setup` installed; a missing demo model is built below `folder`.

    Raises `Unavailable` where there is no engine.
    """
    python = find_interpreter()
    return Installed(spec=find_engine(python), model=find_demo_model(python, folder / "demo"))


def engine_plan(found: Installed, log_path: Path, **changes: Any) -> StartPlan:
    """One start with prefix caching, eager, 1 GiB for the KV cache, under a token of its own."""
    token = f"rt-{uuid.uuid4().hex[:12]}"
    plan = StartPlan(
        engine=found.spec,
        config=CONFIG,
        model_path=str(found.model),
        model_bytes=(found.model / "model.safetensors").stat().st_size,
        served_model_name=token,
        token=token,
        log_path=log_path,
        base_env=engine_environment(),
    )
    return replace(plan, **changes)
