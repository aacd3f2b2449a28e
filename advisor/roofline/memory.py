"""Memory of the key-value cache: blocks, capacity and waste (handbook 2.2 and 2.4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput

NULL_BLOCKS = 1  # block 0 of vLLM's pool never holds a token


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """A paged cache of one full-attention group."""

    num_blocks: int
    block_size: int
    bytes_per_block: int

    @property
    def tokens(self) -> int:
        """Tokens in all blocks, as the engine prints them."""
        return self.num_blocks * self.block_size

    def max_concurrency(self, tokens_per_request: int) -> float:
        """How many requests of that length the blocks hold, in whole blocks per request."""
        return self.num_blocks / math.ceil(tokens_per_request / self.block_size)

    def requests(self, tokens_per_request: float) -> int:
        """Whole requests that fit beside the null block (handbook 4.1, B_kv)."""
        return (self.num_blocks - NULL_BLOCKS) // max(
            1, math.ceil(tokens_per_request / self.block_size)
        )


def kv_capacity(*, available_bytes: int, bytes_per_token: int, block_size: int) -> KvCapacity:
    """Blocks that fit into `available_bytes`; less than two of them hold no request."""
    bytes_per_block = block_size * bytes_per_token
    num_blocks = available_bytes // bytes_per_block
    if num_blocks <= NULL_BLOCKS:
        raise InvalidInput(
            "kv_cache", f"{available_bytes} B hold {num_blocks} blocks of {bytes_per_block} B"
        )
    return KvCapacity(num_blocks=num_blocks, block_size=block_size, bytes_per_block=bytes_per_block)


def contiguous_utilisation(lengths: Sequence[int], max_length: int) -> float:
    """Used share of a cache that reserves the longest length for every request."""
    return sum(lengths) / (len(lengths) * max_length)


def paged_utilisation(lengths: Sequence[int], block_size: int) -> float:
    """Used share of a paged cache: only the last block of a request is partly empty."""
    reserved = sum(math.ceil(length / block_size) * block_size for length in lengths)
    return sum(lengths) / reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """How full a cache gets with paged blocks and with contiguous reservation.

    Shares of reserved cache that hold tokens, and how many mean requests the cache holds at once;
    None where its size is not known.
    """

    paged_share: float
    contiguous_share: float
    paged_requests: float | None
    contiguous_requests: float | None


def occupancy(
    *,
    mean_tokens: float,
    paged_share: float,
    block_size: int,
    reserved_tokens: int,
    kv_tokens: int | None,
) -> Occupancy:
    """Both ways on a measured cache of `kv_tokens` (handbook 2.4).

    `mean_tokens` are prompt and output of a request, `paged_share` is `paged_utilisation` of this
    traffic, `reserved_tokens` what contiguous reservation sets aside for each request. The paged
    cache leaves out its null block.
    """
    if not 0 < mean_tokens <= reserved_tokens:
        raise InvalidInput("mean_tokens", f"{mean_tokens} is not within (0, {reserved_tokens}]")
    if not 0 < paged_share <= 1 or block_size < 1:
        raise InvalidInput("paged_share", "is no share of whole blocks")
    known = kv_tokens is not None and kv_tokens > NULL_BLOCKS * block_size
    usable = (kv_tokens or 0) - NULL_BLOCKS * block_size
    return Occupancy(
        paged_share=paged_share,
        contiguous_share=mean_tokens / reserved_tokens,
        paged_requests=usable * paged_share / mean_tokens if known else None,
        contiguous_requests=(kv_tokens or 0) / reserved_tokens if known else None,
    )
