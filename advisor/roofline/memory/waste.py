"""How much of a cache holds tokens: contiguous reservation, paging, and what nobody uses (2.4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.roofline.memory.capacity import NULL_BLOCKS, KvCapacity


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolWaste:
    """Bytes of a pool, all ranks together, that hold no token however full it is.

    `null_bytes` is block 0, `padding_bytes` dead layers and padded pages, `copied_bytes` what ranks
    hold that another rank holds too.
    """

    pool_bytes: int
    null_bytes: int
    padding_bytes: float
    copied_bytes: float

    @property
    def share(self) -> float:
        """Share of the pools of all ranks that is wasted."""
        return (self.null_bytes + self.padding_bytes + self.copied_bytes) / self.pool_bytes


def pool_waste(pool: KvCapacity, *, ranks: int = 1, replicas: int = 1) -> PoolWaste:
    """What a pool wastes beside the half-empty last block of each request (handbook 2.4).

    `replicas` of `ranks` ranks hold the same keys and values (`kv_replicas`). Padding counts of
    every block as if each group used the same number of them.
    """
    if not 1 <= replicas <= ranks:
        raise InvalidInput("replicas", f"{replicas} of {ranks} ranks")
    null = NULL_BLOCKS * pool.bytes_per_block * ranks
    whole = pool.num_blocks * pool.bytes_per_block * ranks
    padding = (whole - null) * pool.layout.padding_share
    return PoolWaste(
        pool_bytes=whole,
        null_bytes=null,
        padding_bytes=padding,
        copied_bytes=(whole - null - padding) * (1 - 1 / replicas),
    )
