"""A file that was read: its requests in order of arrival, as often as they are asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isnan

import numpy as np

from advisor.traffic.facts import Facts, Floats, Integers, facts_of, join_facts
from advisor.traffic.reading.lengths_columns import LengthsColumns
from advisor.traffic.reading.spool import Spool
from advisor.traffic.trace import Request, TraceReport

BATCH_ROWS = 2000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """Where the rows of a file lie and in which order they come.

    `order` are their places in `store`; all else has one element a row in that order. `repeats`
    counts the rows before with the same line, None when every row has its own. `prompt_tokens` are
    those of whole prompts where the file counts turns, None where the rows say it themselves.
    """

    store: Spool | LengthsColumns
    order: Integers
    lines: Integers
    repeats: Integers | None
    arrival_s: Floats
    prompt_tokens: Integers | None


class OpenTrace:
    """The report on a file and its requests.

    `facts` are all rows as columns where the file has lengths only; None where one has text, or ids
    of blocks or tokens, which statistics of prefixes need.
    """

    def __init__(self, report: TraceReport, rows: Rows) -> None:
        self.report = report
        self._rows = rows

    @cached_property
    def facts(self) -> Facts | None:
        """All rows as columns."""
        rows = self._rows
        if not rows.store.lengths_only:
            return None
        if isinstance(rows.store, LengthsColumns):
            prompts = rows.prompt_tokens
            if prompts is None:
                prompts = rows.store.count("prompt_tokens")[rows.order].astype(np.int64)
            return rows.store.facts(rows.order, rows.arrival_s, prompts)
        sessions: dict[str, int] = {}
        return join_facts([facts_of(part, None, sessions=sessions) for part in self.batches()])

    def batches(self, size: int = BATCH_ROWS) -> Iterator[tuple[Request, ...]]:
        """The requests, at most `size` at a time and not many more than 32 MiB; may be repeated."""
        start = 0
        for places in self._rows.store.portions(self._rows.order, size):
            yield self._requests(places, start)
            start += len(places)

    def _requests(self, places: Integers, start: int) -> tuple[Request, ...]:
        rows = self._rows
        part = slice(start, start + len(places))
        lines = rows.lines[part].tolist()
        arrivals = rows.arrival_s[part].tolist()
        wholes = None if rows.prompt_tokens is None else rows.prompt_tokens[part].tolist()
        found = []
        for at, (kind, fields) in enumerate(rows.store.rows(places)):
            if wholes is not None and wholes[at] >= 0:
                if wholes[at] != fields.get("prompt_tokens"):
                    fields.pop("block_ids", None)  # those of a turn are not those of the whole
                fields["prompt_tokens"] = wholes[at]
            found.append(
                Request(
                    id=self._id(start + at, lines[at]),
                    index=start + at,
                    line=lines[at],
                    kind=kind,
                    arrival_s=None if isnan(arrivals[at]) else arrivals[at],
                    **fields,
                )
            )
        return tuple(found)

    def _id(self, place: int, line: int) -> str:
        """An id of our own: the line, and which of its requests."""
        repeats = self._rows.repeats
        again = 0 if repeats is None else int(repeats[place])
        return f"r{line}.{again}" if again else f"r{line}"
