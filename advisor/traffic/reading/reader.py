"""Reads an upload of any known format: detects it, takes rows one by one, reports the rest."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO

from advisor.errors import NoUsableRows
from advisor.traffic.formats.fields import ACCEPTED, shown
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading.choice import choose, refuse
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.conclusion import MIN_ROWS_FOR_SHARE, Reading, conclude
from advisor.traffic.reading.frames import with_places
from advisor.traffic.reading.framing import framed as frame_file
from advisor.traffic.reading.framing import text_head
from advisor.traffic.reading.lengths_columns import LengthsColumns
from advisor.traffic.reading.lengths_table import read_table, take_frames
from advisor.traffic.reading.opened import OpenTrace
from advisor.traffic.reading.spool import Spool
from advisor.traffic.reading.taken import MAX_REJECTS, Taken
from advisor.traffic.trace import Trace

__all__ = [
    "MAX_REJECTS",
    "MIN_ROWS_FOR_SHARE",
    "OpenTrace",
    "open_trace",
    "read_trace",
]
_DEFAULTS = ReadOptions()


def open_trace(
    stream: BinaryIO,
    *,
    filename: str,
    spool: BinaryIO,
    options: ReadOptions = _DEFAULTS,
    progress: Callable[[int], None] | None = None,
) -> OpenTrace:
    """The requests of an uploaded file, sorted by arrival (stable), and the report on it.

    The format is told by the content; `filename` is what errors call the file. `stream` must be
    seekable and is read several times. Rows lie in `spool`, a stream of the caller's that must live
    as long as the result, so that about 100 bytes of a row are in memory. `progress` hears how many
    bytes of `stream` the reading of rows is through. In a table the header counts as record 1.

    All refusals come from here, so nothing can be half stored: `UnreadableFile` for what is not
    text or not traffic or too long, `NoUsableRows` when no row can be taken or, in a file of at
    least 20 rows, when more than `options.max_bad_share` of them are bad, `UnknownName` and
    `InvalidInput` for options that this file does not have.
    """
    source = Source(stream, max_bytes=options.max_bytes, told=progress)
    framed, encoding = frame_file(source, spool, filename=filename, max_bytes=options.max_bytes)
    choice = choose(framed, options.columns, options.format)
    if choice is None:
        refuse([text_head(source, encoding)])
        raise NoUsableRows(
            f"no row of {filename} can be used (no column of the table is known)",
            shown(framed.header),
            ACCEPTED,
        )
    reading = Reading(
        filename=filename,
        options=options,
        compression=source.compression,
        encoding=encoding,
        framed=framed,
        choice=choice,
    )
    return conclude(reading, _taken(source, reading, spool))


def _taken(source: Source, reading: Reading, spool: BinaryIO) -> Taken:
    """All rows: a table of lengths by blocks into columns, all else one by one into the spool."""
    choice, options = reading.choice, reading.options
    if choice.plain is not None:
        taken = Taken(LengthsColumns(), time_unit=options.time_unit, max_rows=options.max_rows)
        if read_table(source, reading.encoding, choice, taken):
            return taken
    taken = Taken(Spool(spool), time_unit=options.time_unit, max_rows=options.max_rows)
    first, *inner = choice.at or ((),)
    frames = reading.framed.records(first)
    for places in inner:
        frames = with_places(frames, places)
    take_frames(frames, choice, taken)
    return taken


def read_trace(
    stream: BinaryIO,
    *,
    filename: str,
    options: ReadOptions = _DEFAULTS,
    max_bad_share: float | None = None,
) -> Trace:
    """As `open_trace`, with all requests in memory: for small files and tests."""
    if max_bad_share is not None:
        options = replace(options, max_bad_share=max_bad_share)
    opened = open_trace(stream, filename=filename, spool=io.BytesIO(), options=options)
    requests = [request for part in opened.batches() for request in part]
    return Trace(requests=tuple(requests), report=opened.report)
