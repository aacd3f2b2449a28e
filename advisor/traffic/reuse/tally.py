"""Prefix reuse of an upload: the ceiling, the hit curve over KV capacity, by class (handbook 8)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.traffic.figures import PrefixReuse, ReusePoint
from advisor.traffic.reuse.distances import (
    lru_hit_blocks,
    previous_touch,
    stack_distances,
)
from advisor.traffic.reuse.divergence import Divergence
from advisor.traffic.reuse.prefix import Hashes, chain_hashes
from advisor.traffic.statistics.interval import ratio_interval
from advisor.traffic.trace import Request

TOKENS, FILE_IDS = "tokens", "block ids of the file"
UNLABELLED = "unlabelled"
_CURVE_POINTS = 24
_SMALLEST_CAPACITY = 16
_LRU_AT = (0.25, 0.5, 0.75)  # places on the curve at which the free queue is replayed
_MOST_REPLAYED = 400_000  # touches; a replay takes about 0.4 us for each
# Above this many touches only every K-th block is followed, and its distance counts K times
# (SHARDS, Waldspurger et al. 2015).
_MOST_FOLLOWED = 4_000_000
_SAID_FROM, _ENOUGH = 0.05, 0.9
_MASK = (1 << 64) - 1

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Prefix hits per request in the order that `finish` was given, and the figures over all.

    ``hits[i]`` are tokens that an unlimited cache serves of request i, None where its blocks are
    not known. `block_size` is that of the blocks used: the file's own where there were no tokens.
    """

    hits: tuple[int | None, ...]
    reuse: PrefixReuse | None
    block_size: int


class BlockTally:
    """Gathers block chains request by request; `finish` says what of them is reused.

    Blocks are those of `block_size` tokens that the engine forms of the prompt. Where no request
    has tokens, the block ids of the file are used, `file_block_tokens` tokens each.
    """

    def __init__(self, block_size: int, *, file_block_tokens: int | None = None) -> None:
        if block_size < 1:
            raise InvalidInput("block_size", f"{block_size} is not at least 1")
        self._size = block_size
        self._file_size = file_block_tokens
        self._chains: list[Hashes | None] = []
        self._lengths: list[int] = []  # of the prompt in tokens, -1 where it is not known
        self._totals: list[int] = []  # of prompt and output in the cache
        self._ids: list[Hashes | None] = []
        self._divergence = Divergence(block_size)

    def add(
        self,
        request: Request,
        prompt: NDArray[np.int32] | None,
        output: NDArray[np.int32] | None = None,
    ) -> None:
        """One more request. What the engine generates is cached too: `output`, if known.

        The last token that it sampled was never put in and has no place in the cache.
        """
        ids = request.block_ids
        self._ids.append(None if ids is None or prompt is not None else _as_hashes(ids))
        if prompt is None:
            self._chains.append(None)
            self._lengths.append(-1 if request.prompt_tokens is None else request.prompt_tokens)
            self._totals.append(self._lengths[-1])
            return
        held = prompt if output is None else np.concatenate([prompt, output[:-1]])
        chain = chain_hashes(held, self._size)
        self._divergence.add(len(self._chains), prompt, chain)
        self._chains.append(chain)
        self._lengths.append(len(prompt))
        self._totals.append(len(held))

    def finish(
        self,
        order: Sequence[int] | Integers,
        classes: Sequence[str | None],
        prompt_tokens: Integers,
    ) -> Reuse:
        """Replay in `order` (places as they were added).

        ``classes[i]`` and ``prompt_tokens[i]`` (-1: not known) belong to ``order[i]``, as do the
        hits of the answer.
        """
        places = np.asarray(order, dtype=np.int64)
        by_tokens = any(chain is not None for chain in self._chains)
        size, held = self._size, self._chains
        if not by_tokens:
            if self._file_size is None or all(ids is None for ids in self._ids):
                return Reuse(hits=(None,) * len(places), reuse=None, block_size=size)
            size, held = self._file_size, self._ids
        lengths = np.asarray(self._lengths, dtype=np.int64)[places]
        totals = np.asarray(self._totals, dtype=np.int64)[places]
        chains = [held[place] for place in places]
        replay = _Replay.of(chains, lengths, totals, size)
        hits = tuple(
            None if chain is None else int(blocks) * size
            for chain, blocks in zip(chains, replay.matched, strict=True)
        )
        counts = np.where(lengths >= 0, lengths, np.asarray(prompt_tokens, dtype=np.int64))
        known = np.flatnonzero(replay.known & (counts > 0))
        if len(known) == 0:
            return Reuse(hits=hits, reuse=None, block_size=size)
        curve, lru = replay.curves(int(counts[known].sum()))
        difference, advice = self._divergence.finish(
            places[known], lengths[known], replay.leading[known] * size
        )
        label = np.array([name or UNLABELLED for name in classes], dtype=object)
        return Reuse(
            hits=hits,
            reuse=PrefixReuse(
                block_size=size,
                origin=TOKENS if by_tokens else FILE_IDS,
                ceiling=_ceiling(replay.matched[known] * size, counts[known], size),
                by_class=_by_class(label[known], replay.matched[known] * size, counts[known], size),
                curve=curve,
                lru=lru,
                distinct_blocks=replay.distinct,
                first_difference=difference,
                advice=(*advice, *_needed(curve, size)),
            ),
            block_size=size,
        )


def _needed(curve: Sequence[ReusePoint], size: int) -> tuple[str, ...]:
    """What cache is enough; nothing where hardly anything is shared."""
    top = max((point.hit_share for point in curve), default=0.0)
    if top < _SAID_FROM:
        return ()
    enough = next(point for point in curve if point.hit_share >= _ENOUGH * top)
    said = (
        f"A cache of {enough.capacity_blocks * size:,} tokens beside the requests in flight serves"
        f" {enough.hit_share:.0%} of all prompt tokens, an unlimited one {top:.0%}."
    )
    return (said,)


def _as_hashes(ids: Sequence[int]) -> Hashes:
    """Ids of a file as 64-bit numbers; wider ones keep their lower bits."""
    try:
        return np.asarray(ids, dtype=np.int64).view(np.uint64)
    except OverflowError:
        return np.array([number & _MASK for number in ids], dtype=np.uint64)


def _ceiling(hits: Integers, lengths: Integers, size: int) -> Estimate:
    value, low, high = ratio_interval(hits, lengths)
    return Estimate(
        value=value,
        low=low,
        high=high,
        source=Source.SIMULATED,
        basis=f"replay of {len(hits)} prompts through an unlimited cache of {size}-token blocks,"
        " bootstrap by request",
    )


def _by_class(
    labels: NDArray[np.object_], hits: Integers, lengths: Integers, size: int
) -> Mapping[str, Estimate]:
    names = sorted(set(labels.tolist()))
    if names == [UNLABELLED]:
        return {}
    chosen = {name: np.flatnonzero(labels == name) for name in names}
    return {name: _ceiling(hits[at], lengths[at], size) for name, at in chosen.items()}


@dataclass(frozen=True, slots=True)
class _Replay:
    """Touches of all requests in order. Arrays over requests, or over touches where it is said.

    `matched` blocks of a request are served by an unlimited cache; `leading` of its full blocks
    stood there, usable or not. `codes` (touches) number the blocks, in the order in which the
    engine frees them: the tail of a request first.
    """

    known: NDArray[np.bool_]
    matched: Integers
    leading: Integers
    usable: Integers
    blocks: Integers
    offsets: Integers
    codes: Integers
    distances: Integers  # of the touches that are hits of an unlimited cache, sorted
    distinct: int
    size: int

    @classmethod
    def of(
        cls, chains: Sequence[Hashes | None], lengths: Integers, totals: Integers, size: int
    ) -> "_Replay":
        known = np.array([chain is not None for chain in chains], dtype=bool)
        counts = np.array([0 if chain is None else len(chain) for chain in chains], dtype=np.int64)
        # A file may name the last block although it is not full.
        full = np.where(totals >= 0, np.minimum(counts, totals // size), counts)
        held = [c[:n] for c, n in zip(chains, full.tolist(), strict=True) if c is not None]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(full)])
        flat = np.concatenate(held) if held else np.empty(0, dtype=np.uint64)
        request = np.repeat(np.arange(len(full)), full)
        # Touch t of a request is its block from the end.
        mirror = offsets[:-1][request] + offsets[1:][request] - 1 - np.arange(len(flat))
        distinct, codes = np.unique(flat[mirror], return_inverse=True)
        previous = previous_touch(codes)
        starts = offsets[:-1][request]
        previous[previous >= starts] = -1
        depth = offsets[1:][request] - 1 - np.arange(len(flat))
        usable = np.where(lengths >= 0, np.minimum(full, (lengths - 1) // size), full)
        usable = np.maximum(0, usable)
        leading = _leading(previous >= 0, depth, request, full)
        matched = np.minimum(leading, usable)
        hit = depth < matched[request]
        return cls(
            known=known,
            matched=matched,
            leading=leading,
            usable=usable,
            blocks=np.maximum(full, -(-totals // size)),
            offsets=offsets,
            codes=codes,
            distances=_followed(previous, starts, hit, flat[mirror]),
            distinct=len(distinct),
            size=size,
        )

    def curves(self, tokens: int) -> tuple[tuple[ReusePoint, ...], tuple[ReusePoint, ...]]:
        """Hit share of `tokens` prompt tokens by capacity: stack distances, then the replay."""
        if self.distinct == 0:
            return (), ()
        least = min(_SMALLEST_CAPACITY, self.distinct)
        grid = np.unique(np.geomspace(least, self.distinct, _CURVE_POINTS).round().astype(int))
        # Of followed blocks only a part: their sum is that of all hits.
        held = np.searchsorted(self.distances, grid, side="right")
        scale = int(self.matched.sum()) / max(1, len(self.distances))
        curve = tuple(
            ReusePoint(capacity_blocks=int(at), hit_share=float(hits * scale * self.size / tokens))
            for at, hits in zip(grid, held, strict=True)
        )
        return curve, self._lru(grid, tokens)

    def _lru(self, grid: Integers, tokens: int) -> tuple[ReusePoint, ...]:
        if len(self.codes) > _MOST_REPLAYED:
            return ()
        codes = self.codes.tolist()
        ends = self.offsets.tolist()
        chains = [codes[start:end][::-1] for start, end in itertools.pairwise(ends)]
        usable, blocks = self.usable.tolist(), self.blocks.tolist()
        at = sorted({int(grid[int(place * (len(grid) - 1))]) for place in _LRU_AT})
        return tuple(
            ReusePoint(
                capacity_blocks=capacity,
                hit_share=lru_hit_blocks(chains, usable, blocks, capacity) * self.size / tokens,
            )
            for capacity in at
        )


def _leading(
    seen: NDArray[np.bool_], depth: Integers, request: Integers, full: Integers
) -> Integers:
    """Blocks of every request that were there before, up to the first that was not."""
    found = full.copy()
    np.minimum.at(found, request[~seen], depth[~seen])
    return found


def _followed(
    previous: Integers, starts: Integers, hit: NDArray[np.bool_], hashes: Hashes
) -> Integers:
    """Sorted stack distances of the touches that are hits, of a sample of the blocks if many."""
    if len(previous) <= _MOST_FOLLOWED:
        return np.sort(stack_distances(previous, starts)[hit])
    every = -(-len(previous) // _MOST_FOLLOWED)
    follow = hashes % np.uint64(every) == 0
    chosen, place = np.flatnonzero(follow), np.cumsum(follow) - 1
    last = previous[chosen]
    kept = np.where(last >= 0, place[last], -1)
    first = np.searchsorted(chosen, starts[chosen])
    return np.sort(stack_distances(kept, first)[hit[chosen]] * every)
