"""Which requests share beginnings of prompts: chains of block hashes, replays of them, families."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.facts import Codes, Hashes, Integers
from advisor.traffic.reuse.prefix import chain_hashes
from advisor.traffic.trace import Request, TokenColumns

BLOCK_TOKENS = 16
# A beginning that more of the requests have, or more than half of a class that is no small one,
# is a template: the system prompt of an application, not the text that a request is about.
TEMPLATE_SHARE = 0.1
TEMPLATE_REQUESTS = 12
TEMPLATE_CLASS_SHARE = 0.5
Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Hashes of the whole blocks of every prompt in order, each of all text up to its end.

    Row i is ``values[offsets[i]:offsets[i + 1]]``; it is empty where the prompt is not known or
    shorter than a block of `block_tokens`.
    """

    values: Hashes
    offsets: Integers
    block_tokens: int

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | Hashes | None], block_tokens: int) -> "Chains":
        """From rows of hashes or of a file's own block ids."""
        held = [
            np.asarray(() if row is None else row).astype(np.int64, copy=False).view(np.uint64)
            if not (isinstance(row, np.ndarray) and row.dtype == np.uint64)
            else row
            for row in rows
        ]
        offsets = np.cumsum([0, *(len(row) for row in held)], dtype=np.int64)
        values = np.concatenate(held) if held else np.empty(0, dtype=np.uint64)
        return cls(values, offsets, block_tokens)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def blocks(self) -> Integers:
        """Whole blocks of every prompt."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Integers:
        """The row that each of `values` stands in."""
        return np.repeat(np.arange(len(self)), self.blocks)

    def take(self, places: Integers) -> "Chains":
        """The rows at `places`, in that order."""
        blocks = self.blocks[places]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(blocks)])
        steps = np.repeat(self.offsets[:-1][places] - offsets[:-1], blocks)
        return Chains(self.values[steps + np.arange(offsets[-1])], offsets, self.block_tokens)


def chains_of(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    *,
    block_tokens: int = BLOCK_TOKENS,
    file_block_tokens: int | None = None,
) -> Chains | None:
    """Chains of these requests: of their tokens, else of the file's block ids, else None.

    `file_block_tokens` is `TraceReport.block_tokens`.
    """
    if tokens is not None and tokens.prompts.known.any():
        prompts = (tokens.prompts.array(place) for place in range(len(tokens.prompts)))
        empty = np.empty(0, dtype=np.int32)
        rows = (chain_hashes(empty if row is None else row, block_tokens) for row in prompts)
        return Chains.of(rows, block_tokens)
    if any(request.block_ids for request in requests):
        ids = (request.block_ids for request in requests)
        return Chains.of(ids, file_block_tokens or block_tokens)
    return None


def hit_blocks(chains: Chains) -> Integers:
    """Blocks of every prompt that an earlier row has, in order of the rows, with no cache limit."""
    found = np.zeros(len(chains), dtype=np.int64)
    if len(chains.values):
        _, first, back = np.unique(chains.values, return_index=True, return_inverse=True)
        rows = chains.rows
        np.add.at(found, rows, rows[first][back] < rows)
    return found


def passes(chains: Chains) -> Integers:
    """For each of `chains.values`, in how many rows it stands."""
    if not len(chains.values):
        return np.empty(0, dtype=np.int64)
    _, back, counts = np.unique(chains.values, return_inverse=True, return_counts=True)
    return counts[back].astype(np.int64)


def family_keys(chains: Chains, classes: Codes | None = None) -> list[frozenset[int]]:
    """What welds requests that share a long, distinctive beginning: equal keys, one family.

    First the template of a prompt is set aside: the blocks that more than `TEMPLATE_SHARE` of all
    prompts share (and at least `TEMPLATE_REQUESTS`), or more than `TEMPLATE_CLASS_SHARE` of the
    prompts of its class where that has as many. Two requests are of one family where they share
    more than half of what the shorter of them has behind its template: a document asked about
    twice, a conversation without a session id. A system prompt that everybody has welds nobody.
    """
    keys: list[set[int]] = [set() for _ in range(len(chains))]
    template = np.zeros(len(chains), dtype=np.int64)
    np.add.at(template, chains.rows, _is_template(chains, classes))
    own = chains.blocks - template
    with_text = np.flatnonzero(own > 0)
    deciding = chains.offsets[:-1][with_text] + template[with_text] + own[with_text] // 2
    wanted = np.unique(chains.values[deciding])
    for at in np.flatnonzero(np.isin(chains.values, wanted)):
        keys[int(np.searchsorted(chains.offsets, at, side="right")) - 1].add(int(chains.values[at]))
    return [frozenset(found) for found in keys]


def weld(keys: Sequence[Collection[Hashable]]) -> list[Places]:
    """Places that share a key, directly or by others, in order of their first."""
    leader = list(range(len(keys)))
    known: dict[Hashable, int] = {}

    def root(place: int) -> int:
        while leader[place] != place:
            leader[place] = leader[leader[place]]
            place = leader[place]
        return place

    for place, found in enumerate(keys):
        for key in found:
            other, mine = root(known.setdefault(key, place)), root(place)
            leader[max(other, mine)] = min(other, mine)
    groups: dict[int, list[int]] = {}
    for place in range(len(keys)):
        groups.setdefault(root(place), []).append(place)
    return [np.array(group, dtype=np.int64) for group in groups.values()]


def _is_template(chains: Chains, classes: Codes | None) -> Flags:
    often = passes(chains) > max(TEMPLATE_REQUESTS - 1, TEMPLATE_SHARE * len(chains))
    if classes is None:
        return often
    rows = chains.rows
    of_class = classes[rows]
    pairs = np.stack([of_class.astype(np.int64), chains.values.view(np.int64)])
    _, back, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    shifted = classes - min(0, int(classes.min(initial=0)))
    sizes = np.bincount(shifted)[shifted][rows]
    here = counts[back.reshape(-1)]
    within = (here > TEMPLATE_CLASS_SHARE * sizes) & (here >= TEMPLATE_REQUESTS)
    return often | within
