"""Length-prefixed frames: how the API and its parsing child hand bytes to each other."""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from advisor.errors import InvalidInput

HEADER = struct.Struct(">Q")


def write_frame(stream: BinaryIO, body: bytes) -> None:
    """Append one frame."""
    stream.write(HEADER.pack(len(body)))
    stream.write(body)


def read_frames(stream: BinaryIO) -> Iterator[bytes]:
    """The frames of a stream, to its end; a cut-off one raises `InvalidInput`."""
    while header := stream.read(HEADER.size):
        if len(header) < HEADER.size:
            raise InvalidInput("frames", "the stream ends inside a frame")
        (size,) = HEADER.unpack(header)
        body = stream.read(size)
        if len(body) < size:
            raise InvalidInput("frames", "the stream ends inside a frame")
        yield body
