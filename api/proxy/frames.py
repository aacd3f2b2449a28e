"""Server-sent event frames as bytes: split at blank lines, never inside a character."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FRAME_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts that an engine reported for one answer."""

    prompt_tokens: int
    completion_tokens: int


class FrameSplitter:
    """Bytes in, whole frames out (each with its closing blank line).

    Multi-byte characters cut by network chunks stay intact because nothing is decoded before a
    frame is complete.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Frames completed by `chunk`."""
        self._rest += chunk
        while (cut := self._boundary()) is not None:
            frame, self._rest = self._rest[:cut], self._rest[cut:]
            yield frame
        if len(self._rest) > MAX_FRAME_BYTES:
            frame, self._rest = self._rest, b""
            yield frame

    def rest(self) -> bytes:
        """What came after the last complete frame."""
        rest, self._rest = self._rest, b""
        return rest

    def _boundary(self) -> int | None:
        ends = [
            position + len(mark)
            for mark in (b"\n\n", b"\r\n\r\n")
            if (position := self._rest.find(mark)) >= 0
        ]
        return min(ends) if ends else None


def usage_of(frame: bytes) -> tuple[Usage | None, bool]:
    """The usage in a frame, and whether the frame holds nothing else (empty `choices`)."""
    if b'"usage"' not in frame:
        return None, False
    data = b"".join(line[5:].strip() for line in frame.splitlines() if line.startswith(b"data:"))
    try:
        body = json.loads(data)
    except ValueError:
        return None, False
    return usage_in(body), isinstance(body, dict) and body.get("choices") == []


def usage_in(body: object) -> Usage | None:
    """The usage of a whole answer or frame, if it has one."""
    usage = body.get("usage") if isinstance(body, dict) else None
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion)
