"""The bytes of an upload, decompressed while they are read, and never more than allowed."""

import gzip
import io
import zlib
from collections.abc import Callable, Mapping
from typing import BinaryIO, Protocol

import pyarrow as pa
from typing_extensions import Buffer, override

from advisor.errors import FileTooLong, UnreadableFile
from advisor.units import GIB, MIB, bytes_text

# gzip ends at 1,032 bytes for one. Logs shrink to a tenth, and with one long system prompt in every
# row to a hundredth. zstd looks back further, so that histories which repeat cost next to nothing.
MAX_RATIO: Mapping[str, int] = {"gzip": 200, "zstd": 2000}
_RATIO_FROM_BYTES = 64 * MIB
_BUFFER_BYTES = 256 * 1024
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_SKIPPABLE = tuple(bytes([0x50 + low, 0x2A, 0x4D, 0x18]) for low in range(16))
_MAX_BYTES = 8 * GIB


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Source:
    """An upload that can be read from its start again and again, decompressed.

    `compression` is "gzip", "zstd" or None, `stream` the upload as it is. `told` hears how many
    bytes of the upload itself were read, of the reading that `open` was told to report.
    """

    def __init__(
        self,
        stream: BinaryIO,
        *,
        max_bytes: int = _MAX_BYTES,
        told: Callable[[int], None] | None = None,
    ) -> None:
        self.stream = stream
        self._max_bytes = max_bytes
        self._told = told
        stream.seek(0)
        magic = stream.read(4)
        self.compression = next((name for mark, name in _MAGIC if magic.startswith(mark)), None)
        if magic in _SKIPPABLE:
            self.compression = "zstd"

    def open(self, *, report: bool = False) -> BinaryIO:
        """The decompressed bytes from their start; only one reading at a time."""
        self.stream.seek(0)
        counted = _Counted(self.stream, self._told if report else None)
        if self.compression is None:
            return io.BufferedReader(_Limited(counted, self._max_bytes), _BUFFER_BYTES)
        opened = _unzipped(counted) if self.compression == "gzip" else _decoded(counted)
        limited = _Unpacked(opened, counted, self.compression, self._max_bytes)
        return io.BufferedReader(limited, _BUFFER_BYTES)


class _Counted:
    """Reads of the upload, counted; closing it leaves the upload open."""

    closed = False

    def __init__(self, stream: BinaryIO, told: Callable[[int], None] | None) -> None:
        self._stream = stream
        self._told = told
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        self.bytes += len(found)
        if self._told is not None:
            self._told(self.bytes)
        return found

    def close(self) -> None:
        """Nothing: the upload is its owner's."""


def _unzipped(counted: _Counted) -> _Readable:
    """All members of a gzip file, one after another."""
    return gzip.GzipFile(fileobj=counted, mode="rb")  # type: ignore[call-overload,no-any-return]


def _decoded(counted: _Counted) -> _Readable:
    """All frames of a zstd file; a window of at most 128 MiB, the limit of the library."""
    found: _Readable = pa.CompressedInputStream(pa.PythonFile(counted, mode="r"), "zstd")
    return found


class _Limited(io.RawIOBase):
    """At most so many bytes, else a refusal."""

    def __init__(self, source: _Readable, max_bytes: int) -> None:
        super().__init__()
        self._source = source
        self._max_bytes = max_bytes
        self._produced = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        found = self._chunk(len(view))
        self._produced += len(found)
        if self._produced > self._max_bytes:
            raise FileTooLong(
                f"the file is longer than the limit of {bytes_text(self._max_bytes)}",
                "split it or leave out a part of its rows",
            )
        self._check()
        view[: len(found)] = found
        return len(found)

    def _chunk(self, size: int) -> bytes:
        return self._source.read(size)

    def _check(self) -> None:
        """What else may be wrong."""


class _Unpacked(_Limited):
    """As above after decompression; what expands beyond all measure is refused early."""

    def __init__(self, source: _Readable, counted: _Counted, name: str, max_bytes: int) -> None:
        super().__init__(source, max_bytes)
        self._counted = counted
        self._name = name

    @override
    def _chunk(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(
                f"the {self._name} data are damaged or cut off", "compress the file again"
            ) from error

    @override
    def _check(self) -> None:
        ratio = MAX_RATIO[self._name]
        if self._produced > max(_RATIO_FROM_BYTES, ratio * self._counted.bytes):
            raise UnreadableFile(
                f"the {self._name} data expand to more than {ratio:,} times their size"
                f" (limit beyond {bytes_text(_RATIO_FROM_BYTES)})",
                "upload the file decompressed if it is what you meant",
            )
