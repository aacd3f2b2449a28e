"""Lists of different length side by side in three arrays: token ids of many requests."""

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

Row = tuple[int, ...]
UNKNOWN = -1


class Ragged(Sequence[Row | None]):
    """Rows of whole numbers, or None where a row is not known.

    Four bytes a number instead of a Python object each. `array` and `lengths` are what
    computations use; the rows as tuples are for tests and for single requests.
    """

    __slots__ = ("known", "offsets", "values")

    def __init__(
        self, values: NDArray[np.int32], offsets: NDArray[np.int64], known: NDArray[np.bool_]
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.known = known

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | None]) -> "Ragged":
        """From rows; a `Ragged` comes back as it is."""
        if isinstance(rows, Ragged):
            return rows
        held = [None if row is None else np.asarray(row, dtype=np.int32) for row in rows]
        lengths = np.array([0 if row is None else len(row) for row in held], dtype=np.int64)
        parts = [row for row in held if row is not None]
        return cls(
            np.concatenate(parts) if parts else np.empty(0, dtype=np.int32),
            np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)]),
            np.array([row is not None for row in held], dtype=bool),
        )

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """The rows of several, one after another."""
        if not parts:
            return cls.of(())
        starts = np.cumsum([0, *(len(part.values) for part in parts)])
        offsets = [part.offsets[1:] + at for part, at in zip(parts, starts, strict=False)]
        return cls(
            np.concatenate([part.values for part in parts]),
            np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
            np.concatenate([part.known for part in parts]),
        )

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every row; -1 where it is not known."""
        return np.where(self.known, np.diff(self.offsets), UNKNOWN)

    def array(self, place: int) -> NDArray[np.int32] | None:
        """One row without a copy."""
        if not self.known[place]:
            return None
        return self.values[self.offsets[place] : self.offsets[place + 1]]

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> "Ragged":
        """The rows at `places`, in that order."""
        chosen = np.asarray(places, dtype=np.int64)
        lengths = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        # Where each number of the result comes from: its row's start, and on from there.
        steps = np.repeat(self.offsets[:-1][chosen] - offsets[:-1], lengths)
        return Ragged(self.values[steps + np.arange(offsets[-1])], offsets, self.known[chosen])

    @override
    def __len__(self) -> int:
        return len(self.known)

    @overload
    def __getitem__(self, place: int) -> Row | None: ...
    @overload
    def __getitem__(self, place: slice) -> "Ragged": ...
    @override
    def __getitem__(self, place: int | slice) -> "Row | Ragged | None":
        if isinstance(place, slice):
            return self.take(range(*place.indices(len(self))))
        found = self.array(place if place >= 0 else place + len(self))
        return None if found is None else tuple(found.tolist())

    @override
    def __iter__(self) -> Iterator[Row | None]:
        for place in range(len(self)):
            yield self[place]

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return (
            np.array_equal(self.known, other.known)
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.values, other.values)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays can be changed

    @override
    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {len(self.values)} numbers)"
