"""How the records of a file stand in it, told by its content and never by its name."""

import re
from collections.abc import Sequence
from itertools import islice
from typing import BinaryIO

from advisor.errors import NoUsableRows
from advisor.traffic.formats.fields import ACCEPTED, PROMPT_FIELDS, BadField, assign
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.csv_records import csv_framed, delimiter_of, records
from advisor.traffic.reading.encoding import Encoding, Line, detect_encoding, read_lines
from advisor.traffic.reading.frames import Framed
from advisor.traffic.reading.json_documents import (
    LOADED_BYTES,
    array_framed,
    documents_framed,
    is_document,
    loaded,
    long_document_framed,
)
from advisor.traffic.reading.json_lines import jsonl_framed, parse_object
from advisor.traffic.reading.parquet_records import is_parquet, parquet_framed

SNIFFED_LINES = 20
_PARQUET = Encoding(name="parquet")
_LOGGED = re.compile(r"\[\d{4}-\d\d-\d\d")  # a line of a log that starts with its time


def framed(
    source: Source, spool: BinaryIO, *, filename: str, max_bytes: int
) -> tuple[Framed, Encoding]:
    """The records of a file and how its text is written."""
    if is_parquet(source):
        return parquet_framed(source, spool, max_bytes), _PARQUET
    encoding = detect_encoding(source)
    head = list(islice(read_lines(source.open(), encoding), SNIFFED_LINES))
    if all(line.text is not None and not line.text.strip() for line in head):
        reason = f"{filename} has no text in its first {SNIFFED_LINES} lines"
        raise NoUsableRows(reason, (), ACCEPTED)
    found = _json_framed(source, encoding, head)
    return csv_framed(source, encoding) if found is None else found, encoding


def text_head(source: Source, encoding: Encoding) -> Head:
    """The head of a text that is neither JSON nor a table."""
    lines = islice(read_lines(source.open(), encoding), SNIFFED_LINES)
    return Head(
        framing=Framing.TEXT, lines=tuple((line.text or "").rstrip("\r\n") for line in lines)
    )


def _json_framed(source: Source, encoding: Encoding, head: Sequence[Line]) -> Framed | None:
    """The file as JSON; None when it is none."""
    texts = [line.text.strip() if line.text is not None else None for line in head]
    filled = [text for text in texts if text != ""]
    first = filled[0] if filled[0] is not None else _start(source, encoding)
    if first.startswith("[") and not _LOGGED.match(first):
        return _array(source, encoding, filled)
    if first.startswith("{"):
        return _object(source, encoding, filled)
    if _names_columns(first) or not any(_is_object(text) for text in filled):
        return None
    return jsonl_framed(source, encoding)


def _start(source: Source, encoding: Encoding) -> str:
    """How a first line starts that is too long to be held."""
    return source.open().read(64).decode(encoding.name, "replace").strip()


def _array(source: Source, encoding: Encoding, filled: Sequence[str | None]) -> Framed:
    """An array over the whole file, unless lines of their own follow its first one."""
    first, rest = filled[0], filled[1:]
    if first is not None and first.endswith("]") and any(_is_object(text) for text in rest):
        return jsonl_framed(source, encoding)
    return array_framed(source, encoding)


def _object(source: Source, encoding: Encoding, filled: Sequence[str | None]) -> Framed:
    first = filled[0]
    if _is_object(first):
        if len(filled) == 1:
            return documents_framed([parse_object(str(first))], "jsonl")
        return jsonl_framed(source, encoding)
    documents = loaded(source, encoding, LOADED_BYTES)
    if documents is not None:
        return documents_framed(documents)
    if is_document(source, encoding):
        return long_document_framed(source, encoding)
    return jsonl_framed(source, encoding)


def _is_object(text: str | None) -> bool:
    if text is None or not text.startswith(("{", '"')):
        return False
    try:
        parse_object(text)
    except BadField:
        return False
    return True


def _names_columns(header: str) -> bool:
    """Whether a first line is a header that names what a request asks."""
    names = next(records([header], delimiter_of(header)), None) or []
    return any(field in assign(names) for field in PROMPT_FIELDS)
