"""From the layout of a cache to the groups that the simulator schedules."""

import pytest

from advisor.errors import InvalidInput
from advisor.roofline.memory import CacheLayout, cache_layout
from advisor.simulator.from_layout import cache_groups
from tests.golden.layouts.cases import CASES


def laid_out(name: str) -> CacheLayout:
    """The layout of a recorded case."""
    model, settings = CASES[name]
    return cache_layout(model, settings)


def test_windows_and_states_arrive() -> None:
    """One group a block table, in its order, with its window or its states."""
    gemma = cache_groups(laid_out("gemma-3-27b, usual"))
    assert [group.window for group in gemma] == [1024] * 6 + [None]
    hybrid = cache_groups(laid_out("qwen3-next, drafts"))
    assert [group.state_blocks for group in hybrid] == [5, 5, 5, 1]
    assert [group.kind for group in hybrid] == ["mamba"] * 3 + ["full"]


def test_layouts_that_the_simulator_cannot_schedule_are_refused() -> None:
    """Blocks of different size, and models without a cache."""
    unlike = laid_out("unlike-heads, usual")
    assert len({group.block_size for group in unlike.groups}) > 1
    with pytest.raises(InvalidInput, match="different block size"):
        cache_groups(unlike)
    with pytest.raises(InvalidInput, match="caches nothing"):
        cache_groups(CacheLayout(groups=(), block_size=16))
