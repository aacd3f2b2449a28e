"""Records of a table in text: delimiters, quotes, line breaks inside of quotes."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from advisor.traffic.formats.fields import assign
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.encoding import MAX_LINE_BYTES, Encoding, Line, read_lines
from advisor.traffic.reading.frames import Frame, Framed, Seen

DELIMITERS = (",", ";", "\t", "|")
MAX_CELL_CHARS = MAX_LINE_BYTES
SNIFFED_RECORDS = 20
_RECORD = "record"
_TOO_LONG = "longer than 32 MiB"
_NO_RECORD = "not a CSV record (quotes or size)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How a table is written.

    `start` is the line of its header, None for a header of several lines.
    """

    delimiter: str
    header: tuple[str, ...]
    start: int | None


def delimiter_of(header: str) -> str:
    """The delimiter under which the header names most fields that we know, then most columns."""

    def score(delimiter: str) -> tuple[int, int]:
        names = next(records([header], delimiter)) or []
        return len(assign(names)), len(names)

    return max(DELIMITERS, key=score)


def records(lines: Iterable[str], delimiter: str) -> Iterator[list[str] | None]:
    """Records, quoted line breaks kept; None for one that the CSV rules do not allow."""
    csv.field_size_limit(MAX_CELL_CHARS)
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield None


def table_of(source: Source, encoding: Encoding) -> Table:
    """Delimiter and header of a table, read off its first line that is not blank."""
    lines = read_lines(source.open(), encoding)
    first = next((line for line in lines if (line.text or "").strip()), None)
    text = "" if first is None else first.text or ""
    delimiter = delimiter_of(text)
    taken = 0

    def rest() -> Iterator[str]:
        nonlocal taken
        for line in lines:
            taken += 1
            yield line.text or ""

    header = next(records(chain([text], rest()), delimiter), None) or []
    return Table(
        delimiter=delimiter,
        header=tuple(name.strip() for name in header),
        start=None if first is None or taken else first.number,
    )


def record_frames(lines: Iterable[Line], delimiter: str, *, first: int) -> Iterator[Frame]:
    """Records that are not blank, numbered from `first`; a line that is too long is a bad frame."""
    long: list[Frame] = []

    def texts() -> Iterator[str]:
        for line in lines:
            if line.text is None:
                long.append(Frame(line.number, None, _TOO_LONG))
            else:
                yield line.text

    for number, record in enumerate(records(texts(), delimiter), start=first):
        if long:
            yield from long
            long.clear()
        if record is None:
            yield Frame(number, None, _NO_RECORD, _RECORD)
        elif "".join(record).strip():
            yield Frame(number, record)
    yield from long


def _frames(source: Source, encoding: Encoding, table: Table, *, report: bool) -> Iterator[Frame]:
    """All records behind the header; the header is record 1, as in a spreadsheet."""
    lines = _from_text(read_lines(source.open(report=report), encoding))
    frames = record_frames(lines, table.delimiter, first=1)
    return (frame for frame in frames if frame.number > 1 or frame.value is None)


def _from_text(lines: Iterator[Line]) -> Iterator[Line]:
    """Without the blank lines before the header."""
    begun = False
    for line in lines:
        begun = begun or line.text is None or bool(line.text.strip())
        if begun:
            yield line


def csv_framed(source: Source, encoding: Encoding) -> Framed:
    """A table; its first records are shown by the names in its header."""
    table = table_of(source, encoding)
    cells = (frame.value for frame in _frames(source, encoding, table, report=False))
    shown = tuple(
        dict(zip(table.header, record, strict=True))
        for record in islice((cell for cell in cells if isinstance(cell, list)), SNIFFED_RECORDS)
        if len(record) == len(table.header)
    )
    head = Head(framing=Framing.CSV, names=table.header, records=shown)

    def frames(_at: Sequence[str]) -> Iterator[Frame]:
        return _frames(source, encoding, table, report=True)

    return Framed(
        heads=(Seen(head),), records=frames, name="csv", unit=_RECORD, header=table.header
    )
