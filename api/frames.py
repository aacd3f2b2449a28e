"""Length-prefixed frames: how the API and its parsing child hand bytes to each other."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from advisor.errors import InvalidInput

HEADER = struct.Struct(">Q")
TAG_BYTES = 1
# What a frame of the child's answer holds. The facts come last, when everything else is known.
FACTS, REQUESTS, TOKENS = b"F", b"R", b"T"


def write_frame(stream: BinaryIO, body: bytes, tag: bytes = b"") -> None:
    """Append one frame."""
    stream.write(HEADER.pack(len(tag) + len(body)))
    stream.write(tag)
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where the body of a tagged frame lies in a file."""

    tag: bytes
    offset: int
    size: int


class Frames:
    """Tagged frames in a file, read one at a time: none is held, whatever their size."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._places = list(self._found())

    def _found(self) -> Iterator[Place]:
        """Frames to the end, or to where a killed process stopped writing."""
        end = self._stream.seek(0, 2)
        at = 0
        while at + HEADER.size + TAG_BYTES <= end:
            self._stream.seek(at)
            (size,) = HEADER.unpack(self._stream.read(HEADER.size))
            tag = self._stream.read(TAG_BYTES)
            body_at = at + HEADER.size + TAG_BYTES
            at += HEADER.size + size
            if at <= end:
                yield Place(tag, body_at, size - TAG_BYTES)

    @property
    def places(self) -> Sequence[Place]:
        """All frames in their order."""
        return self._places

    def body(self, place: Place) -> bytes:
        """What one frame holds."""
        self._stream.seek(place.offset)
        return self._stream.read(place.size)

    def of(self, tag: bytes) -> Iterator[bytes]:
        """The bodies of the frames with this tag, in order."""
        for place in self._places:
            if place.tag == tag:
                yield self.body(place)
