"""One request and its streamed answer on a connection of its own.

Bytes come by `asyncio.Protocol` from the loop, with the time of their arrival, and pass llhttp and
the event stream's parser; no task wakes per frame. Every request has a new connection: no stale
one, so no retry that would hide a failure (case S-08).
"""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools
import orjson
from typing_extensions import override

from probes.load.answer import Answer
from probes.load.sse import EventStream, Frame, error_kind

OK = 200
# A server that has said [DONE] may take this long to end the answer in its own way.
LINGER_S = 2.0
# An error that explains itself at greater length is not read to its end.
_MOST_REFUSAL_BYTES = 1 << 20

Clock = Callable[[], float]


class Exchange(asyncio.Protocol):
    """Sends one request and gathers the answer; `over` is done when that has ended or failed.

    `connected_s` and `sent_s` say when the connection stood and when the bytes went out, `last_s`
    when the last bytes came, and `end_s` when the answer was complete or had failed.
    """

    def __init__(self, request: bytes, *, clock: Clock, keep_content: bool) -> None:
        self.answer = Answer(keep_content=keep_content)
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.connected_s: float | None = None
        self.sent_s: float | None = None
        self.last_s = self.end_s = clock()
        self._request = request
        self._clock = clock
        self._parser = httptools.HttpResponseParser(self)
        self._events = EventStream()
        self._transport: asyncio.WriteTransport | None = None
        self._type = b""
        self._status: int | None = None
        self._streaming = False
        self._refusal = bytearray()
        self._complete = False

    # ------------------------------------------------------------------------------ connection

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected_s = self._clock()
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(self._request)
        self.sent_s = self.last_s = self._clock()
        self._request = b""
        # uvloop writes when this turn of the loop ends.
        asyncio.get_running_loop().call_soon(self._written)

    def _written(self) -> None:
        if self.last_s == self.sent_s:
            self.sent_s = self.last_s = self._clock()

    @override
    def data_received(self, data: bytes) -> None:
        self.last_s = self._clock()
        if self._complete:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self._complete:
                self.fail("transport:not_http")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        if self.over.done():
            return
        if exc is not None:
            self.fail(f"transport:{type(exc).__name__}")
        elif self._status is None:
            self.fail("transport:closed")
        else:
            self._ended()

    def fail(self, kind: str) -> None:
        """End with this failure and drop the connection, which tells the engine to stop."""
        if not self.over.done():
            self.answer.error = self.answer.error or kind
            self.end_s = self._clock()
            self.over.set_result(None)
        self.drop()

    def drop(self) -> None:
        """Close the connection at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def leave(self) -> None:
        """Let the server end a finished answer in its own way, but not for long."""
        if self._complete or self.answer.error is not None:
            self.drop()
        elif self._transport is not None:
            asyncio.get_running_loop().call_later(LINGER_S, self.drop)

    # -------------------------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; a later one of the same name wins."""
        if name.lower() == b"content-type":
            self._type = value.lower()

    def on_headers_complete(self) -> None:
        """The status line and all headers, of an interim answer (1xx) too."""
        status = self._parser.get_status_code()
        if status >= OK:
            self._status = status
            self._streaming = status == OK and b"event-stream" in self._type

    def on_body(self, body: bytes) -> None:
        """Some bytes of the answer, without their chunk's frame."""
        if not self._streaming:
            if len(self._refusal) < _MOST_REFUSAL_BYTES:
                self._refusal += body
            return
        for frame in self._events.feed(body):
            self._take(frame)

    def on_message_complete(self) -> None:
        """The server has ended its answer."""
        if self._status is not None:
            self._complete = True
            self._ended()
            if self.over.done():
                self.drop()

    def _take(self, frame: Frame) -> None:
        if self.over.done():
            return
        self.answer.add(frame, self.last_s)
        if self.answer.error is not None:
            self.fail(self.answer.error)
        elif frame.done:
            self.end_s = self.last_s
            self.over.set_result(None)

    def _ended(self) -> None:
        """No more bytes will come: an answer without its end is a failure."""
        if not self._streaming:
            self.fail(_refusal(self._status or 0, bytes(self._refusal)))
            return
        for frame in self._events.end():
            self._take(frame)
        if not self.over.done():
            self.fail("stream:truncated")


def _refusal(status: int, body: bytes) -> str:
    """Why an answer is no stream: its HTTP status, or an error inside a 200 (case S-07)."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    error = document.get("error") if isinstance(document, dict) else None
    if status == OK:
        return "not_a_stream" if error is None else f"in_band:{error_kind(error)}"
    kind = error_kind(document if error is None else error)
    return f"http_{status}" if kind == "unnamed" else f"http_{status}:{kind}"
