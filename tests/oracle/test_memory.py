"""Memory as vLLM accounts it: worked examples T2.1 to T2.8 of the handbook."""

from dataclasses import replace

import pytest

from advisor.llm.mixers import GatedDeltaNet
from advisor.roofline.memory import cache_layout, capacity_of
from advisor.units import GIB
from tests.fakes.published_models import QWEN3_NEXT_80B
from tests.golden.layouts.cases import CASES
from tests.validate.memory.examples import Example, memory_examples


@pytest.mark.parametrize("example", tuple(memory_examples()), ids=lambda example: example.name)
def test_a_worked_example_is_met(example: Example) -> None:
    """T2.1 to T2.8: to every digit that the handbook prints."""
    assert example.is_met, (example.computed, example.stated)


def test_state_of_a_recurrent_layer() -> None:
    """T2.1: Qwen3-Next keeps 1,097,728 B a layer and request, 39.5 MB in 36 layers."""
    model, settings = CASES["qwen3-next, usual"]
    layers = [group.mixer for group in QWEN3_NEXT_80B.layers]
    states = [g for g in cache_layout(model, settings).groups if g.kind == "mamba"]

    assert [2 * m.state_elements for m in layers if isinstance(m, GatedDeltaNet)] == [1_097_728]
    assert QWEN3_NEXT_80B.state_bytes() == model.state_bytes() == 39_518_208
    assert sum(group.used_bytes for group in states) == 39_518_208


def test_pool_of_a_plain_model() -> None:
    """T2.2: blocks of 16 tokens of Llama-3.1-8B in 40 GiB."""
    model, settings = CASES["llama-8b, usual"]
    pool = capacity_of(cache_layout(model, replace(settings, max_model_len=131072)), 40 * GIB)

    assert (pool.bytes_per_block, pool.tokens) == (2_097_152, 327_680)


def test_groups_of_a_model_with_windows() -> None:
    """T2.3: Gemma-3-27B, seven groups, what a request of 32,768 takes, and the dead layers."""
    layout = cache_layout(*CASES["gemma-3-27b, usual"])

    assert [group.layers for group in layout.groups] == [9, 9, 9, 9, 8, 8, 10]
    assert layout.blocks_by_group(32768) == (1089,) * 6 + (2048,)
    assert layout.padding_layers == 8
