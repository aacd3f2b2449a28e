"""Records of JSON documents: arrays of objects, objects that enclose records, one long object."""

import json
import re
from collections.abc import Iterator, Sequence

import ijson

from advisor.errors import UnreadableFile
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.reading import encoding as text_encoding
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.encoding import Encoding, read_text
from advisor.traffic.reading.frames import Frame, Framed, Seen, with_places
from advisor.traffic.reading.json_lines import (
    constant,
    document_head,
    head_of,
    kind_of,
    objects,
)
from advisor.units import MIB, bytes_text

# A document up to here is read at once, a longer one in parts; one that is a single record may be
# as long as the second limit.
LOADED_BYTES = 32 * MIB
ONE_RECORD_BYTES = 256 * MIB
_SPACE = re.compile(r"[ \t\r\n]*")
_RECORD = "record"
_LONGEST_WORD = len("-Infinity")
_AS_LINES = "write valid JSON, or one JSON object per line (JSONL)"
_DECODER = json.JSONDecoder(parse_constant=constant)


class Values:
    """The JSON values of a text one after another: elements of an array, or documents in a row."""

    def __init__(self, parts: Iterator[str]) -> None:
        self._parts = parts
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """The next character that is no white space; "" at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(1):
                return ""

    def skip(self) -> None:
        """Pass over the next character."""
        self._at += 1

    def value(self) -> object:
        """The next value. Raises `EOFError` where the text ends in it, else `ValueError`."""
        self.peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                held = len(self._text) - self._at
                if held > text_encoding.MAX_LINE_BYTES or not _is_cut(error):
                    raise
                if not self._more(held):
                    raise EOFError from None
                continue
            # A number at the very end may go on in the next part.
            if end == len(self._text) and not isinstance(found, dict | list) and self._more(1):
                continue
            self._at = end
            return found

    def _more(self, wanted: int) -> bool:
        """Read at least `wanted` further characters; False at the end of the text."""
        read: list[str] = []
        while wanted > 0 and (part := next(self._parts, None)) is not None:
            read.append(part)
            wanted -= len(part)
        self._text = self._text[self._at :] + "".join(read)
        self._at = 0
        return any(read)


def _is_cut(error: json.JSONDecodeError) -> bool:
    """Whether more text might help: a string without its end, or a fault at the very end."""
    return error.msg.startswith("Unterminated") or error.pos >= len(error.doc) - _LONGEST_WORD


def array_frames(parts: Iterator[str]) -> Iterator[Frame]:
    """The elements of a JSON array, or of several one after another.

    Where the file ends inside of one, the last frame says so. Raises `UnreadableFile` where an
    array is broken, because what follows cannot be told apart.
    """
    values = Values(parts)
    number = 0
    while values.peek() == "[":
        values.skip()
        first = True
        while values.peek() != "]":
            if not first and values.peek() == ",":
                values.skip()
            elif not first:
                yield from _ended(values, number + 1)
                return
            first = False
            number += 1
            try:
                found = values.value()
            except EOFError:
                yield Frame(number, None, "not valid JSON, or the file ends in it", _RECORD)
                return
            except (ValueError, RecursionError) as error:
                raise _broken_at(number) from error
            yield _value_frame(number, found)
        values.skip()
    if values.peek():
        yield Frame(number + 1, None, "stands behind the end of the JSON array", _RECORD)


def _ended(values: Values, number: int) -> Iterator[Frame]:
    if values.peek():
        raise _broken_at(number)
    yield Frame(number, None, "the file ends inside of the JSON array", _RECORD)


def _broken_at(number: int) -> UnreadableFile:
    return UnreadableFile(f"the JSON array is not valid from element {number} on", _AS_LINES)


def array_framed(source: Source, encoding: Encoding) -> Framed:
    """One JSON array of objects; its elements are also seen as lines and as documents."""
    first = objects(array_frames(read_text(source.open(), encoding)))
    heads = [Seen(head_of(Framing.JSON, first)), Seen(head_of(Framing.JSONL, first))]
    if first:
        heads.append(Seen(document_head(first[0])))

    def records(at: Sequence[str]) -> Iterator[Frame]:
        return with_places(array_frames(read_text(source.open(report=True), encoding)), at)

    return Framed(heads=tuple(heads), records=records, name="json", unit="record")


def loaded(source: Source, encoding: Encoding, most: int) -> list[object] | None:
    """All JSON values of a text of at most `most` characters; None when it is none or longer."""
    parts: list[str] = []
    held = 0
    for part in read_text(source.open(), encoding):
        parts.append(part)
        held += len(part)
        if held > most:
            return None
    values = Values(iter(parts))
    found: list[object] = []
    try:
        while values.peek():
            found.append(values.value())
    except (EOFError, ValueError, RecursionError):
        return None
    return found


def documents_framed(documents: Sequence[object], name: str = "json") -> Framed:
    """One object that is the whole file, or several one after another over many lines each."""
    frames = [_value_frame(number, found) for number, found in enumerate(documents, start=1)]
    first = objects(iter(frames))
    single = len(documents) == 1
    heads = [Seen(head_of(Framing.JSONL, first))]
    if first:
        heads.insert(0, Seen(document_head(first[0])))
    if single and first:
        heads += (_listed(key, value) for key, value in first[0].items() if isinstance(value, list))

    def records(at: Sequence[str]) -> Iterator[Frame]:
        return with_places(iter(frames), at, document=single)

    return Framed(heads=tuple(heads), records=records, name=name, unit="record")


def _listed(key: str, values: Sequence[object]) -> Seen:
    """A document seen as the list that one of its keys holds."""
    first = objects(_value_frame(number, value) for number, value in enumerate(values, start=1))
    return Seen(head_of(Framing.JSON, first), (f"{key}.item",))


def _value_frame(number: int, found: object) -> Frame:
    if isinstance(found, dict):
        return Frame(number, found)
    return Frame(number, None, kind_of(found), _RECORD)


class _Utf8:
    """The text of a file as UTF-8 bytes, for a parser that takes nothing else."""

    def __init__(self, parts: Iterator[str]) -> None:
        self._parts = parts
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        while 0 <= len(self._left) < max(size, 1):
            part = next(self._parts, None)
            if part is None:
                break
            try:
                self._left += part.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                self._left += b"\xff"  # half a character: the parser stops there
        found, self._left = self._left[:size], self._left[size:]
        return found


def is_document(source: Source, encoding: Encoding) -> bool:
    """Whether a text starts as one long JSON object: its first part is valid as far as it goes."""
    body = _Utf8(read_text(source.open(), encoding)).read(MIB)
    parser = ijson.basic_parse_coro(_Nowhere())
    try:
        parser.send(body)
    except ijson.JSONError:
        return False
    return True


class _Nowhere:
    def send(self, _event: object) -> None:
        """Only whether it parses counts."""


def long_document_framed(source: Source, encoding: Encoding) -> Framed:
    """One JSON object too long to be read at once: its keys, and those values that are no lists."""
    keys, scalars, lists = _outline(source, encoding)
    head = Head(framing=Framing.JSON, document=keys, names=keys, records=(scalars,))
    listed = []
    for key in lists:
        first = objects(_items(source, encoding, f"{key}.item", report=False))
        listed.append(Seen(head_of(Framing.JSON, first), (f"{key}.item",)))

    def records(at: Sequence[str]) -> Iterator[Frame]:
        for place in at:
            items = _items(source, encoding, place, report=True)
            first = next(items, None)
            if first is not None:
                yield first
                yield from items
                return
        yield Frame(1, _whole(source, encoding))

    return Framed(heads=(Seen(head), *listed), records=records, name="json", unit="record")


def _outline(
    source: Source, encoding: Encoding
) -> tuple[tuple[str, ...], dict[str, object], tuple[str, ...]]:
    """Keys of the outermost object, its plain values, and the keys of its lists."""
    keys: list[str] = []
    scalars: dict[str, object] = {}
    lists: list[str] = []
    depth = 0
    body = _Utf8(read_text(source.open(), encoding))
    try:
        for event, value in ijson.basic_parse(body, use_float=True):
            opens, closes = event.startswith("start_"), event.startswith("end_")
            depth -= closes
            if depth == 1 and event == "map_key":
                keys.append(str(value))
            elif depth == 1 and event == "start_array":
                lists.append(keys[-1])
            elif depth == 1 and not opens and not closes:
                scalars[keys[-1]] = value
            depth += opens
    except ijson.JSONError as error:
        raise _broken() from error
    return tuple(keys), scalars, tuple(lists)


def _items(source: Source, encoding: Encoding, place: str, *, report: bool) -> Iterator[Frame]:
    body = _Utf8(read_text(source.open(report=report), encoding))
    items = ijson.items(body, place, use_float=True)
    number = 0
    while True:
        number += 1
        try:
            found = next(items)
        except StopIteration:
            return
        except ijson.JSONError as error:
            raise _broken() from error
        yield _value_frame(number, found)


def _whole(source: Source, encoding: Encoding) -> object:
    found = loaded(source, encoding, ONE_RECORD_BYTES)
    if found is None or len(found) != 1:
        raise UnreadableFile(
            f"the file is one JSON object of more than {bytes_text(ONE_RECORD_BYTES)}, or broken",
            "write one JSON object per line (JSONL)",
        )
    return found[0]


def _broken() -> UnreadableFile:
    # The parser's own message quotes the text around the fault.
    return UnreadableFile("the JSON document is not valid", _AS_LINES)
