"""A server that streams at a known pace: what a load client measures of it is known beforehand.

Token i (from 0) of a request leaves `ttft_s + i * gap_s` after the request has come. Frames look
like those of vLLM 0.32, role frame, token ids and usage included. It runs as a process of its own
(``python -m tests.fakes.paced_server --help``), prints ``ready PORT``, and says at ``GET /pace``
how late it was itself. Routes: chat and plain completions, streamed or not, and ``/v1/models``.
"""

import argparse
import asyncio
import heapq
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import httptools
import numpy as np
import uvloop
from typing_extensions import override

ROOT = Path(__file__).resolve().parents[2]
MODEL = "paced"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the server does. `tokens` are made where a request names no limit, `packed` a frame.

    `cpu` is the processor that it runs on, None for any.
    """

    ttft_s: float = 0.2
    gap_s: float = 0.02
    tokens: int = 16
    packed: int = 1
    cpu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late the server sent its frames, in seconds, since the last time that one asked.

    `cut` counts streams whose client left before their end.
    """

    frames: int
    late_p50_s: float
    late_p99_s: float
    late_max_s: float
    cpu_share: float
    cut: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """A running server."""

    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://{self.host}:{self.port}"

    def lateness(self) -> Lateness:
        """How it did since the last call."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        with closing(connection):
            connection.request("GET", "/pace")
            return Lateness(**json.loads(connection.getresponse().read()))


@contextmanager
def paced_server(pace: Pace | None = None) -> Iterator[Paced]:
    """The server in a process of its own, on a free loopback port."""
    argv = [sys.executable, "-m", "tests.fakes.paced_server"]
    for field in fields(Pace):
        value = getattr(pace or Pace(), field.name)
        argv += [] if value is None else [f"--{field.name.replace('_', '-')}", str(value)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            words = (process.stdout.readline() if process.stdout else "").split()
            if words[:1] != ["ready"]:
                raise RuntimeError("the paced server did not start")
            yield Paced(host="127.0.0.1", port=int(words[1]), pid=process.pid)
        finally:
            process.terminate()


class _Stream:
    """One answer under way."""

    __slots__ = ("chat", "client", "first_s", "made", "prompt_tokens", "tokens", "usage")

    def __init__(self, client: "_Client", body: dict[str, Any], pace: Pace, *, chat: bool) -> None:
        self.client = client
        self.chat = chat
        self.made = 0
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or pace.tokens
        self.tokens = int(limit)
        self.prompt_tokens = _length(body)
        self.usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self.first_s = time.monotonic() + pace.ttft_s

    def due_s(self, pace: Pace) -> float:
        """When the next frame leaves: when its last token is made."""
        last = min(self.made + pace.packed, self.tokens) - 1
        return self.first_s + last * pace.gap_s


def _length(body: dict[str, Any]) -> int:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return len(prompt)
    texts = [prompt or "", *(str(turn.get("content")) for turn in body.get("messages") or ())]
    return sum(len(str(text).split()) for text in texts)


class _Engine:
    """Sends the frames of all streams in the order in which they are due."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.cut = 0
        self._due: list[tuple[float, int, _Stream]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._late_s: list[float] = []
        self._since_s, self._cpu_s = time.monotonic(), time.process_time()

    def begin(self, stream: _Stream) -> None:
        """The frames of one more stream from now on."""
        self._push(stream)
        self._wait()

    def _push(self, stream: _Stream) -> None:
        self._number += 1
        heapq.heappush(self._due, (stream.due_s(self.pace), self._number, stream))

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            delay_s = max(0.0, self._due[0][0] - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump)

    def _pump(self) -> None:
        self._timer = None
        while self._due and self._due[0][0] <= (now_s := time.monotonic()):
            due_s, _, stream = heapq.heappop(self._due)
            if stream.client.gone:
                self.cut += 1
                continue
            self._late_s.append(now_s - due_s)
            count = min(self.pace.packed, stream.tokens - stream.made)
            stream.made += count
            last = stream.made == stream.tokens
            stream.client.frame(stream, count, last=last)
            if not last:
                self._push(stream)
        self._wait()

    def lateness(self) -> Lateness:
        """Since the last call."""
        late = np.array(self._late_s or [0.0])
        now_s, cpu_s = time.monotonic(), time.process_time()
        found = Lateness(
            frames=len(self._late_s),
            late_p50_s=float(np.quantile(late, 0.5)),
            late_p99_s=float(np.quantile(late, 0.99)),
            late_max_s=float(late.max()),
            cpu_share=(cpu_s - self._cpu_s) / (now_s - self._since_s),
            cut=self.cut,
        )
        self._late_s, self._since_s, self._cpu_s, self.cut = [], now_s, cpu_s, 0
        return found


class _Client(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self, engine: _Engine) -> None:
        self.gone = False
        self._engine = engine
        self._url = b""
        self._body = bytearray()
        self._streamed = True
        self._parser = httptools.HttpRequestParser(self)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True

    def on_url(self, url: bytes) -> None:
        self._url, self._body = url, bytearray()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() != b"POST":
            self._get()
            return
        body = json.loads(bytes(self._body))
        chat = self._url.endswith(b"/chat/completions")
        stream = _Stream(self, body, self._engine.pace, chat=chat)
        self._streamed = bool(body.get("stream"))
        if self._streamed:
            close = b"" if self._parser.should_keep_alive() else b"Connection: close\r\n"
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                b"Transfer-Encoding: chunked\r\n" + close + b"\r\n"
            )
            if chat:
                self._send(_frame(chat=True, role=True))
        self._engine.begin(stream)

    def _get(self) -> None:
        if self._url == b"/pace":
            found = self._engine.lateness()
            self._json({field.name: getattr(found, field.name) for field in fields(found)})
        else:
            self._json({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def _json(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
        )
        self._transport.write(head.encode() + b"\r\n\r\n" + content)
        if not self._parser.should_keep_alive():
            self._transport.close()

    def frame(self, stream: _Stream, count: int, *, last: bool) -> None:
        """The next tokens of a stream; after the last the usage, the end and perhaps a close."""
        usage = {
            "prompt_tokens": stream.prompt_tokens,
            "completion_tokens": stream.made,
            "total_tokens": stream.prompt_tokens + stream.made,
        }
        if not self._streamed:
            if last:
                self._json(_whole(stream, usage))
            return
        event = _frame(chat=stream.chat, first=(stream.made - count) % 10, count=count, last=last)
        if not last:
            self._send(event)
            return
        if stream.usage:
            event += _event([], usage, chat=stream.chat)
        self._send(event + DONE)
        self._transport.write(b"0\r\n\r\n")
        if not self._parser.should_keep_alive():
            self._transport.close()

    def _send(self, event: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


@lru_cache(maxsize=1024)
def _frame(
    *, chat: bool, role: bool = False, first: int = 0, count: int = 0, last: bool = False
) -> bytes:
    """A frame with `count` tokens from number `first` on, or the one that opens a chat.

    Words and ids repeat every 10 tokens.
    """
    text = "" if role else "".join(f" w{place % 10}" for place in range(first, first + count))
    words: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
    if role:
        words["delta"]["role"] = "assistant"
    ids = None if role else [100 + place % 10 for place in range(first, first + count)]
    reason = "length" if last else None
    choice = {"index": 0, **words, "logprobs": None, "finish_reason": reason, "token_ids": ids}
    return _event([choice], None, chat=chat)


def _event(choices: list[dict[str, Any]], usage: dict[str, int] | None, *, chat: bool) -> bytes:
    document: dict[str, Any] = {
        "id": "chatcmpl-" + "0123456789abcdef" * 2,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 1_790_000_000,
        "model": MODEL,
        "choices": choices,
    }
    if usage is not None:
        document["usage"] = usage
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def _whole(stream: _Stream, usage: dict[str, int]) -> dict[str, Any]:
    text = "".join(f" w{place % 10}" for place in range(stream.tokens))
    words: dict[str, Any] = (
        {"message": {"role": "assistant", "content": text}} if stream.chat else {"text": text}
    )
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion" if stream.chat else "text_completion",
        "model": MODEL,
        "choices": [{"index": 0, **words, "finish_reason": "length"}],
        "usage": usage,
    }


async def _serve(pace: Pace, port: int) -> None:
    engine = _Engine(pace)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(engine), "127.0.0.1", port, backlog=4096)
    print("ready", server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - for its parent
    await server.serve_forever()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-s", type=float, default=0.2)
    parser.add_argument("--gap-s", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--packed", type=int, default=1)
    parser.add_argument("--cpu", type=int)
    given = vars(parser.parse_args())
    port = given.pop("port")
    pace = Pace(**given)
    if pace.cpu is not None:
        os.sched_setaffinity(0, {pace.cpu})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(pace, port))


if __name__ == "__main__":
    main()
