"""Requests of which only numbers and names are known, as columns: no object for a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from advisor.traffic.facts import (
    KINDS,
    MISSING,
    REPORTED,
    UNKNOWN,
    Codes,
    Facts,
    Flags,
    Floats,
    Integers,
)
from advisor.traffic.formats.row import Draft, RequestFields
from advisor.traffic.trace import RequestKind

COUNTS = ("prompt_tokens", "output_tokens", "max_tokens")
RATIOS = ("temperature", "top_p")
NAMES = ("source_id", "session", "label", "model")
TEXT = pa.large_string()
_Number = TypeVar("_Number", np.int32, np.float64)
_PENDING = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chunk:
    """Consecutive rows. `ns` and `clock` are their times, see `taken.Times`.

    Counts are -1 and ratios NaN where unknown; a column that the file does not have is left out.
    """

    lines: Integers
    ns: Integers
    clock: Flags
    counts: Mapping[str, NDArray[np.int32]]
    ratios: Mapping[str, Floats]
    names: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(slots=True)
class LengthsColumns:
    """All rows of a file without text, column by column."""

    held: int = 0
    lengths_only: bool = True
    _pending: list[RequestFields] = field(default_factory=list)
    _counts: dict[str, list[NDArray[np.int32]]] = field(default_factory=dict)
    _ratios: dict[str, list[Floats]] = field(default_factory=dict)
    _names: dict[str, list[pa.Array]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.held

    def add_chunk(self, chunk: Chunk) -> None:
        """Rows that were read as columns."""
        self._flush()
        self._append(len(chunk), chunk.counts, chunk.ratios, chunk.names)
        self.held += len(chunk)

    def add(self, draft: Draft) -> None:
        """A row that was read as such."""
        self._pending.append(draft.fields)
        self.held += 1
        if len(self._pending) >= _PENDING:
            self._flush()

    def _flush(self) -> None:
        rows, self._pending = self._pending, []
        if not rows:
            return
        counts = {
            name: np.array(
                [UNKNOWN if (found := row.get(name)) is None else found for row in rows],
                dtype=np.int32,
            )
            for name in COUNTS
        }
        ratios = {
            name: np.array([row.get(name) for row in rows], dtype=np.float64) for name in RATIOS
        }
        names = {name: pa.array([row.get(name) for row in rows], type=TEXT) for name in NAMES}
        self._append(len(rows), counts, ratios, names)

    def _append(
        self,
        rows: int,
        counts: Mapping[str, NDArray[np.int32]],
        ratios: Mapping[str, Floats],
        names: Mapping[str, pa.Array],
    ) -> None:
        for name in COUNTS:
            count = counts.get(name, _same(np.int32(UNKNOWN), rows))
            self._counts.setdefault(name, []).append(count)
        for name in RATIOS:
            ratio = ratios.get(name, _same(np.float64(np.nan), rows))
            self._ratios.setdefault(name, []).append(ratio)
        for name in NAMES:
            text = names.get(name, pa.nulls(rows))
            self._names.setdefault(name, []).append(text)

    def count(self, name: str) -> NDArray[np.int32]:
        """One of `COUNTS`, -1 where unknown."""
        self._flush()
        return _joined(self._counts.setdefault(name, []), np.dtype(np.int32))

    def ratio(self, name: str) -> Floats:
        """One of `RATIOS`, NaN where unknown."""
        self._flush()
        return _joined(self._ratios.setdefault(name, []), np.dtype(np.float64))

    def texts(self, name: str) -> pa.Array:
        """One of `NAMES`."""
        self._flush()
        parts = self._names.setdefault(name, [])
        if len(parts) != 1:
            known = any(part.type == TEXT for part in parts)
            cast = [part.cast(TEXT) for part in parts] if known else parts
            parts[:] = [pa.concat_arrays(cast) if cast else pa.nulls(0)]
        return parts[0]

    def repeated_ids(self, kept: NDArray[np.bool_]) -> tuple[str, int, int] | None:
        """The first id that repeats, how often it is there, and how many ids repeat."""
        ids = self.texts("source_id")
        if ids.null_count == len(ids):
            return None
        found = pc.value_counts(ids.filter(pa.array(kept)).drop_null())
        counts = found.field("counts").to_numpy(zero_copy_only=False)
        again = np.flatnonzero(counts > 1)
        if not len(again):
            return None
        first = int(again[0])
        return found.field("values")[first].as_py(), int(counts[first]), len(again)

    def lengths(self) -> tuple[Codes, Integers, Integers]:
        """Sessions (-1 for none), prompt and output tokens."""
        sessions = _numbered(self.texts("session"))
        prompts, outputs = (self.count(name).astype(np.int64) for name in COUNTS[:2])
        return sessions, prompts, outputs

    def portions(self, places: Integers, size: int) -> Iterator[Integers]:
        """`places` in parts of at most `size` rows."""
        for start in range(0, len(places), size):
            yield places[start : start + size]

    def rows_at(self, places: Integers) -> "Sequence[RequestFields]":
        """Fields of the rows at `places`, in that order."""
        columns: dict[str, list[object]] = {}
        for name in COUNTS:
            values = self.count(name)[places]
            if (values >= 0).any():
                columns[name] = [None if value < 0 else value for value in values.tolist()]
        for name in RATIOS:
            ratios = self.ratio(name)[places]
            if not np.isnan(ratios).all():
                columns[name] = [None if isnan(value) else value for value in ratios.tolist()]
        for name in NAMES:
            texts = self.texts(name)
            if texts.null_count < len(texts):
                columns[name] = texts.take(pa.array(places)).to_pylist()
        names = tuple(columns)
        return [
            dict(zip(names, row, strict=True))  # type: ignore[misc]
            for row in zip(*columns.values(), strict=True)
        ]

    def rows(self, places: Integers) -> Iterator[tuple[RequestKind, RequestFields]]:
        """Kind and fields of the rows at `places`, in that order."""
        return ((RequestKind.LENGTHS, fields) for fields in self.rows_at(places))

    def facts(self, order: Integers, arrival_s: Floats, prompt_tokens: Integers) -> Facts:
        """All rows in `order`; times and (whole) prompts are already in it."""
        rows = len(order)
        output = self.count("output_tokens")[order].astype(np.int64)
        named = {name: self.texts(name).take(pa.array(order)) for name in NAMES}
        label, labels = _coded(named["label"])
        model, models = _coded(named["model"])
        unread = np.broadcast_to(np.int32(UNKNOWN), rows)
        nothing = np.broadcast_to(np.uint64(0), rows)
        unknown = np.broadcast_to(np.float64(np.nan), rows)
        return Facts(
            arrival_s=arrival_s,
            prompt_tokens=prompt_tokens,
            output_tokens=output,
            prompt_source=np.where(prompt_tokens >= 0, REPORTED, MISSING).astype(np.int8),
            output_source=np.where(output >= 0, REPORTED, MISSING).astype(np.int8),
            max_tokens=_taken(self.count("max_tokens"), order).astype(np.int64),
            temperature=_taken(self.ratio("temperature"), order),
            duration_s=unknown,
            label=label,
            session=_numbered(named["session"]),
            model=model,
            kind=np.broadcast_to(np.int8(KINDS.index(RequestKind.LENGTHS)), rows),
            turns=unread,
            tools=unread,
            tool_turns=unread,
            images=unread,
            structured=np.broadcast_to(np.int8(UNKNOWN), rows),
            language=unread,
            code=unknown,
            text_chars=np.broadcast_to(np.int64(UNKNOWN), rows),
            content=nothing,
            head=nothing,
            answer=nothing,
            labels=labels,
            models=models,
        )


def _joined(parts: list[NDArray[_Number]], kind: np.dtype[_Number]) -> NDArray[_Number]:
    """All parts as one, which takes their place."""
    if len(parts) != 1:
        if parts and all(part.strides == (0,) for part in parts):
            parts[:] = [_same(parts[0][0], sum(map(len, parts)))]
        else:
            parts[:] = [np.concatenate([np.empty(0, dtype=kind), *parts])]
    return parts[0]


def _taken(column: NDArray[_Number], order: Integers) -> NDArray[_Number]:
    """A column in another order."""
    return _same(column[0], len(order)) if column.strides == (0,) else column[order]


def _same(value: _Number, rows: int) -> NDArray[_Number]:
    """A column of one value, in the memory of one."""
    return np.broadcast_to(np.asarray(value), rows)


def _numbered(texts: pa.Array) -> Codes:
    """Codes by first appearance, -1 for none."""
    if texts.null_count == len(texts):
        return np.full(len(texts), UNKNOWN, dtype=np.int32)
    found: Codes = texts.dictionary_encode().indices.fill_null(UNKNOWN).to_numpy()
    return found


def _coded(texts: pa.Array) -> tuple[Codes, tuple[str, ...]]:
    """Codes into the sorted names, -1 for none."""
    if texts.null_count == len(texts):
        return _numbered(texts), ()
    encoded = texts.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.full(len(names) + 1, UNKNOWN, dtype=np.int32)
    rank[order] = np.arange(len(names), dtype=np.int32)
    codes = encoded.indices.fill_null(len(names)).to_numpy()
    return rank[codes], tuple(names[place] for place in order)
