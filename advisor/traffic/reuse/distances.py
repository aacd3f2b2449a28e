"""Hits of an LRU cache at every capacity in one pass, and a replay of vLLM's own free queue.

Mattson's stack distances: an LRU cache of C blocks holds a block exactly if fewer than C other
blocks were touched since its last touch. One pass over the trace gives the whole curve.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
NEVER = -1


def earlier_greater(values: Integers) -> Integers:
    """For every element the number of earlier elements that are greater.

    `values` is a permutation of 0 to its length. Stable radix partition from the highest bit down:
    two elements part at the highest bit in which they differ. O(n log n) in whole-array steps.
    """
    size = len(values)
    found = np.zeros(size, dtype=np.int64)
    held, owner = values.astype(np.int64), np.arange(size, dtype=np.int64)
    places = np.arange(size, dtype=np.int64)
    for bit in reversed(range(max(0, size - 1).bit_length())):
        upper = ((held >> bit) & 1).astype(bool)
        before = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(upper, out=before[1:])
        # Values are a permutation: those that share the higher bits start at that very place.
        start = (held >> (bit + 1)) << (bit + 1)
        ones = before[:-1] - before[start]
        found[owner[~upper]] += ones[~upper]
        zeros = np.minimum(1 << bit, size - start)
        moved = np.where(upper, start + zeros + ones, places - ones)
        held_next, owner_next = np.empty_like(held), np.empty_like(owner)
        held_next[moved], owner_next[moved] = held, owner
        held, owner = held_next, owner_next
    return found


def previous_touch(codes: Integers) -> Integers:
    """Place of the same code before, NEVER at its first."""
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    previous = np.full(len(codes), NEVER, dtype=np.int64)
    previous[order[again + 1]] = order[again]
    return previous


def stack_distances(previous: Integers, starts: Integers) -> Integers:
    """Blocks that a cache must hold so that a touch is a hit; NEVER for first touches.

    `previous` is `previous_touch` of the touches in order, ``starts[i]`` the place at which the
    look-up of touch i was made (the first touch of its request). Between the last touch p and the
    look-up lie ``start - p - 1`` touches; those whose own last touch is later than p are repeats.
    """
    repeats = np.flatnonzero(previous != NEVER)
    last = previous[repeats]
    ranks = np.empty(len(repeats), dtype=np.int64)
    ranks[np.argsort(last, kind="stable")] = np.arange(len(repeats))
    found = np.full(len(previous), NEVER, dtype=np.int64)
    found[repeats] = starts[repeats] - last - earlier_greater(ranks)
    return found


def lru_hit_blocks(
    chains: Sequence[Sequence[int]],
    usable: Sequence[int],
    blocks: Sequence[int],
    capacity: int,
) -> int:
    """Blocks hit in a replay of vLLM's free queue, one request after another.

    A request looks up the first ``usable[i]`` of its hashed blocks ``chains[i]`` and needs
    ``blocks[i]`` in all. It takes blocks without a hash first, then the least recently freed; when
    it ends its blocks are freed tail first, so that a prefix outlives what follows it
    (vllm/v1/core/block_pool.py). A request that `capacity` cannot hold is left out.
    """
    free: OrderedDict[int, None] = OrderedDict()
    unhashed, hits = capacity, 0
    for chain, most, whole in zip(chains, usable, blocks, strict=True):
        if max(whole, len(chain)) > capacity:
            continue
        matched = 0
        while matched < most and chain[matched] in free:
            del free[chain[matched]]
            matched += 1
        hits += matched
        needed = max(whole, len(chain)) - matched
        evicted = max(0, needed - unhashed)
        unhashed -= needed - evicted
        for _ in range(evicted):
            free.popitem(last=False)
        unhashed += needed - (len(chain) - matched)
        for code in reversed(chain):
            if code in free:  # computed anew beside a cached copy: one of the two goes
                del free[code]
                unhashed += 1
            free[code] = None
    return hits
