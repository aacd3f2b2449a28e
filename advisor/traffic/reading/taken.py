"""Everything that reading a file gathers: rows, their times, and what was not taken and why."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.errors import FileTooLong
from advisor.traffic.facts import Integers
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.sessions import Nesting
from advisor.traffic.formats.times import Clock, overridden, settle
from advisor.traffic.reading.lengths_block import NO_TIME, UNITS
from advisor.traffic.reading.lengths_columns import Chunk, LengthsColumns
from advisor.traffic.reading.spool import Spool
from advisor.traffic.trace import Reject

MAX_REJECTS = 1000
_OTHER_SCALE = "on another scale than the other times of the file"
_PAIR = 2
_CODES = {unit: place for place, unit in enumerate(UNITS)}


@dataclass(slots=True)
class Taken:
    """Rows that were taken lie in `store`; lines and times of them are here, 17 bytes a row."""

    store: Spool | LengthsColumns
    time_unit: str | None = None
    max_rows: int | None = None
    notes: Notes = field(default_factory=Notes)
    nesting: Nesting = field(default_factory=Nesting)
    rejects: list[Reject] = field(default_factory=list)
    rejected: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    _lines: "array[int]" = field(default_factory=lambda: array("q"))
    _ns: "array[int]" = field(default_factory=lambda: array("q"))
    _clock: "array[int]" = field(default_factory=lambda: array("b"))

    @property
    def rows(self) -> int:
        """Rows that the file has so far, whatever became of them."""
        return len(self._lines) + self.rejected + sum(self.failed.values())

    def add(self, drafts: Iterable[Draft]) -> None:
        """The requests of one record; raises `BadField` at the first that cannot be taken."""
        for draft in drafts:
            if draft.failed is not None:
                self.failed[draft.failed] = self.failed.get(draft.failed, 0) + 1
                continue
            time = draft.time
            if time is not None and self.time_unit is not None:
                time = overridden(time, self.time_unit)
            self.store.add(draft)
            self._lines.append(draft.line)
            self._ns.append(0 if time is None else time.ns)
            self._clock.append(NO_TIME if time is None else _CODES[time.unit, time.absolute])
            block_ids = draft.fields.get("block_ids")
            if block_ids and (session := draft.fields.get("session")):
                self.nesting.add(session, block_ids)
        self._check_rows()

    def add_chunk(self, chunk: Chunk) -> None:
        """Rows that were read as columns."""
        if isinstance(self.store, LengthsColumns):
            self.store.add_chunk(chunk)
        self._lines.frombytes(chunk.lines.tobytes())
        self._ns.frombytes(chunk.ns.tobytes())
        self._clock.frombytes(chunk.clock.tobytes())
        self._check_rows()

    def reject(self, line: int, bad: BadField) -> None:
        """A row that was not taken."""
        self.rejected += 1
        if len(self.rejects) < MAX_REJECTS:
            self.rejects.append(Reject(line=line, field=bad.field, reason=bad.reason))
        self._check_rows()

    def _check_rows(self) -> None:
        if self.max_rows is not None and self.rows > self.max_rows:
            raise FileTooLong(
                f"the file has more than {self.max_rows:,} rows", "split it or take a part of it"
            )

    @property
    def lines(self) -> Integers:
        """Line or record of every row that was taken."""
        return np.frombuffer(self._lines, dtype=np.int64)

    @property
    def ns(self) -> Integers:
        """Time of every row that was taken, 0 for none."""
        return np.frombuffer(self._ns, dtype=np.int64)

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Which rows have a time."""
        timed: NDArray[np.bool_] = np.frombuffer(self._clock, dtype=np.int8) != NO_TIME
        return timed

    def settled(self) -> tuple[Clock, NDArray[np.bool_]]:
        """The clock of the file, and the rows that it holds for; the others are rejected."""
        codes = np.frombuffer(self._clock, dtype=np.int8)
        found, counts = np.unique(codes[codes != NO_TIME], return_counts=True)
        units = {UNITS[code]: int(count) for code, count in zip(found, counts, strict=True)}
        clock = settle(units, moving=bool(self.ns.any()))
        other = [code for code, (_, moment) in enumerate(UNITS) if moment is not clock.absolute]
        kept = ~np.isin(codes, other)
        lines = self.lines
        for place in np.flatnonzero(~kept).tolist():
            self.rejected += 1
            if len(self.rejects) < MAX_REJECTS:
                line = int(lines[place])
                self.rejects.append(Reject(line=line, field="timestamp", reason=_OTHER_SCALE))
        self.rejects.sort(key=lambda reject: reject.line)
        return clock, kept

    def repeats(self) -> Integers | None:
        """How many rows before have the same line; None when every row has its own."""
        lines = self.lines
        if len(lines) < _PAIR or (np.diff(lines) > 0).all():
            return None
        order = np.argsort(lines, kind="stable")
        starts = np.concatenate([[True], np.diff(lines[order]) > 0])
        first = np.maximum.accumulate(np.where(starts, np.arange(len(lines)), 0))
        again = np.empty(len(lines), dtype=np.int64)
        again[order] = np.arange(len(lines)) - first
        return again
