"""The simulator's cache groups, from the layout that memory accounting gives."""

from advisor.errors import InvalidInput
from advisor.roofline.memory import CacheLayout
from advisor.simulator.settings import CacheGroup


def cache_groups(layout: CacheLayout) -> tuple[CacheGroup, ...]:
    """One group per block table of `layout`, in its order.

    The scheduler has one size of block: a layout whose attention groups differ in theirs raises
    `InvalidInput`, as does a model that caches nothing.
    """
    if not layout.groups:
        raise InvalidInput("model", "caches nothing, so that no group of blocks can be simulated")
    if any(g.kind != "mamba" and g.block_size != layout.block_size for g in layout.groups):
        raise InvalidInput("model", "has groups of different block size, which is not simulated")
    return tuple(
        CacheGroup(
            kind=group.kind,
            window=group.cache.window,
            state_blocks=max(1, group.cache.state_blocks),
        )
        for group in layout.groups
    )
