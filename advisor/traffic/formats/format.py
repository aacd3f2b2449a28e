"""What a traffic format is: how it is recognised, where its records lie, what a record gives."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from advisor.traffic.formats.row import Draft, Notes

# One row of any file: a JSON object, a CSV record by its header, a row of a Parquet table.
Record: TypeAlias = Mapping[str, object]


class Framing(StrEnum):
    """How records stand in a file."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What the first part of a file shows, whatever it is called.

    `document` are the keys of the JSON object that encloses everything, in their order (empty for
    JSON Lines, arrays, CSV and Parquet; for one object alone in a file they are its keys and it is
    the one record as well). `names` are the keys of the records or the columns. `records` are the
    first ones (at most 20; values of a JSON document that is read in parts are left out). `lines`
    are the first lines of a text that is neither JSON nor CSV.
    """

    framing: Framing
    document: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    lines: tuple[str, ...] = ()

    def has(self, *names: str) -> bool:
        """Whether the records have all of these names (as written, case counts)."""
        return set(names) <= set(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of uploads; a new one is a module that defines it and a line in the registry.

    `claims` tells it from all others by content. `at` are the places of its records inside of a
    JSON document as ijson writes them (``"observations.item"``); the first that is there counts,
    and none means that every record is a request itself. `drafts` turns one record into requests:
    none for a record that is no request (a span that called no model), several for one that holds
    several. It raises `BadField` with the reason why a record cannot be taken.
    `mapping` says for people which of our fields comes from which of theirs; the documentation is
    made from it. `plain` names the columns of a table that has nothing but lengths, times and names
    of sessions, classes and models: such tables are read by blocks, and `drafts` says the same of
    every row.
    """

    name: str
    title: str
    claims: Callable[[Head], bool]
    drafts: Callable[[Record, int, Notes], Iterable[Draft]]
    mapping: Mapping[str, str]
    at: tuple[str, ...] = ()
    block_tokens: int | None = None
    quirks: tuple[str, ...] = field(default=())
    plain: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A kind of file that is not traffic; it is refused by its name with what to do instead."""

    name: str
    title: str
    claims: Callable[[Head], bool]
    reason: str
    remedy: str
