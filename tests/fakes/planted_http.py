"""As much HTTP/1.1 as an OpenAI server needs: one request per connection or kept alive, streamed
answers, and notice of a client that left. Standard library."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found"}


class Refused(Exception):
    """A request that gets an OpenAI error body."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Reply:
    """The answer to one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(self, status: int, body: bytes, content_type: str) -> None:
        """An answer of known length."""
        self._head(status, content_type, f"content-length: {len(body)}")
        self._writer.write(body)
        await self._writer.drain()

    async def json(self, status: int, document: Mapping[str, Any]) -> None:
        """A JSON answer."""
        await self.whole(status, json.dumps(document).encode(), "application/json")

    async def begin_events(self) -> None:
        """Open an event stream in chunked transfer coding."""
        self._head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")
        await self._writer.drain()

    async def event(self, document: Mapping[str, Any]) -> None:
        """One server-sent event."""
        await self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    async def end_events(self) -> None:
        """The last event and the end of the stream."""
        await self._chunk(b"data: [DONE]\n\n")
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()

    def _head(self, status: int, content_type: str, length: str) -> None:
        lines = (f"HTTP/1.1 {status} {_REASONS[status]}", f"content-type: {content_type}", length)
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


Answer = Callable[[str, str, bytes, Reply], Awaitable[None]]


class Server:
    """Reads requests off a connection and lets `answer` answer them."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes; a client that leaves cancels its request."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readline():
                method, path, _ = head.decode().split(" ", 2)
                headers = await self._headers(reader)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self._run(method, path, body, (reader, writer))
                if headers.get("connection", "").lower() == "close":
                    break
        writer.close()

    async def _run(
        self,
        method: str,
        path: str,
        body: bytes,
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        reader, writer = connection
        answering = asyncio.ensure_future(self._guarded(method, path, body, Reply(writer)))
        # Nothing more comes from a client that waits, so a readable end of file means it left.
        leaving = asyncio.ensure_future(self._gone(reader))
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if not answering.done():
            answering.cancel()
        await asyncio.wait({answering, leaving})
        if not answering.cancelled() and answering.exception() is not None:
            raise ConnectionError

    @staticmethod
    async def _gone(reader: asyncio.StreamReader) -> None:
        while not reader.at_eof():  # noqa: ASYNC110 - a reader has no event for its end
            await asyncio.sleep(0.02)

    async def _guarded(self, method: str, path: str, body: bytes, reply: Reply) -> None:
        try:
            await self._answer(method, path, body, reply)
        except Refused as refused:
            error = {"message": str(refused), "type": refused.kind, "code": refused.status}
            await reply.json(refused.status, {"error": error})

    @staticmethod
    async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
        headers = {}
        while (line := (await reader.readline()).strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return headers
