"""Records of a Parquet file, read by row groups; their values are those that JSON has too."""

import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import override

from advisor.errors import UnreadableFile
from advisor.traffic.formats.format import Framing, Head
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.frames import Frame, Framed, Seen, with_places
from advisor.traffic.reading.json_lines import SNIFFED_RECORDS
from advisor.units import MIB, bytes_text

MAGIC = b"PAR1"
_ROWS = 256
_BATCH_BYTES = 256 * MIB
_ROW_GROUP_BYTES = 1024 * MIB
_PLAIN = (
    (pa.types.is_duration, pa.int64()),
    (pa.types.is_temporal, pa.string()),
    (pa.types.is_decimal, pa.float64()),
)
_WRITE_AGAIN = "write the table again, or export it as JSONL"


def is_parquet(source: Source) -> bool:
    """Whether the file starts as one."""
    return source.open().read(len(MAGIC)) == MAGIC


def parquet_framed(source: Source, spool: BinaryIO, max_bytes: int) -> Framed:
    """The rows of a table; one that is compressed as a whole is decompressed into `spool`.

    Parquet is read from its end, so a stream does not do.
    """
    table = _opened(_seekable(source, spool))
    _check_sizes(table, max_bytes)
    first = tuple(_rows(table, SNIFFED_RECORDS))[:SNIFFED_RECORDS]
    head = Head(
        framing=Framing.PARQUET,
        names=tuple(table.schema_arrow.names),
        records=tuple(row for row in first if isinstance(row, dict)),
    )

    def records(at: Sequence[str]) -> Iterator[Frame]:
        frames = (Frame(number, row) for number, row in enumerate(_rows(table), start=1))
        return with_places(frames, at)

    return Framed(heads=(Seen(head),), records=records, name="parquet", unit="record")


class _Part(io.RawIOBase):
    """The first bytes of a stream that others write behind: every read says where."""

    def __init__(self, stream: BinaryIO, length: int) -> None:
        super().__init__()
        self._stream = stream
        self._length = length
        self._place = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._place

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._length}[whence]
        self._place = max(0, start + offset)
        return self._place

    @override
    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._length - self._place)
        self._stream.seek(self._place)
        found = self._stream.read(left if size < 0 else min(size, left))
        self._place += len(found)
        return found


def _seekable(source: Source, spool: BinaryIO) -> _Part:
    if source.compression is None:
        stream = source.stream
        return _Part(stream, stream.seek(0, io.SEEK_END))
    spool.seek(0)
    unpacked = source.open()
    while part := unpacked.read(MIB):
        spool.write(part)
    return _Part(spool, spool.tell())


def _opened(file: _Part) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile("the Parquet file is damaged or cut off", _WRITE_AGAIN) from error


def _check_sizes(table: pq.ParquetFile, max_bytes: int) -> None:
    groups = [
        table.metadata.row_group(place).total_byte_size
        for place in range(table.metadata.num_row_groups)
    ]
    if sum(groups) > max_bytes:
        raise UnreadableFile(
            f"the table has more than {bytes_text(max_bytes)} decompressed", "split it"
        )
    if max(groups, default=0) > _ROW_GROUP_BYTES:
        raise UnreadableFile(
            f"a row group has more than {bytes_text(_ROW_GROUP_BYTES)}",
            "write the table with smaller row groups",
        )


def _rows(table: pq.ParquetFile, size: int = _ROWS) -> Iterator[object]:
    """Rows as Python values; times as ISO text, because numbers would lose their unit."""
    schema = pa.schema([(item.name, _plain(item.type)) for item in table.schema_arrow])
    batches = table.iter_batches(batch_size=size, use_threads=False)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            if batch.nbytes > _BATCH_BYTES:
                raise UnreadableFile(
                    f"{size} rows have more than {bytes_text(_BATCH_BYTES)}", _WRITE_AGAIN
                )
            plain = pa.Table.from_batches([batch]).cast(schema, safe=False)
            rows = pa.table([_known(column) for column in plain], schema=schema).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile("the Parquet file cannot be read", _WRITE_AGAIN) from error
        yield from rows


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without the NaN that pandas writes where a number is missing."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, type=column.type), column)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type whose Python values JSON has too."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([(item.name, _plain(item.type)) for item in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    return next((plain for is_kind, plain in _PLAIN if is_kind(kind)), kind)
