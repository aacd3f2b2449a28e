"""Where prompts leave all earlier ones, and what of them would be shared behind that place."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.figures import FirstDifference
from advisor.traffic.reuse.prefix import Hashes

# Prompts whose tokens are kept until the end to look into blocks and behind differences.
MOST_PROMPTS = 4096
MOST_TOKENS = 4_000_000
_MOST_SIBLINGS = 16
_WINDOW = 16  # tokens: shorter repetitions are chat markup and idioms
_ONE_IN = 4  # windows that are compared, chosen by their content
_NOISE_TOKENS = 32
_SAID_FROM = 0.05  # of all prompt tokens
_BASE = np.uint64(0x9E3779B97F4A7C15)

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Held:
    prompt: NDArray[np.int32]
    chain: Hashes


class Divergence:
    """Keeps the tokens of the first prompts, as many as its bounds allow."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._held: dict[int, _Held] = {}
        self._tokens = 0

    def add(self, place: int, prompt: NDArray[np.int32], chain: Hashes) -> None:
        """A prompt with the chain of its blocks; dropped once there are enough."""
        if len(self._held) < MOST_PROMPTS and self._tokens + len(prompt) <= MOST_TOKENS:
            self._held[place] = _Held(prompt.copy(), chain)
            self._tokens += len(prompt)

    def finish(
        self, places: Integers, lengths: Integers, shared: Integers
    ) -> tuple[FirstDifference, tuple[str, ...]]:
        """Histogram over all prompts, and sentences of advice.

        ``shared[i]`` tokens in whole blocks of the prompt at ``places[i]`` occur at the head of an
        earlier one, `lengths` are -1 where they are not known.
        """
        first = np.where(lengths >= 0, np.minimum(shared, lengths), shared)
        kept = np.array([i for i, place in enumerate(places.tolist()) if place in self._held])
        if len(kept) == 0:
            return _histogram(first, early=None, lost_share=None), ()
        held = [self._held[places[i]] for i in kept]
        first[kept] = self._to_the_token(held, first[kept])
        lost = _seen_behind(held, first[kept])
        leaving = lost > np.maximum(first[kept], _NOISE_TOKENS)
        tokens = sum(len(item.prompt) for item in held)
        share = float(lost[leaving].sum() / max(1, tokens))
        difference = _histogram(first, early=float(leaving.mean()), lost_share=share)
        if share < _SAID_FROM:
            return difference, ()
        return difference, (_advice(leaving.mean(), first[kept][leaving], share, len(held)),)

    def _to_the_token(self, held: list[_Held], blocks: Integers) -> Integers:
        """Tokens shared with the one earlier prompt that shares most, from whole blocks on."""
        size = self._size
        found = blocks.copy()
        children: dict[int, list[NDArray[np.int32]]] = {}
        for place, item in enumerate(held):
            depth = int(blocks[place]) // size
            own = item.prompt[depth * size : (depth + 1) * size]
            found[place] += max(
                (_common(own, other) for other in children.get(_parent(item, depth), ())), default=0
            )
            for below in range(depth, len(item.prompt) // size + 1):
                siblings = children.setdefault(_parent(item, below), [])
                if len(siblings) < _MOST_SIBLINGS:
                    siblings.append(item.prompt[below * size : (below + 1) * size])
        return found


def _parent(item: _Held, depth: int) -> int:
    return int(item.chain[depth - 1]) if depth else 0


def _common(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Length of the common head of two rows."""
    least = min(len(one), len(other))
    apart = np.flatnonzero(one[:least] != other[:least])
    return int(apart[0]) if len(apart) else least


def _seen_behind(held: list[_Held], first: Integers) -> Integers:
    """Per prompt the tokens behind its first difference that occur in an earlier prompt.

    Estimated from the windows of 16 tokens whose hash is divisible by 4: a choice by content, so
    that a stretch is recognised wherever it stands.
    """
    lengths = np.array([len(item.prompt) for item in held], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    flat = np.concatenate([item.prompt for item in held]).astype(np.uint64)
    if len(flat) < _WINDOW:
        return np.zeros(len(held), dtype=np.int64)
    windows = np.zeros(len(flat) - _WINDOW + 1, dtype=np.uint64)
    for step in range(_WINDOW):
        windows *= _BASE
        windows += flat[step : step + len(windows)] + np.uint64(1)
    windows ^= windows >> np.uint64(29)
    request = np.repeat(np.arange(len(held)), lengths)[: len(windows)]
    at = np.arange(len(windows)) - starts[request]
    inside = at <= lengths[request] - _WINDOW
    chosen = np.flatnonzero(inside & (windows % np.uint64(_ONE_IN) == 0))
    _, where, codes = np.unique(windows[chosen], return_index=True, return_inverse=True)
    request, at = request[chosen], at[chosen]
    behind = at >= first[request]
    earlier = behind & (request[where[codes]] < request)
    looked = np.bincount(request[behind], minlength=len(held))
    seen = np.bincount(request[earlier], minlength=len(held))
    return (seen * (lengths - first) / np.maximum(1, looked)).astype(np.int64)


def _histogram(first: Integers, early: float | None, lost_share: float | None) -> FirstDifference:
    edges = [0, 16]
    while edges[-1] <= first.max(initial=0):
        edges.append(edges[-1] * 4)
    counts, _ = np.histogram(first, bins=edges)
    return FirstDifference(
        edges=tuple(edges),
        counts=tuple(int(count) for count in counts),
        early=early,
        lost_share=lost_share,
    )


def _advice(share: float, first: Integers, lost_share: float, prompts: int) -> str:
    place = int(np.median(first))
    return (
        f"{share:.0%} of {prompts} prompts leave all earlier ones at about token {place} (median),"
        " although more of what follows than of what they share occurs in an earlier prompt. What"
        " stands there changes from request to request (a time, an id, a name, the order of"
        f" documents). Behind the stable text it would let up to {lost_share:.0%} more of all"
        " prompt tokens be shared: an upper bound."
    )
