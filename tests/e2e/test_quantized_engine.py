"""8-bit weights for real: quantized by llm-compressor, found again, served by vLLM."""

import threading
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.serving import FunctionalSettings, ServingConfig, WeightQuantization
from advisor.techniques import technique
from probes.load.plan import ReplayRule, load_plan
from probes.load.runner import run_load
from probes.quantizer import Checkpoint, Order, Quantizer
from probes.settings import engine_environment
from probes.targets import model_digest
from probes.vllm.command import EngineSpec
from probes.vllm.server import StartPlan, start_engine
from probes.workplace import weight_file_bytes
from tests.fakes.engines import chat_request

pytestmark = pytest.mark.engine

SEQUENCES = tuple(tuple(range(start, start + 96)) for start in range(500, 900, 100))


@pytest.fixture
def quantizer(quantizer_python: Path, tmp_path: Path) -> Quantizer:
    return Quantizer(
        python=quantizer_python,
        folder=tmp_path / "checkpoints",
        env=engine_environment(),
        threads=1,
    )


def made(quantizer: Quantizer, model: Path) -> tuple[Checkpoint, list[str]]:
    """The checkpoint of a GPTQ order, and what the caller was told meanwhile."""
    order = Order(
        model=model,
        model_digest=model_digest(model),
        quantization=WeightQuantization(),
        workload_digest="test",
        calibration=SEQUENCES,
        seed=1,
    )
    phases: list[str] = []
    checkpoint = quantizer.checkpoint(
        order,
        cancelled=threading.Event(),
        on_progress=lambda phase, _elapsed_s: phases.append(phase),
    )
    return checkpoint, phases


def start_of(spec: EngineSpec, checkpoint: Path, log: Path) -> StartPlan:
    """The technique's configuration on the checkpoint."""
    functional = FunctionalSettings(max_model_len=1024, enforce_eager=True, kv_cache_space_gib=1)
    token = f"rt-{uuid.uuid4().hex[:12]}"
    return StartPlan(
        engine=spec,
        config=technique("int8_weights").variant(ServingConfig(functional=functional)),
        model_path=str(checkpoint),
        model_bytes=weight_file_bytes(checkpoint),
        served_model_name=token,
        token=token,
        log_path=log,
        base_env=engine_environment(),
    )


def test_a_checkpoint_made_here_is_served_here(
    quantizer: Quantizer, vllm_spec: EngineSpec, demo_model: Path, tmp_path: Path
) -> None:
    """GPTQ on a few sequences; fewer weight bytes, the same tokenizer, and an answer."""
    checkpoint, _ = made(quantizer, demo_model)
    again, phases = made(quantizer, demo_model)
    request = replace(chat_request(0, "What is the capital of France?"), max_tokens=8)
    with start_engine(start_of(vllm_spec, checkpoint.path, tmp_path / "engine.log")) as engine:
        plan = load_plan(
            [request],
            host=engine.host,
            port=engine.port,
            model=engine.served_model_name,
            concurrency=1,
            rule=ReplayRule(cap_tokens=8, default_tokens=8, fixed=True),
        )
        (record,) = run_load(plan).records

    assert again == checkpoint
    assert phases == ["checking the quantized weights"]
    assert weight_file_bytes(checkpoint.path) < 0.7 * weight_file_bytes(demo_model)
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (checkpoint.path / name).read_bytes() == (demo_model / name).read_bytes()
    assert record.output_tokens == 8
