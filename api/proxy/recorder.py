"""The recording proxy: passes calls on byte for byte and writes a row for each that was answered.

It stands between a user's own client and a user's own endpoint, so the client's key goes on to the
upstream; it is never stored. Texts go into the sample file and nowhere else.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus

import httpx
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from advisor.errors import InvalidInput
from advisor.traffic.formats.fields import BadField
from advisor.traffic.privacy.redaction import Redactor
from advisor.units import MIB
from api.proxy.answers import refusal
from api.proxy.body import read_body
from api.proxy.frames import DONE, FrameSplitter, body_of, carries_token, data_of, error_in
from api.proxy.relay import CLIENT_CLOSED_REQUEST, Headers, Limits, Relay, end_to_end
from api.proxy.sample import Answered, Moment, SampleFile, row_of

OURS = b"/v1/"
RECORDED = frozenset({"chat/completions", "completions"})
EVERY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
LIMITS = Limits(connect_s=10.0, first_byte_s=600.0, idle_s=120.0, stall_s=60.0)
MAX_BODY_BYTES = 32 * MIB
MAX_ANSWER_BYTES = 32 * MIB
KEEPALIVE_S = 2.0  # below the 5 s after which common servers close: a stale one costs a request
NOT_FORWARDED = frozenset({"host", "content-length", "accept-encoding", "expect"})


@dataclass(slots=True)
class Counts:
    """What became of the requests; `unusable` says by reason what no replay could use."""

    recorded: int = 0
    failed: int = 0
    cancelled: int = 0
    above_limit: int = 0
    not_written: int = 0
    passed_on: int = 0
    unusable: Counter[str] = field(default_factory=Counter)


def openai_base(upstream: str) -> httpx.URL:
    """The base of the OpenAI routes: `/v1` of a bare address, else the path that is given."""
    try:
        url = httpx.URL(upstream)
    except httpx.InvalidURL as error:
        raise InvalidInput("upstream", f"is no URL ({error})") from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise InvalidInput("upstream", "give an address like http://127.0.0.1:8000/v1")
    if url.userinfo or url.query or url.fragment:
        raise InvalidInput("upstream", "holds more than an address; keys come from your client")
    return url.copy_with(path=url.path.rstrip("/") or "/v1")


@dataclass(slots=True)
class RecordedAnswer:
    """The tap of one call: every byte goes on as it came, and is looked at."""

    recorder: "Recorder"
    asked: bytes
    session: str | None
    recording: bool
    started_s: float = field(default_factory=lambda: datetime.now(UTC).timestamp())
    began_s: float = field(default_factory=time.monotonic)
    raw: bool = True
    begun: bool = False
    complete: bool = False
    _events: bool = False
    _size: int = 0
    _content: bytearray = field(default_factory=bytearray)
    _splitter: FrameSplitter = field(default_factory=FrameSplitter)
    _bodies: list[Mapping[str, object]] = field(default_factory=list)
    _failed: int | None = None
    _first_token_s: float | None = None

    def streams(self, response: httpx.Response) -> bool:
        """Always: nothing is held back."""
        kind = response.headers.get("content-type", "")
        self._events = self.recording and kind.startswith("text/event-stream")
        return True

    def part(self, chunk: bytes) -> Iterator[bytes]:
        """The chunk itself."""
        self._size += len(chunk)
        if self._events:
            self._look(chunk)
        else:
            self.begun = True
            if self.recording and self._size <= MAX_ANSWER_BYTES:
                self._content += chunk
        yield chunk

    def _look(self, chunk: bytes) -> None:
        for frame in self._splitter.feed(chunk):
            data = data_of(frame)
            self.complete = self.complete or data == DONE
            body = body_of(data)
            if body is None:
                continue
            self._failed = error_in(body) or self._failed
            if not self.begun and carries_token(body):
                self.begun = True
                self._first_token_s = time.monotonic()
            if self._size <= MAX_ANSWER_BYTES:
                self._bodies.append(body)

    def tail(self) -> Iterator[bytes]:
        """Nothing of ours."""
        return iter(())

    def whole(self, status: int, headers: Headers, content: bytes) -> Response:
        """Not called: everything streams."""
        return Response(content, status_code=status, headers=dict(headers))

    def broken(self, reason: str) -> None:
        """The client's connection breaks as the upstream's did."""
        del reason

    def refused(self, status: int, message: str, *, retry_after_s: int | None = None) -> Response:
        """An error of our own, in the OpenAI form."""
        said = f"rooftune record: the upstream: {message}"
        return refusal(status, said, kind="server_error", retry_after_s=retry_after_s)

    def status(self, status: int) -> int:
        """A failure inside of a stream counts as one (case S-07)."""
        return self._failed or status

    async def ended(self, status: int) -> None:
        """Count the call; write it if it was answered to its end."""
        counts = self.recorder.counts
        if not self.recording:
            counts.passed_on += 1
        elif status == CLIENT_CLOSED_REQUEST:
            counts.cancelled += 1
        elif status != HTTPStatus.OK or not self._answered:
            counts.failed += 1
        elif self._size > MAX_ANSWER_BYTES:
            counts.unusable["response: longer than 32 MiB"] += 1
        else:
            await self._write()

    @property
    def _answered(self) -> bool:
        """Whether the end of the answer was seen."""
        if not self._events:
            body = body_of(bytes(self._content))
            self._bodies = [] if body is None else [body]
            return body is not None and error_in(body) is None and "choices" in body
        return self.complete or Answered.of(self._bodies).finish_reason is not None

    async def _write(self) -> None:
        first_s = self._first_token_s
        moment = Moment(
            started_s=self.started_s,
            latency_s=time.monotonic() - self.began_s,
            ttft_s=None if first_s is None else first_s - self.began_s,
            session=self.session,
        )
        await self.recorder.write(self.asked, Answered.of(self._bodies), moment)


@dataclass(slots=True)
class Recorder:
    """Where to, into which file, and how much of it. `said` is told once when a limit is met."""

    upstream: httpx.URL
    file: SampleFile
    limit: int | None = None
    redactor: Redactor | None = None
    session_header: str = "x-session-id"
    said: Callable[[str], None] = lambda _: None
    counts: Counts = field(default_factory=Counts)
    _full: bool = False

    async def write(self, asked: bytes, answered: Answered, moment: Moment) -> None:
        """Append one row, in order of the answers' ends."""
        if self.limit is not None and self.counts.recorded >= self.limit:
            self._leave_out(f"{self.limit} requests are recorded")
            return
        self.counts.recorded += 1  # before the wait: others must not pass the limit meanwhile
        try:
            line = row_of(body_of(asked) or {}, answered, moment, self.redactor)  # type: ignore[arg-type]
            written = await asyncio.to_thread(self.file.append, line)
        except BadField as bad:
            self.counts.recorded -= 1
            self.counts.unusable[f"{bad.field}: {bad.reason}"] += 1
        except OSError as error:
            self.counts.recorded -= 1
            self.counts.not_written += 1
            self.said(f"a row could not be written: {error.strerror}")
        else:
            if not written:
                self.counts.recorded -= 1
                self._leave_out(f"the file has its {self.file.max_bytes} bytes")

    def _leave_out(self, why: str) -> None:
        self.counts.above_limit += 1
        if not self._full:
            self._full = True
            self.said(f"{why}: calls are passed on, no more are recorded (Ctrl-C ends)")

    def app(self) -> Starlette:
        """The ASGI application."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            limits = httpx.Limits(max_connections=None, keepalive_expiry=KEEPALIVE_S)
            timeout = LIMITS.of_client
            async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as client:
                app.state.client = client
                yield

        return Starlette(
            routes=[
                Route("/v1/{operation:path}", self._pass_on, methods=EVERY_METHOD),
                Route("/{path:path}", _unknown, methods=EVERY_METHOD),
            ],
            lifespan=lifespan,
            # A page in a browser of this machine must not reach the upstream by a name of its own.
            middleware=[
                Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
            ],
        )

    async def _pass_on(self, request: Request) -> Response:
        operation, raw_path = request.path_params["operation"], request.scope["raw_path"]
        if ".." in operation.split("/") or not raw_path.startswith(OURS):
            return await _unknown(request)
        try:
            body = await read_body(request, MAX_BODY_BYTES)
        except ClientDisconnect:
            self.counts.cancelled += 1
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if isinstance(body, Response):
            return body
        recording = request.method == "POST" and operation in RECORDED
        session = request.headers.get(self.session_header)
        tap = RecordedAnswer(recorder=self, asked=body, session=session, recording=recording)
        client: httpx.AsyncClient = request.app.state.client
        return Relay(client, LIMITS, self._request(request, client, body), tap)

    def _request(self, request: Request, client: httpx.AsyncClient, body: bytes) -> httpx.Request:
        """The same request to the upstream: path and query as they were written."""
        path = self.upstream.raw_path + request.scope["raw_path"].removeprefix(OURS.rstrip(b"/"))
        query = request.scope["query_string"]
        url = self.upstream.copy_with(raw_path=path + (b"?" + query if query else b""))
        headers = end_to_end(httpx.Headers(request.headers.raw), without=NOT_FORWARDED)
        headers.append(("accept-encoding", "identity"))  # so that the answer can be read
        return client.build_request(request.method, url, content=body, headers=headers)


async def _unknown(_: Request) -> Response:
    return refusal(
        404,
        "rooftune record passes on the routes below /v1",
        kind="invalid_request_error",
        code="not_found",
    )
