"""What a configuration makes of an engine."""

from advisor.hardware import all_reduce, datasheet
from advisor.roofline.step.efficiency import prior_efficiency
from advisor.serving import ServingConfig
from advisor.simulator.engine import SchedulerWords, engine_model
from tests.fakes.published_models import QWEN3_NEXT_80B


def test_a_recurrent_model_is_simulated_without_its_prefix_cache_and_says_so() -> None:
    """The engine's default has one; what is left out is named, and nothing is refused."""
    device = datasheet("h200-sxm")

    found = engine_model(
        QWEN3_NEXT_80B,
        device,
        ServingConfig(),
        SchedulerWords(tensor_parallel_size=2),
        efficiency=prior_efficiency(device),
        all_reduce=all_reduce("h200-sxm", 2),
    )

    assert found.plan.settings.enable_prefix_caching
    assert not any(level.settings.enable_prefix_caching for level in found.levels)
    assert any("prefix caching of recurrent layers" in item for item in found.not_modelled)
