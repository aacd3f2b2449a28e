"""A table of lengths, block by block; what is out of the ordinary goes row by row."""

import io
from collections.abc import Iterable, Mapping
from typing import BinaryIO

from typing_extensions import Buffer, override

from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.lengths_row import note_zeros
from advisor.traffic.formats.row import Notes, RequestFields
from advisor.traffic.formats.times import named_unit
from advisor.traffic.reading.choice import Choice
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.csv_records import Table, record_frames, table_of
from advisor.traffic.reading.encoding import MAX_LINE_BYTES, Encoding, Line, is_utf8, read_lines
from advisor.traffic.reading.frames import Frame
from advisor.traffic.reading.lengths_block import FIELD_OF, Plan, read_block
from advisor.traffic.reading.lengths_columns import Chunk
from advisor.traffic.reading.taken import Taken
from advisor.units import MIB

BLOCK_BYTES = 4 * MIB
_UTF8 = Encoding(name="utf-8")


def read_table(source: Source, encoding: Encoding, choice: Choice, taken: Taken) -> bool:
    """Read a whole table of lengths; False, and nothing read, where it must be read row by row.

    The rows go to `taken`, whose store must be `LengthsColumns`.
    """
    if choice.plain is None or encoding.warning or not is_utf8(encoding):
        return False
    table = table_of(source, encoding)
    plan = _plan(table, choice, taken.time_unit)
    if table.start is None or plan is None:
        return False
    stream = source.open(report=True)
    for _ in range(table.start):
        stream.readline()
    _Reader(plan, choice, taken, behind=table.start - 1).read(stream)
    return True


def _plan(table: Table, choice: Choice, override: str | None) -> Plan | None:
    header = choice.header or table.header
    plain: Mapping[str, str] = choice.plain or {}
    if len(set(header)) < len(header):
        return None
    places = {field: header.index(name) for field, name in plain.items() if field in FIELD_OF}
    time = plain.get("timestamp")
    return Plan(
        width=len(header),
        delimiter=table.delimiter,
        places=places,
        time=None if time is None else header.index(time),
        unit=None if time is None else named_unit(time),
        override=override,
    )


class _Reader:
    """Blocks of whole lines, from behind the header to the end."""

    def __init__(self, plan: Plan, choice: Choice, taken: Taken, *, behind: int) -> None:
        self._plan = plan
        self._choice = choice
        self._taken = taken
        self._record = 2  # the header is record 1, as in a spreadsheet
        self._behind = behind  # lines that are no records

    def read(self, stream: BinaryIO) -> None:
        held = b""
        while part := stream.read(BLOCK_BYTES):
            held += part
            if b'"' in part or len(held) > MAX_LINE_BYTES:
                # A quoted cell may hold line ends, so blocks cannot be cut at them any more.
                self._row_by_row(held, stream)
                return
            end = held.rfind(b"\n") + 1
            if end:
                self._block(held[:end])
                held = held[end:]
        if held:
            self._block(held)

    def _block(self, block: bytes) -> None:
        chunk = read_block(block, self._plan, self._record)
        if chunk is not None:
            self._taken.add_chunk(chunk)
            _note_zeros(chunk, self._taken.notes)
            self._record += len(chunk)
            return
        texts = list(io.StringIO(block.decode(), newline="\n"))
        numbered = (Line(number, text) for number, text in enumerate(texts, start=self._record))
        self._take(record_frames(numbered, self._plan.delimiter, first=self._record))
        self._record += len(texts)

    def _row_by_row(self, held: bytes, stream: BinaryIO) -> None:
        rest = io.BufferedReader(_Joined(held, stream), BLOCK_BYTES)
        before = self._record + self._behind - 1
        lines = (Line(line.number + before, line.text) for line in read_lines(rest, _UTF8))
        self._take(record_frames(lines, self._plan.delimiter, first=self._record))

    def _take(self, frames: Iterable[Frame]) -> None:
        take_frames(frames, self._choice, self._taken)


def take_frames(frames: Iterable[Frame], choice: Choice, taken: Taken) -> None:
    """Every record by itself."""
    for number, value, reason, field in frames:
        if reason is not None:
            taken.reject(number, BadField(field, reason))
            continue
        try:
            taken.add(choice.drafts(value, number, taken.notes))
        except BadField as bad:
            taken.reject(number, bad)


def _note_zeros(chunk: Chunk, notes: Notes) -> None:
    prompts = chunk.counts["prompt_tokens"]
    outputs = chunk.counts.get("output_tokens")
    odd = prompts == 0 if outputs is None else (prompts == 0) | (outputs == 0)
    for place in odd.nonzero()[0].tolist():
        fields: RequestFields = {"prompt_tokens": int(prompts[place])}
        if outputs is not None:
            fields["output_tokens"] = int(outputs[place])
        note_zeros(fields, notes, int(chunk.lines[place]))


class _Joined(io.RawIOBase):
    """What was read already, and then the rest of a stream."""

    def __init__(self, held: bytes, stream: BinaryIO) -> None:
        super().__init__()
        self._held = held
        self._stream = stream

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        found, self._held = self._held[: len(view)], self._held[len(view) :]
        if not found:
            found = self._stream.read(len(view))
        view[: len(found)] = found
        return len(found)
