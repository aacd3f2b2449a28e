"""From bytes to lines of text: which encoding a file is in, and never a silent mojibake."""

import codecs
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from advisor.errors import UnreadableFile
from advisor.traffic.reading.compression import Source
from advisor.units import MIB

MAX_LINE_BYTES = 32 * MIB
_CHUNK_BYTES = 1 * MIB
_HEAD_BYTES = 64 * 1024

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTAINERS = (
    (b"\x1f\x8b", "gzip data inside of compressed data", "compress it once"),
    (b"\x28\xb5\x2f\xfd", "zstandard data inside of compressed data", "compress it once"),
    (b"BZh91AY&SY", "bzip2 data", "decompress it or use gzip or zstd"),
    (b"\xfd7zXZ\x00", "xz data", "decompress it or use gzip or zstd"),
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "export it as CSV or JSONL"),
    (b"SQLite format 3\x00", "an SQLite database", "export the rows as CSV or JSONL"),
    (b"%PDF", "a PDF document", "upload JSONL or CSV"),
)
_SAVE_AS_UTF8 = "save the file as UTF-8 and upload it again"
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
# Typographic marks of Windows-1252 that ordinary Western text uses: euro, ellipsis, quotes,
# bullet, dashes, trade mark, oe.
_WESTERN_MARKS = frozenset(b"\x80\x82\x84\x85\x8c\x91\x92\x93\x94\x95\x96\x97\x99\x9c")
_MAX_MEAN_RUN = 2.0
_FIRST_PRINTABLE = 0xA0


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """How a file is decoded; `warning` is set when that is a guess."""

    name: str
    warning: str | None = None


class Line(NamedTuple):
    """One physical line, 1-based, with its line end. `text` is None when it was too long.

    Bytes that are no UTF-8 come as lone surrogates, so that `str.encode` refuses them later.
    """

    number: int
    text: str | None


def detect_encoding(source: Source) -> Encoding:
    """Encoding of the whole text.

    Raises `UnreadableFile` for binary files and for text whose code page cannot be told.
    """
    head = source.open().read(_HEAD_BYTES)
    for magic, what, remedy in _CONTAINERS:
        if head.startswith(magic):
            raise UnreadableFile(f"the file is {what}, not text", remedy)
    for mark, name in _BOMS:
        if head.startswith(mark):
            return Encoding(name=name)
    if b"\x00" in head:
        return _without_mark(head)
    if _is_utf8(source.open()):
        return Encoding(name="utf-8")
    return _eight_bit(source.open())


def _without_mark(head: bytes) -> Encoding:
    """UTF-16 without a byte-order mark has its NUL bytes on one side only (Western text)."""
    even, odd = head[0::2].count(0), head[1::2].count(0)
    for name, own, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if own > len(head) // 4 and other == 0:
            return Encoding(name=name, warning=f"no byte-order mark; read as {name.upper()}")
    raise UnreadableFile("the file holds NUL bytes: it is binary, not text", _SAVE_AS_UTF8)


def _is_utf8(stream: BinaryIO) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _eight_bit(stream: BinaryIO) -> Encoding:
    """UTF-8 with damaged lines, or Windows-1252, or refused.

    Once one line holds valid multi-byte UTF-8 the file is UTF-8 and the other lines are damaged.
    """
    runs = 0
    high = 0
    western = True
    while line := stream.readline(MAX_LINE_BYTES):
        found = _HIGH_RUN.findall(line)
        if not found:
            continue
        if _decodes(line):
            return Encoding(name="utf-8", warning="some lines are not valid UTF-8")
        runs += len(found)
        high += sum(map(len, found))
        western = western and all(
            byte >= _FIRST_PRINTABLE or byte in _WESTERN_MARKS for run in found for byte in run
        )
    # Words of other alphabets are long runs of high bytes; Western text has single accents.
    if western and high <= _MAX_MEAN_RUN * runs:
        return Encoding(
            name="windows-1252",
            warning="the file is not UTF-8; read as Windows-1252 (Latin-1): check the accents",
        )
    raise UnreadableFile(
        "the file is not UTF-8 and its code page cannot be told from its bytes", _SAVE_AS_UTF8
    )


def _decodes(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def is_utf8(encoding: Encoding) -> bool:
    """Whether the bytes are UTF-8, with or without a mark, damaged lines or not."""
    return encoding.name in ("utf-8", "utf-8-sig")


def read_raw_lines(stream: BinaryIO, encoding: Encoding) -> Iterator[tuple[int, bytes | None]]:
    """Physical lines of UTF-8 as they are, None for one that was too long."""
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(_CHUNK_BYTES)
            yield number, None
            continue
        if number == 1 and encoding.name == "utf-8-sig":
            raw = raw.removeprefix(codecs.BOM_UTF8)
        yield number, raw


def read_lines(stream: BinaryIO, encoding: Encoding) -> Iterator[Line]:
    """Physical lines, split at line feeds only, at most `MAX_LINE_BYTES` in memory."""
    if encoding.name.startswith(("utf-16", "utf-32")):
        return _wide_lines(stream, encoding.name)
    return _byte_lines(stream, encoding)


def _byte_lines(stream: BinaryIO, encoding: Encoding) -> Iterator[Line]:
    codec = "utf-8" if is_utf8(encoding) else encoding.name
    for number, raw in read_raw_lines(stream, encoding):
        text = None if raw is None else raw.decode(codec, "surrogateescape")
        yield Line(number=number, text=text)


def _wide_lines(stream: BinaryIO, name: str) -> Iterator[Line]:
    text = io.TextIOWrapper(stream, encoding=name, errors="surrogatepass", newline="\n")
    number = 0
    try:
        while line := text.readline(MAX_LINE_BYTES // 2):
            number += 1
            if len(line) >= MAX_LINE_BYTES // 2:
                while line and not line.endswith("\n"):
                    line = text.readline(_CHUNK_BYTES)
                yield Line(number=number, text=None)
                continue
            yield Line(number=number, text=line)
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"line {number + 1} is not valid {name.upper()}", _SAVE_AS_UTF8
        ) from error
    finally:
        text.detach()


def read_text(stream: BinaryIO, encoding: Encoding) -> Iterator[str]:
    """The text in parts of about a MiB; damaged bytes come as lone surrogates."""
    wide = encoding.name.startswith(("utf-16", "utf-32"))
    errors = "surrogatepass" if wide else "surrogateescape"
    decoder = codecs.getincrementaldecoder(encoding.name)(errors)
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UnreadableFile(
            f"the file is not valid {encoding.name.upper()}", _SAVE_AS_UTF8
        ) from error
