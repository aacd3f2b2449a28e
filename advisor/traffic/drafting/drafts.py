"""What a proposer drafts at every place of recorded outputs, and the walk of the engine over it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.drafting.grams import NOWHERE, Integers, Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Counts of one request. `decode_steps` leaves out the step that gave the first token.

    `per_position[i]` counts drafts whose token i+1 was accepted with all before it.
    `cut[i]` counts drafts of which i tokens were accepted up to the end of an output that had
    reached its limit: what the model would have said to their further tokens is not recorded,
    although the engine, which does not shorten its last draft, counts it. An output that ended by
    itself goes on with a stop token, which rejects the rest of a draft.
    """

    decode_steps: int
    drafts: int
    draft_tokens: int
    accepted: int
    per_position: tuple[int, ...]
    output_tokens: int
    cut: tuple[int, ...] = ()

    @property
    def decoded_tokens(self) -> int:
        """Tokens that decode steps gave: all but the first."""
        return max(0, self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Replays:
    """Replays of many requests with one draft length: a row each, see `Replay`."""

    decode_steps: Integers
    drafts: Integers
    draft_tokens: Integers
    accepted: Integers
    output_tokens: Integers
    per_position: Integers  # [requests, k]
    cut: Integers  # [requests, k]

    @classmethod
    def joined(cls, parts: "Sequence[Replays]") -> "Replays":
        """The rows of several, at least one, one after another."""
        return cls(
            *(
                np.concatenate([getattr(part, item.name) for part in parts])
                for item in fields(Replays)
            )
        )

    def take(self, rows: Integers) -> "Replays":
        """The rows at those places."""
        return Replays(*(getattr(self, item.name)[rows] for item in fields(Replays)))

    def row(self, place: int) -> Replay:
        """One request."""
        return Replay(
            decode_steps=int(self.decode_steps[place]),
            drafts=int(self.drafts[place]),
            draft_tokens=int(self.draft_tokens[place]),
            accepted=int(self.accepted[place]),
            per_position=tuple(self.per_position[place].tolist()),
            output_tokens=int(self.output_tokens[place]),
            cut=tuple(self.cut[place].tolist()),
        )


@dataclass(frozen=True, slots=True)
class Decoding:
    """Places of `texts` at which a decode step may begin: every output token but the first.

    Arrays over places: the token at `places` is the next to be said, its text ends at `ends`, and
    `capped` says how.
    Text i has the places from ``offsets[i]`` to ``offsets[i + 1]`` and an output of `outputs[i]`.
    """

    places: Integers
    starts: Integers
    ends: Integers
    offsets: Integers
    outputs: Integers
    capped: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Texts) -> "Decoding":
        counts = np.maximum(0, texts.ends - texts.outputs - 1)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        owner = np.repeat(np.arange(len(counts)), counts)
        inner = np.arange(offsets[-1]) - offsets[:-1][owner]
        return cls(
            places=texts.outputs[owner] + 1 + inner,
            starts=texts.starts[owner],
            ends=texts.ends[owner],
            offsets=offsets,
            outputs=texts.ends - texts.outputs,
            capped=texts.capped[owner],
        )


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is proposed at every place: a copy from `source` on (NOWHERE: nothing).

    It has at most `allowed` tokens.
    """

    source: Integers
    allowed: Integers


def replays(
    texts: Texts, at: Decoding, drafts: Drafts, lengths: Sequence[int]
) -> dict[int, Replays]:
    """Verify greedily and advance, for several draft lengths."""
    source = drafts.source
    allowed = np.where(source == NOWHERE, 0, np.maximum(0, drafts.allowed))
    runs = _runs(texts, at, source, np.minimum(allowed, max(lengths, default=0)))
    return {k: _walked(at, np.minimum(allowed, k), np.minimum(runs, k), k) for k in lengths}


def _runs(texts: Texts, at: Decoding, source: Integers, allowed: Integers) -> Integers:
    """Tokens of every draft that the output goes on with."""
    found = np.zeros(len(source), dtype=np.int64)
    alive = np.flatnonzero(allowed > 0)
    for step in range(int(allowed.max(initial=0))):
        here = at.places[alive] + step
        inside = (here < at.ends[alive]) & (step < allowed[alive])
        alive, here = alive[inside], here[inside]
        alive = alive[texts.tokens[source[alive] + step] == texts.tokens[here]]
        found[alive] = step + 1
    return found


def _walked(at: Decoding, drafted: Integers, accepted: Integers, k: int) -> Replays:
    steps, owner = _steps(at, accepted)
    took, had = accepted[steps], drafted[steps]
    open_ended = (took < had) & (took == at.ends[steps] - at.places[steps]) & at.capped[steps]
    size = len(at.outputs)

    def per_text(values: NDArray[Any]) -> Integers:
        # Float64 holds whole numbers exactly far beyond any count of tokens.
        return np.bincount(owner, weights=values, minlength=size).astype(np.int64)

    return Replays(
        decode_steps=np.bincount(owner, minlength=size),
        drafts=per_text(had > 0),
        draft_tokens=per_text(had),
        accepted=per_text(took),
        output_tokens=at.outputs,
        per_position=np.stack([per_text(took > place) for place in range(k)], axis=-1),
        cut=np.stack([per_text(open_ended & (took == place)) for place in range(k)], axis=-1),
    )


def _steps(at: Decoding, accepted: Integers) -> tuple[Integers, Integers]:
    """Places at which a step begins, from one to behind what it accepted; and their texts."""
    jumps = (np.arange(len(accepted)) + accepted + 1).tolist()
    visited: list[int] = []
    counts = []
    offsets = at.offsets.tolist()
    for start, end in itertools.pairwise(offsets):
        place, before = start, len(visited)
        while place < end:
            visited.append(place)
            place = jumps[place]
        counts.append(len(visited) - before)
    return np.asarray(visited, dtype=np.int64), np.repeat(np.arange(len(counts)), counts)
