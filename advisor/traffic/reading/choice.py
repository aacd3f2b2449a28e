"""Which format a file has, and with it how a record becomes requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from advisor.errors import InvalidInput, UnknownName, UnreadableFile
from advisor.traffic.formats.chat_jsonl import draft_of
from advisor.traffic.formats.fields import (
    PROMPT_FIELDS,
    BadField,
    assign,
    field_of,
    shown,
)
from advisor.traffic.formats.format import Format, Head, Record, Refusal
from advisor.traffic.formats.lengths_csv import CsvRows
from advisor.traffic.formats.registry import FORMATS, REFUSALS
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import named_unit
from advisor.traffic.formats.timings import is_timed, tells_failures
from advisor.traffic.reading.frames import Framed

Drafter = Callable[[object, int, Notes], Iterable[Draft]]
_ENVELOPES = ("body", "request")
_TITLES = {
    "jsonl": "JSON Lines of requests, prompts or lengths",
    "json": "JSON of requests, prompts or lengths",
    "csv": "Table of lengths or prompts (CSV)",
    "parquet": "Table of lengths or prompts (Parquet)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A format for one file. `at` are the places of its records, `columns` our fields by name.

    `plain` says that a table holds lengths only and which column is which of our fields, so that
    it can be read by blocks; None when rows must be looked at one by one. `header` are the names
    that `plain` means, where they are not those of the file.
    """

    name: str
    title: str
    drafts: Drafter
    columns: Mapping[str, str]
    at: Sequence[Sequence[str]] = ()
    block_tokens: int | None = None
    plain: Mapping[str, str] | None = None
    header: tuple[str, ...] = ()


def choose(
    framed: Framed,
    columns: Mapping[str, str],
    wanted: str | None,
    *,
    formats: Sequence[Format] = FORMATS,
    refusals: Sequence[Refusal] = REFUSALS,
) -> Choice | None:
    """The format of a file, None for a table or a text that is none of ours.

    `columns` are our fields by the names that the caller says the file has; `wanted` is the name of
    a format that the caller wants. Raises `UnreadableFile` for a file that is known not to be
    traffic.
    """
    if columns:
        return _generic(framed, _checked(framed, columns))
    if wanted is not None:
        return _forced(framed, wanted, formats)
    refuse([framed.head], refusals)
    for known in formats:
        for seen in framed.heads:
            if known.claims(seen.head):
                return _of_format(framed, known, seen.at)
    if framed.header and not any(name in assign(framed.header) for name in PROMPT_FIELDS):
        return None
    return _generic(framed, {})


def refuse(heads: Iterable[Head], refusals: Sequence[Refusal] = REFUSALS) -> None:
    """Raises `UnreadableFile` for a file that is known not to be traffic."""
    for head in heads:
        for refusal in refusals:
            if refusal.claims(head):
                raise UnreadableFile(
                    f"the file is {refusal.title}: {refusal.reason}", refusal.remedy
                )


def _of_format(framed: Framed, known: Format, at: tuple[str, ...]) -> Choice:
    plain = known.plain if set(framed.header) == set(known.plain.values()) else None
    return Choice(
        name=known.name,
        title=known.title,
        drafts=_by_names(framed.header, known) if framed.header else _as_is(known),
        columns=known.mapping,
        at=(at, known.at) if at else (known.at,),
        block_tokens=known.block_tokens,
        plain=plain or None,
    )


def _as_is(known: Format) -> Drafter:
    def drafts(value: object, number: int, notes: Notes) -> Iterable[Draft]:
        return known.drafts(cast("Record", value), number, notes)

    return drafts


def _by_names(header: Sequence[str], known: Format) -> Drafter:
    """Cells by their column, for a format that reads records by name."""

    def drafts(value: object, number: int, notes: Notes) -> Iterable[Draft]:
        cells = cast("Sequence[str]", value)
        if len(cells) != len(header):
            raise BadField("record", f"{len(cells)} columns where the header has {len(header)}")
        return known.drafts(dict(zip(header, cells, strict=True)), number, notes)

    return drafts


def _forced(framed: Framed, wanted: str, formats: Sequence[Format]) -> Choice:
    known = {item.name: item for item in formats}
    if wanted == framed.name:
        return _generic(framed, {})
    if wanted not in known:
        raise UnknownName("format", wanted, (framed.name, *known))
    seen = next((seen for seen in framed.heads if known[wanted].claims(seen.head)), None)
    return _of_format(framed, known[wanted], () if seen is None else seen.at)


def _generic(framed: Framed, columns: Mapping[str, str]) -> Choice:
    """A file of nobody's format: names that we know, or that the caller told."""
    if framed.header:
        return _table(framed, columns)
    seen = next((seen for seen in framed.heads if _fits(seen.head, columns)), framed.heads[0])
    named = {field_of(name) or name: theirs for name, theirs in columns.items()}
    found = _record_names(seen.head) | named
    drafts = _renamed(columns) if columns else _drafts
    at = (seen.at,) if seen.at else ()
    return Choice(name=framed.name, title=_TITLES[framed.name], drafts=drafts, columns=found, at=at)


def _fits(head: Head, columns: Mapping[str, str]) -> bool:
    """Whether the records of this head are requests, or have the columns that the caller named."""
    if not columns:
        return bool(_record_names(head))
    return any(name.partition(".")[0] in head.names for name in columns.values())


def _drafts(value: object, number: int, notes: Notes) -> Iterable[Draft]:
    return (draft_of(cast("Record", value), number, notes),)


def _table(framed: Framed, columns: Mapping[str, str]) -> Choice:
    header = renamed_header(framed.header, columns)
    rows = CsvRows(header)

    def drafts(value: object, number: int, notes: Notes) -> Iterable[Draft]:
        return (rows.draft(cast("Sequence[str]", value), number, notes),)

    lengths_only = not (rows.has_prompt or is_timed(rows.header) or tells_failures(rows.header))
    theirs = dict(zip(header, framed.header, strict=True))
    return Choice(
        name=framed.name,
        title=_TITLES[framed.name],
        drafts=drafts,
        columns={field: theirs[name] for field, name in rows.names.items()},
        plain=dict(rows.names) if lengths_only and "prompt_tokens" in rows.names else None,
        header=header,
    )


def renamed_header(header: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """A header with our names in the place of theirs; no other column stands for such a field.

    A name that states a unit of time keeps stating it.
    """
    ours = {theirs: _our_name(field, theirs) for field, theirs in columns.items()}
    taken = {field_of(name) for name in columns}
    return tuple(
        ours.get(name, f"unused {place}" if field_of(name) in taken else name)
        for place, name in enumerate(header)
    )


def _our_name(field: str, theirs: str) -> str:
    unit = named_unit(field) or named_unit(theirs)
    known = field_of(field) or field
    return f"timestamp_{unit}" if known == "timestamp" and unit else known


def _renamed(columns: Mapping[str, str]) -> Drafter:
    """Records with our names for what the caller named; a name may lead inside ("usage.input")."""
    ours = {_our_name(field, theirs): theirs for field, theirs in columns.items()}
    taken = {field_of(name) for name in columns}

    def drafts(value: object, number: int, notes: Notes) -> Iterable[Draft]:
        record = cast("Record", value)
        kept = {name: item for name, item in record.items() if field_of(name) not in taken}
        named = {name: _inside(record, theirs) for name, theirs in ours.items()}
        found = {name: item for name, item in named.items() if item is not None}
        return (draft_of(kept | found, number, notes),)

    return drafts


def _inside(record: Record, name: str) -> object:
    """The value under a name, or under the first part of it and then the rest."""
    if name in record:
        return record[name]
    first, dot, rest = name.partition(".")
    inner = record.get(first)
    return _inside(inner, rest) if dot and isinstance(inner, Mapping) else None


def _record_names(head: Head) -> dict[str, str]:
    """Our fields by the names that the first records have for them, envelopes included.

    Empty where the records do not say what was asked.
    """
    found: dict[str, str] = {}
    for record in head.records:
        for envelope in ("", *_ENVELOPES):
            inner = record.get(envelope) if envelope else record
            if isinstance(inner, Mapping):
                dot = "." if envelope else ""
                names = assign(inner).items()
                found |= {field: f"{envelope}{dot}{name}" for field, name in names}
    return found if any(field in found for field in (*PROMPT_FIELDS, "usage")) else {}


def _checked(framed: Framed, columns: Mapping[str, str]) -> Mapping[str, str]:
    """The columns, when the file has them."""
    names = framed.header or tuple(
        dict.fromkeys(chain.from_iterable(seen.head.names for seen in framed.heads))
    )
    for theirs in columns.values():
        if theirs not in names and theirs.partition(".")[0] not in names:
            known = ", ".join(shown(names))
            raise InvalidInput("columns", f"the file has no {shown([theirs])[0]}; it has: {known}")
    return columns
