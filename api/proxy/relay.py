"""One call to an upstream and its answer back: limits, a client that leaves, exactly one ending.

Streamed and plain answers take the same way, so that there is one place in which a client that
leaves ends the upstream call, before the first byte too (case D-01).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, Protocol

import httpx
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

CLIENT_CLOSED_REQUEST = 499
# RFC 9110, 7.6.1: they end at each hop. The length is counted anew, date and server are ours.
HOP_BY_HOP = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "date", "server",
    }
)  # fmt: skip

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each wait has a limit of its own; there is none on the whole (case D-08).

    `first_byte_s` runs from the request to the first token of a stream, or to the head of a plain
    answer, which an engine sends when it is finished. `idle_s` is the longest silence after that,
    `stall_s` how long a client may read nothing of what is there for it.
    """

    connect_s: float
    first_byte_s: float
    idle_s: float
    stall_s: float

    @property
    def of_client(self) -> httpx.Timeout:
        """What the HTTP client keeps; first byte and idle limits differ and are kept here."""
        return httpx.Timeout(connect=self.connect_s, read=None, write=self.idle_s, pool=None)


class Tap(Protocol):
    """What is done with an answer on its way: look at it, change it, count it."""

    raw: bool
    """Whether bytes are taken as they came, in whatever content coding."""
    begun: bool
    """Whether the first token, or the first byte of a plain answer, was seen."""
    complete: bool
    """Whether the client has the whole answer, though the connection may still be open."""

    def streams(self, response: httpx.Response) -> bool:
        """Whether the answer is passed on in parts."""

    def part(self, chunk: bytes) -> Iterable[bytes]:
        """What the client gets for these bytes of a stream."""

    def tail(self) -> Iterable[bytes]:
        """What the client gets at the end of the stream."""

    def whole(self, status: int, headers: Headers, content: bytes) -> Response:
        """The answer to the client for one that does not stream."""

    def broken(self, reason: str) -> bytes | None:
        """The last words in a stream that broke; None lets the connection break too."""

    def refused(self, status: int, message: str, *, retry_after_s: int | None = None) -> Response:
        """The answer when there is none of the upstream's."""

    def status(self, status: int) -> int:
        """The status to count for an answer that was passed on to its end."""

    async def ended(self, status: int) -> None:
        """Called exactly once, when nothing more happens."""


class _Wait(Enum):
    UPSTREAM = auto()
    CLIENT = auto()


def end_to_end(headers: httpx.Headers, *, without: frozenset[str] = frozenset()) -> Headers:
    """Headers that go beyond this hop, in their order and with repeated names."""
    named = {part.strip().lower() for part in headers.get("connection", "").split(",")}
    dropped = HOP_BY_HOP | named | without
    return [(name, value) for name, value in headers.multi_items() if name.lower() not in dropped]


class Relay(Response):
    """The answer to a client that is read from an upstream while it is sent."""

    def __init__(
        self, client: httpx.AsyncClient, limits: Limits, request: httpx.Request, tap: Tap
    ) -> None:
        super().__init__()
        self._client = client
        self._limits = limits
        self._request = request
        self._tap = tap
        self._started = False
        self._wait = _Wait.UPSTREAM
        self._clock = asyncio.timeout(None)
        self._first_deadline = 0.0

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Work until the answer is over or the client has left; then tell the tap."""
        working = asyncio.ensure_future(self._work(scope, receive, send))
        leaving = asyncio.ensure_future(_left(receive))
        status = CLIENT_CLOSED_REQUEST
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                status = working.result()
            elif self._tap.complete:  # it had what it came for and did not wait for the end
                status = self._tap.status(HTTPStatus.OK)
        finally:
            await _cancelled(working, leaving)
            await self._tap.ended(status)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> int:
        """The status to count; errors of the upstream become an answer."""
        status, retry_after_s = 0, None
        loop = asyncio.get_running_loop()
        self._first_deadline = loop.time() + self._limits.first_byte_s
        try:
            async with asyncio.timeout_at(self._first_deadline) as self._clock:
                return await self._exchange(scope, receive, send)
        except TimeoutError:
            if self._wait is _Wait.CLIENT:
                return CLIENT_CLOSED_REQUEST
            waited = "begin to answer" if not self._started else "go on"
            status, reason = 504, f"it did not {waited} in time"
        except (httpx.ConnectError, httpx.ConnectTimeout):
            status, reason, retry_after_s = 503, "it is not reachable", 2
        except httpx.HTTPError as error:
            status, reason = 502, f"it broke off ({type(error).__name__})"
        if self._started and self._tap.complete:  # only the connection broke, after the answer
            await self._give(send, _part(b"", more=False))
            return self._tap.status(HTTPStatus.OK)
        if self._started:
            await self._break(reason, send)
        else:
            refusal = self._tap.refused(status, reason, retry_after_s=retry_after_s)
            await refusal(scope, receive, send)
        return status

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> int:
        response = await self._client.send(self._request, stream=True)
        chunks = response.aiter_raw() if self._tap.raw else response.aiter_bytes()
        try:
            if self._tap.streams(response):
                return await self._stream(response, chunks, send)
            content = bytearray()
            self._upstream_waits(begun=True)
            async for chunk in chunks:
                content += chunk
                self._upstream_waits(begun=True)
        finally:
            await response.aclose()
        coded = frozenset({"content-length", "content-encoding"})
        headers = end_to_end(response.headers, without=coded)
        answer = self._tap.whole(response.status_code, headers, bytes(content))
        self._client_waits()
        await answer(scope, receive, send)
        return self._tap.status(answer.status_code)

    async def _stream(
        self, response: httpx.Response, chunks: AsyncIterator[bytes], send: Send
    ) -> int:
        # Of raw bytes the length stays; a stream of frames may become shorter or longer.
        coded = () if self._tap.raw else ("content-length", "content-encoding")
        headers = end_to_end(response.headers, without=frozenset(coded))
        self._started = True
        await self._give(send, _start(response.status_code, headers))
        async for chunk in chunks:
            if part := b"".join(self._tap.part(chunk)):
                await self._give(send, _part(part))
            else:
                self._upstream_waits(begun=self._tap.begun)
        if tail := b"".join(self._tap.tail()):
            await self._give(send, _part(tail))
        await self._give(send, _part(b"", more=False))
        return self._tap.status(response.status_code)

    async def _give(self, send: Send, message: dict[str, Any]) -> None:
        self._client_waits()
        await send(message)
        self._upstream_waits(begun=self._tap.begun)

    async def _break(self, reason: str, send: Send) -> None:
        """Say inside the stream what happened; without that its end is missing, and says it."""
        words = self._tap.broken(reason)
        if words is None:
            return
        try:
            async with asyncio.timeout(self._limits.stall_s):
                await send(_part(words, more=False))
        except TimeoutError:
            return

    def _client_waits(self) -> None:
        self._wait = _Wait.CLIENT
        self._clock.reschedule(asyncio.get_running_loop().time() + self._limits.stall_s)

    def _upstream_waits(self, *, begun: bool) -> None:
        self._wait = _Wait.UPSTREAM
        idle_deadline = asyncio.get_running_loop().time() + self._limits.idle_s
        self._clock.reschedule(idle_deadline if begun else self._first_deadline)


def _start(status: int, headers: Headers) -> dict[str, Any]:
    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": encoded}


def _part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def _left(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
