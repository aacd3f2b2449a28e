"""Records of JSON Lines: one object a line."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import BinaryIO

import orjson

from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.format import Framing, Head, Record
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.encoding import Encoding, is_utf8, read_lines, read_raw_lines
from advisor.traffic.reading.frames import Frame, Framed, Seen, with_places
from advisor.units import MIB

SNIFFED_RECORDS = 20
_SNIFFED_CHARS = 4 * MIB
_MAX_LAYERS = 3
_TOO_LONG = "longer than 32 MiB"


def constant(name: str) -> float:
    """What Python writes for numbers that JSON does not have."""
    return math.nan if name == "NaN" else math.inf if name == "Infinity" else -math.inf


def parse_object(line: str) -> dict[str, object]:
    """The JSON object on one line. `NaN` is let through: the field that holds it says so.

    An object that was written as a JSON string, once or twice, is taken out of it.
    """
    found: object = line
    for _ in range(_MAX_LAYERS):
        try:
            found = json.loads(str(found), parse_constant=constant)
        except RecursionError as error:
            raise BadField("line", "nested too deeply") from error
        except ValueError as error:
            raise BadField("line", "not valid JSON") from error
        if not isinstance(found, str) or not found.lstrip().startswith(("{", '"')):
            break
    if not isinstance(found, dict):
        raise BadField("line", kind_of(found))
    return found


def kind_of(value: object) -> str:
    """Why a JSON value that is no object cannot be a record."""
    kind = {list: "an array", str: "a string", type(None): "null", bool: "a truth value"}.get(
        type(value), "a number"
    )
    return f"{kind}, not a JSON object"


def line_frames(source: Source, encoding: Encoding, *, report: bool) -> Iterator[Frame]:
    """The objects of JSON Lines; blank lines are no records."""
    stream = source.open(report=report)
    if is_utf8(encoding):
        return _raw_frames(stream, encoding)
    return _text_frames(stream, encoding)


def _raw_frames(stream: BinaryIO, encoding: Encoding) -> Iterator[Frame]:
    for number, raw in read_raw_lines(stream, encoding):
        if raw is None:
            yield Frame(number, None, _TOO_LONG)
            continue
        try:
            found = orjson.loads(raw)
        except orjson.JSONDecodeError:
            found = None
        if type(found) is dict:
            yield Frame(number, found)
        elif not raw.isspace():
            # Python's own parser knows NaN, and says what is wrong as it always did.
            yield _object_frame(number, raw.decode("utf-8", "surrogateescape"))


def _text_frames(stream: BinaryIO, encoding: Encoding) -> Iterator[Frame]:
    for line in read_lines(stream, encoding):
        if line.text is None:
            yield Frame(line.number, None, _TOO_LONG)
        elif line.text.strip():
            yield _object_frame(line.number, line.text)


def _object_frame(number: int, text: str) -> Frame:
    try:
        return Frame(number, parse_object(text))
    except BadField as bad:
        return Frame(number, None, bad.reason)


def jsonl_framed(source: Source, encoding: Encoding) -> Framed:
    """JSON Lines. The first record is also shown as a document: a whole export may be a line."""
    first = objects(line_frames(source, encoding, report=False))
    heads = [Seen(head_of(Framing.JSONL, first))]
    if first:
        heads.append(Seen(document_head(first[0])))

    def records(at: Sequence[str]) -> Iterator[Frame]:
        return with_places(line_frames(source, encoding, report=True), at)

    return Framed(heads=tuple(heads), records=records, name="jsonl", unit="line")


def objects(frames: Iterator[Frame]) -> tuple[Record, ...]:
    """The first objects, as many as tell the format and no more than some MiB of them."""
    found: list[Record] = []
    size = 0
    for frame in islice(frames, SNIFFED_RECORDS):
        if isinstance(frame.value, dict):
            found.append(frame.value)
            size += len(str(frame.value))
        if size > _SNIFFED_CHARS:
            break
    return tuple(found)


def head_of(framing: Framing, first: Sequence[Record]) -> Head:
    """The head of a file with these first records."""
    names = tuple(dict.fromkeys(chain.from_iterable(first)))
    return Head(framing=framing, names=names, records=tuple(first))


def document_head(document: Record) -> Head:
    """The head of a file that is this one object."""
    keys = tuple(document)
    return Head(framing=Framing.JSON, document=keys, names=keys, records=(document,))
