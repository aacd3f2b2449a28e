"""A small OpenAI server in a thread, for what a proxy must withstand: one mode per behaviour.

It plays the modes of the cases' stub engine, so that their laws stay tested without ../shared, and
some that the stub has not: floods, errors of several forms, streams that end too early.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

TEXT = "hé 你好 🙂 ok"
DONE = b"data: [DONE]\n\n"
PLAIN = "text/plain"
JSON = "application/json"
Stream = AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes

    @property
    def wants_usage(self) -> bool:
        """Whether a usage frame was asked for."""
        options = self.body.get("stream_options") or {}
        return options.get("include_usage") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """An answer that is no completion."""

    status: int
    content_type: str
    content: bytes


ERRORS = {
    "error_openai": Error(
        status=400,
        content_type=JSON,
        content=b'{"error": {"message": "The model `internal-x` is too short", "type":'
        b' "BadRequestError", "param": "input", "code": 400}}',
    ),
    "error_plain": Error(status=500, content_type=PLAIN, content=b"Internal Server Error"),
    "error_detail": Error(status=422, content_type=JSON, content=b'{"detail": "no messages"}'),
    "error_flat": Error(
        status=404,
        content_type=JSON,
        content=b'{"object": "error", "message": "no such model", "type": "NotFoundError"}',
    ),
}


def usage(prompt: int, completion: int) -> dict[str, int]:
    """The usage object of an answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


@dataclass
class SmallEngine:
    """Listens on a free loopback port while it is a context."""

    mode: str = "ok"
    model: str = "internal-x"
    delay_s: float = 0.3
    asked: list[Asked] = field(default_factory=list)
    gone: int = 0
    completed: int = 0
    at_once: int = 0
    most_at_once: int = 0
    port: int = 0

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Die at once, with the connections; does nothing the second time."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._handle, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stopped.wait()
        server.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            asked = await _read(reader)
            self.asked.append(asked)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            answering = asyncio.ensure_future(self._answer(asked, writer))
            leaving = asyncio.ensure_future(reader.read(1))
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
            self.at_once -= 1
            if answering.done() and answering.exception() is None:
                self.completed += 1
            else:
                self.gone += 1
                answering.cancel()
        writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        error = self._refusal(asked)
        if asked.path == "/v1/models":
            card = {"object": "list", "data": [{"id": self.model, "object": "model"}]}
            await _whole(writer, 200, JSON, json.dumps(card).encode())
        elif error is not None:
            await _whole(writer, error.status, error.content_type, error.content)
        elif asked.body.get("stream"):
            head = "content-type: text/event-stream\r\nx-engine: small\r\nkeep-alive: timeout=5"
            writer.write(_head(200, head))
            async for part in self._stream(asked):
                writer.write(part)
                await writer.drain()
        else:
            await asyncio.sleep(20 if self.mode == "slowunary" else 0)
            await _whole(writer, 200, JSON, json.dumps(self._plain(asked)).encode())

    def _refusal(self, asked: Asked) -> Error | None:
        if self.mode == "strictname" and asked.body.get("model") != self.model:
            return Error(status=404, content_type=JSON, content=b'{"error": {"message": "who?"}}')
        return ERRORS.get(self.mode)

    def _plain(self, asked: Asked) -> dict[str, Any]:
        message = {"role": "assistant", "content": "alpha beta"}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        chat = "chat" in asked.path
        choice |= {"message": message} if chat else {"text": "alpha beta"}
        return {"id": "s", "model": self.model, "choices": [choice], "usage": usage(7, 2)}

    async def _stream(self, asked: Asked) -> Stream:
        modes: dict[str, Callable[[], Stream]] = {
            "rolefirst": self._role_first,
            "slowstream": self._slow,
            "trickle": self._slow,
            "packed": self._packed,
            "utf8split": self._split,
            "flood": self._flood,
            "inband": self._in_band,
            "cut": self._cut,
            "silent": self._silent,
        }
        counts = {"packed": 16, "rolefirst": 3, "utf8split": 8}
        async for part in modes.get(self.mode, self._words)():
            yield part
        if self.mode in {"cut", "inband", "utf8split"}:
            return
        if asked.wants_usage:
            yield self._frame(usage=usage(7, counts.get(self.mode, 5)))
        yield DONE

    def _frame(self, text: str | None = None, **more: object) -> bytes:
        delta: dict[str, object] = {} if text is None else {"content": text}
        choices = [] if "usage" in more else [{"index": 0, "delta": delta, "finish_reason": None}]
        if more.pop("role", False):
            delta |= {"role": "assistant", "content": ""}
        body = {"id": "s", "object": "chat.completion.chunk", "model": self.model}
        held = {**body, "choices": choices, **more}
        return b"data: " + json.dumps(held, ensure_ascii=False).encode() + b"\n\n"

    async def _words(self) -> Stream:
        for word in ("alpha ", "beta ", "gamma ", "delta ", "end"):
            yield self._frame(word)
            await asyncio.sleep(0.02)

    async def _role_first(self) -> Stream:
        yield self._frame(role=True)
        await asyncio.sleep(self.delay_s)
        for word in ("one ", "two ", "three"):
            yield self._frame(word)

    async def _slow(self) -> Stream:
        for number in range(100 if self.mode == "slowstream" else 5):
            yield self._frame(f"w{number} ")
            await asyncio.sleep(0.2)

    async def _packed(self) -> Stream:
        for count in (1, 4, 4, 4, 3):
            yield self._frame("tok " * count)

    async def _split(self) -> Stream:
        data = self._frame(TEXT) + self._frame(usage=usage(7, 8)) + DONE
        for start in range(0, len(data), 7):
            yield data[start : start + 7]
            await asyncio.sleep(0.005)

    async def _flood(self) -> Stream:
        for _ in range(2000):
            yield self._frame("x" * 100_000)

    async def _in_band(self) -> Stream:
        yield self._frame("alpha ")
        yield b'data: {"error": {"message": "out of memory", "type": "server", "code": 503}}\n\n'
        yield DONE

    async def _cut(self) -> Stream:
        yield self._frame("alpha ")

    async def _silent(self) -> Stream:
        yield self._frame("alpha ")
        await asyncio.sleep(20)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {
        name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])
    }
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    body = json.loads(raw or b"{}")
    return Asked(method=method, path=path, headers=headers, body=body, raw=raw)


async def _whole(writer: asyncio.StreamWriter, status: int, kind: str, content: bytes) -> None:
    fields = f"content-type: {kind}\r\ncontent-length: {len(content)}"
    writer.write(_head(status, fields) + content)
    await writer.drain()


def _head(status: int, fields: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\n{fields}\r\nconnection: close\r\n\r\n".encode()
