"""Blocks, tokens and requests that a cache of some bytes holds (handbook 2.2)."""

import math
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.roofline.memory.layout import CacheLayout, plain_layout

NULL_BLOCKS = 1  # block 0 of vLLM's pool never holds a token


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """A pool of `num_blocks` blocks under a layout."""

    num_blocks: int
    layout: CacheLayout

    @property
    def block_size(self) -> int:
        """Tokens in a block, as the scheduler counts them."""
        return self.layout.block_size

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block on one rank."""
        return self.layout.bytes_per_block

    @property
    def tokens(self) -> int:
        """Tokens in all blocks of one full-attention group; else the engine's own figure.

        That figure is maximum concurrency times the longest request: of a model with several groups
        it depends on `max_model_len` and is a ratio, not a count of storable tokens.
        """
        if self.layout.is_plain or self.layout.max_model_len is None:
            return self.num_blocks * self.block_size
        return self.reported_tokens

    @property
    def reported_tokens(self) -> int:
        """``kv_cache_size_tokens`` as the engine logs it."""
        longest = self._longest()
        return int(self.max_concurrency(longest) * longest)

    def _longest(self) -> int:
        if self.layout.max_model_len is None:
            raise InvalidInput("max_model_len", "is not known for this cache")
        return self.layout.max_model_len

    def max_concurrency(self, tokens_per_request: int) -> float:
        """How many requests of that length the pool holds, in whole blocks per request."""
        return self.num_blocks / self.layout.request_blocks(tokens_per_request)

    def requests(self, tokens_per_request: float) -> int:
        """Whole requests that fit beside the null block (handbook 4.1, B_kv)."""
        usable = self.num_blocks - NULL_BLOCKS
        return usable // max(1, self.layout.request_blocks(math.ceil(tokens_per_request)))

    @property
    def starts(self) -> bool:
        """Whether one request of `max_model_len` fits beside the null block: else vLLM refuses."""
        return self.requests(self._longest()) >= 1

    def longest_request(self) -> int:
        """Tokens of the longest request that fits beside the null block, up to `max_model_len`."""
        low, high = 0, self._longest()
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.requests(middle) >= 1 else (low, middle - 1)
        return low


def capacity_of(layout: CacheLayout, available_bytes: float) -> KvCapacity:
    """Blocks that fit into `available_bytes`; less than two of them hold no request.

    A layout without groups (no layer caches anything) raises `InvalidInput` too.
    """
    size = layout.bytes_per_block
    if size < 1:
        raise InvalidInput("kv_cache", "no layer of this model caches anything")
    num_blocks = math.floor(available_bytes) // size
    if num_blocks <= NULL_BLOCKS:
        raise InvalidInput(
            "kv_cache", f"{available_bytes:.0f} B hold {num_blocks} blocks of {size} B"
        )
    return KvCapacity(num_blocks=num_blocks, layout=layout)


def kv_capacity(*, available_bytes: int, bytes_per_token: int, block_size: int) -> KvCapacity:
    """Blocks of a cache of one full-attention group; less than two of them hold no request."""
    return capacity_of(plain_layout(bytes_per_token, block_size), available_bytes)
