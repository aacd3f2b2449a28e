"""Blocks by identity: hashes, references, and the free ones in the order vLLM takes them.

vLLM keeps one queue of free blocks (v1/core/block_pool.py): blocks without a hash are taken first,
hashed ones by least recent use. Here that is a stack and a list around block 0. A hash may name
several blocks; the one hashed first serves hits, as in `BlockHashToBlockMap`.
"""

from advisor.roofline.step.compiled import inner
from advisor.simulator.scheduler.fields import (
    AFTER,
    BEFORE,
    CACHED_FREE,
    CELL,
    INDEX_MASK,
    NO_HASH,
    REFERENCES,
    SAME,
    STACK,
    UNHASHED,
    UNLISTED,
    State,
)

_MIX = -7046029254386353131
_SHIFT = 22


@inner
def home(key: int, mask: int) -> int:
    """Where the search for a key begins."""
    return ((key * _MIX) >> _SHIFT) & mask


@inner
def place_of(s: State, key: int) -> int:
    """Place of a key in the index, or the free place where it belongs."""
    mask = s.rules[INDEX_MASK]
    place = home(key, mask)
    while s.hashed_at[place] != 0 and s.hashes[s.hashed_at[place]] != key:
        place = (place + 1) & mask
    return place


@inner
def block_of(s: State, key: int) -> int:
    """The block that serves hits of a hash, 0 for none."""
    return int(s.hashed_at[place_of(s, key)])


@inner
def name_block(s: State, block: int, key: int) -> None:
    """Gives a block its hash; an equal one that was named before goes on serving hits."""
    s.hashes[block] = key
    s.blocks[CELL * block + SAME] = 0
    place = place_of(s, key)
    first = s.hashed_at[place]
    if first == 0:
        s.hashed_at[place] = block
        return
    while s.blocks[CELL * first + SAME] != 0:
        first = s.blocks[CELL * first + SAME]
    s.blocks[CELL * first + SAME] = block


@inner
def _close_gap(s: State, gap: int) -> None:
    """Removes a place of the index and moves later keys of the same run forward."""
    mask = s.rules[INDEX_MASK]
    place = gap
    while True:
        place = (place + 1) & mask
        if s.hashed_at[place] == 0:
            break
        reach = (place - home(s.hashes[s.hashed_at[place]], mask)) & mask
        if reach >= ((place - gap) & mask):
            s.hashed_at[gap] = s.hashed_at[place]
            gap = place
    s.hashed_at[gap] = 0


@inner
def forget_block(s: State, block: int) -> None:
    """Takes a block's hash away; another block of the same hash takes over."""
    if s.hashes[block] == UNLISTED:
        s.hashes[block] = NO_HASH
        return
    place = place_of(s, s.hashes[block])
    first = s.hashed_at[place]
    if first == block:
        heir = s.blocks[CELL * block + SAME]
        if heir != 0:
            s.hashed_at[place] = heir
        else:
            _close_gap(s, place)
    else:
        while s.blocks[CELL * first + SAME] != block:
            first = s.blocks[CELL * first + SAME]
        s.blocks[CELL * first + SAME] = s.blocks[CELL * block + SAME]
    s.hashes[block] = NO_HASH


@inner
def _unlink(s: State, block: int) -> None:
    before, after = s.blocks[CELL * block + BEFORE], s.blocks[CELL * block + AFTER]
    s.blocks[CELL * before + AFTER] = after
    s.blocks[CELL * after + BEFORE] = before
    s.counters[CACHED_FREE] -= 1


@inner
def take_block(s: State) -> int:
    """A free block for one request; evicts the hash that was not used for longest if it must."""
    if s.counters[UNHASHED] > 0:
        s.counters[UNHASHED] -= 1
        block = s.blocks[CELL * s.counters[UNHASHED] + STACK]
    else:
        block = s.blocks[AFTER]
        _unlink(s, block)
        forget_block(s, block)
    s.blocks[CELL * block + REFERENCES] = 1
    return int(block)


@inner
def touch_block(s: State, block: int) -> None:
    """One more request reads a cached block."""
    if s.blocks[CELL * block + REFERENCES] == 0:
        _unlink(s, block)
    s.blocks[CELL * block + REFERENCES] += 1


@inner
def release_block(s: State, block: int) -> None:
    """One request less; a hashed block becomes the youngest free one, others are used first."""
    s.blocks[CELL * block + REFERENCES] -= 1
    if s.blocks[CELL * block + REFERENCES] > 0:
        return
    if s.hashes[block] == NO_HASH:
        s.blocks[CELL * s.counters[UNHASHED] + STACK] = block
        s.counters[UNHASHED] += 1
        return
    last = s.blocks[BEFORE]
    s.blocks[CELL * last + AFTER] = block
    s.blocks[CELL * block + BEFORE] = last
    s.blocks[CELL * block + AFTER] = 0
    s.blocks[BEFORE] = block
    s.counters[CACHED_FREE] += 1
