"""What vLLM says it computed and moved is what our step costs say."""

from pathlib import Path

import pytest

from probes.vllm.command import EngineSpec
from probes.vllm.server import start_engine
from tests.validate.mfu import comparison, counted_over_the_load, shape_of, start_plan

pytestmark = [pytest.mark.engine, pytest.mark.long]


def test_flop_and_bytes_agree_with_vllms_own_estimator(
    vllm_spec: EngineSpec, demo_model: Path, tmp_path: Path
) -> None:
    """Within 5 %, once its missing causal half is accounted for; before that it counts more."""
    with start_engine(start_plan(vllm_spec, demo_model, tmp_path / "engine.log")) as engine:
        found = comparison(shape_of(demo_model), counted_over_the_load(engine))

    assert found.theirs.steps > 0
    assert found.flops_error < 0.05
    assert found.bytes_error < 0.05
    assert found.ours.flops < found.theirs.flops
