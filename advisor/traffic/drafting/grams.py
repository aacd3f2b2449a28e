"""Where n-grams of many token texts occur earlier, for all n at once, in whole-array steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Tokens = NDArray[np.int32]
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Texts:
    """Several prompts with their outputs behind each other.

    Text i spans ``starts[i]`` to ``ends[i]`` of `tokens`, its output begins at ``outputs[i]``.
    `owner` numbers the text of every token. ``capped[i]`` says that the output ends because it had
    reached its limit, and not by itself.
    """

    tokens: Integers
    owner: Integers
    starts: Integers
    outputs: Integers
    ends: Integers
    capped: NDArray[np.bool_]

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[Tokens, Tokens]], capped: Sequence[bool] | None = None
    ) -> "Texts":
        """From (prompt, output) of every request; None: every output ended by itself."""
        prompts = np.array([len(prompt) for prompt, _ in pairs], dtype=np.int64)
        lengths = prompts + np.array([len(output) for _, output in pairs], dtype=np.int64)
        ends = np.cumsum(lengths)
        parts = [part for pair in pairs for part in pair]
        return cls(
            tokens=np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64),
            owner=np.repeat(np.arange(len(pairs)), lengths),
            starts=ends - lengths,
            outputs=ends - lengths + prompts,
            ends=ends,
            capped=np.array([False] * len(pairs) if capped is None else capped, dtype=bool),
        )


def gram_ids(first: Integers, sizes: Iterable[int]) -> dict[int, Integers]:
    """Equal numbers for equal n-grams, by n: ``ids[n][i]`` is the n-gram that begins at i.

    `first` numbers the single tokens. Grams that would begin too near to the end are left out.
    """
    found = {1: np.unique(first, return_inverse=True)[1]}
    for size in sorted(set(sizes) - {1}):
        # Any two numbered parts make a whole: the largest known one and what it lacks.
        part = max(known for known in found if known < size)
        rest = max(known for known in found if known <= size - part)
        while part + rest < size:
            found[part + rest] = _joined(found[part], found[rest], part)
            part += rest
            rest = max(known for known in found if known <= size - part)
        found[size] = _joined(found[part], found[rest], part)
    return found


def _joined(left: Integers, right: Integers, shift: int) -> Integers:
    length = max(0, min(len(left), len(right) - shift))
    right = right[shift : shift + length]
    keys = left[:length] * (right.max(initial=0) + 1) + right
    return np.unique(keys, return_inverse=True)[1]


def first_places(ids: Integers) -> Integers:
    """For every place the first at which the same number stands; numbers are small (`gram_ids`)."""
    found = np.empty(int(ids.max(initial=-1)) + 1, dtype=np.int64)
    # Written from the end: the first place is written last and stays.
    found[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return found[ids]


def last_places(ids: Integers) -> Integers:
    """For every place the one before at which the same number stands, else NOWHERE."""
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    found = np.full(len(ids), NOWHERE, dtype=np.int64)
    found[order[again + 1]] = order[again]
    return found
