"""How vLLM lays the caches of all layers onto one pool of blocks (handbook 2.2).

Groups are formed as `get_kv_cache_groups` of vLLM 0.32 forms them for the default cache layout
(layer outermost) without connectors, drafters and context parallelism.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.llm import ModelShape
from advisor.roofline.memory.layers import LayerCache, layer_caches
from advisor.roofline.memory.settings import CacheSettings

_UNEQUAL = 1.5  # kinds whose layers differ by less share the larger count, padded


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Layers that share one block table: `layers` of them, a request's blocks are the same in each.

    `page_bytes` is that of all layers of the group, `used_bytes` the part that holds something.
    `cache` is one of them.
    """

    layers: int
    page_bytes: int
    used_bytes: int
    cache: LayerCache

    @property
    def kind(self) -> Literal["full", "sliding_window", "mamba"]:
        """Kind of all its layers."""
        return self.cache.kind

    @property
    def block_size(self) -> int:
        """Tokens in a block of this group."""
        return self.cache.block_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """All groups on one pool; a block id belongs to one group at a time.

    `block_size` is the scheduler's, `max_model_len` None where no request length was given.
    """

    groups: tuple[GroupLayout, ...]
    block_size: int
    in_flight_tokens: int = 0
    max_model_len: int | None = None

    @property
    def bytes_per_block(self) -> int:
        """Bytes of the widest group's block; 0 of a model without a cache."""
        return max((group.page_bytes for group in self.groups), default=0)

    @property
    def padding_layers(self) -> int:
        """Dead layers that make groups equal: layers' worth of page that nothing uses."""
        widest = max((group.layers for group in self.groups), default=0)
        return sum(widest - group.layers for group in self.groups)

    @property
    def padding_share(self) -> float:
        """Share of one block of every group that no layer uses: dead layers and padded pages."""
        whole = len(self.groups) * self.bytes_per_block
        return 1 - sum(group.used_bytes for group in self.groups) / whole if whole else 0.0

    @property
    def is_plain(self) -> bool:
        """One group of full attention: tokens of the pool are then simply counted."""
        return len(self.groups) == 1 and self.groups[0].kind == "full"

    def blocks_by_group(self, tokens: int) -> tuple[int, ...]:
        """Blocks that one request of `tokens` takes at most, by group."""
        return tuple(group.cache.blocks(tokens, self.in_flight_tokens) for group in self.groups)

    def request_blocks(self, tokens: int) -> int:
        """Blocks that one request of `tokens` takes at most."""
        return sum(self.blocks_by_group(tokens))

    def request_bytes(self, tokens: int) -> int:
        """Bytes of the pool that one request of `tokens` takes at most."""
        return self.request_blocks(tokens) * self.bytes_per_block


def cache_layout(model: ModelShape, settings: CacheSettings) -> CacheLayout:
    """The layout of a model under these settings.

    A KV format that the model cannot use, or ranks that do not shard it, raise `InvalidInput`.
    """
    caches = layer_caches(model, settings)
    groups = tuple(grouped(caches))
    # States are counted, not filled: the scheduler's block is the least of attention groups.
    sizes = [group.block_size for group in groups if group.kind != "mamba"]
    return CacheLayout(
        groups=groups,
        block_size=min(sizes, default=settings.block_size),
        in_flight_tokens=settings.in_flight_tokens,
        max_model_len=settings.max_model_len,
    )


def plain_layout(bytes_per_token: int, block_size: int) -> CacheLayout:
    """One full-attention group of known bytes per token, all layers together."""
    page = bytes_per_token * block_size
    cache = LayerCache(kind="full", block_size=block_size, page_bytes=page, used_bytes=page)
    group = GroupLayout(layers=1, page_bytes=page, used_bytes=page, cache=cache)
    return CacheLayout(groups=(group,), block_size=block_size)


def grouped(caches: Sequence[LayerCache]) -> list[GroupLayout]:
    """The groups of some layers: one where all ask for the same slots, else equal ones."""
    if not caches:
        return []
    if _one_type(caches):
        return [_group(list(caches))]
    widest = max(cache.page_bytes for cache in caches)
    buckets = Counter(cache.widened(widest) for cache in caches)
    counts = list(buckets.values())
    size = max(counts) if max(counts) < _UNEQUAL * min(counts) else min(counts)
    groups: list[GroupLayout] = []
    for cache, count in buckets.items():
        parts = math.ceil(count / size)
        # As layers[i::parts] deals them out.
        groups.extend(
            _group([cache] * (count // parts + (part < count % parts))) for part in range(parts)
        )
    return groups


def _one_type(caches: Sequence[LayerCache]) -> bool:
    """Whether all layers need the same number of slots, even of different width."""
    first = caches[0]
    return all(
        (cache.kind, cache.block_size, cache.window, cache.state_blocks)
        == (first.kind, first.block_size, first.window, first.state_blocks)
        and (cache.kind != "mamba" or cache.page_bytes == first.page_bytes)
        for cache in caches
    )


def _group(caches: list[LayerCache]) -> GroupLayout:
    return GroupLayout(
        layers=len(caches),
        page_bytes=sum(cache.page_bytes for cache in caches),
        used_bytes=sum(cache.used_bytes for cache in caches),
        cache=caches[0],
    )
