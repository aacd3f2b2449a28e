"""What the proxy does with a call: the deployment's name and a usage frame, counted either way.

The engine's own model name (a random token) is replaced by the deployment's name in both
directions. Of the client's headers none goes on: its key is the proxy's, not the engine's.
"""

import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx
from starlette.responses import Response

from api.proxy.answers import error_body, openai_error, refusal
from api.proxy.endpoints import Endpoint
from api.proxy.figures import Figures
from api.proxy.frames import (
    DONE,
    FrameSplitter,
    Usage,
    body_of,
    carries_token,
    data_of,
    error_in,
    usage_in,
)
from api.proxy.relay import Headers, Limits, Relay
from api.proxy.settings import ProxySettings

LOG = logging.getLogger(__name__)
BROKEN_OFF = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way: where it goes, what is sent, and what the client asked for."""

    endpoint: Endpoint
    path: str
    body: dict[str, Any]
    wants_usage: bool

    @classmethod
    def of(cls, endpoint: Endpoint, path: str, body: dict[str, Any]) -> "Call":
        """The call for a client's body: engine's model name in, usage frame always asked for."""
        options = body.get("stream_options")
        options = dict(options) if isinstance(options, dict) else {}
        wants_usage = options.get("include_usage") is True
        sent = {**body, "model": endpoint.served_model_name}
        if body.get("stream") is True:
            if not wants_usage:  # an engine heeds it only beside a usage frame, which is ours here
                options.pop("continuous_usage_stats", None)
            sent["stream_options"] = {**options, "include_usage": True}
        return cls(endpoint=endpoint, path=path, body=sent, wants_usage=wants_usage)

    def renamed(self, data: bytes) -> bytes:
        """Engine bytes with the deployment's name as the value of ``model``.

        Quotes inside of texts are escaped, so what looks like the pair is the pair.
        """
        token = json.dumps(self.endpoint.served_model_name).encode()
        name = json.dumps(self.endpoint.name).encode()
        if token == name or token not in data:
            return data
        return re.sub(rb'("model"\s*:\s*)' + re.escape(token), rb"\g<1>" + name, data)


@dataclass(slots=True)
class ServedAnswer:
    """The tap of one call: renames, drops the usage frame nobody asked for, counts."""

    call: Call
    figures: Figures
    began_s: float = field(default_factory=time.monotonic)
    raw: bool = False
    begun: bool = False
    complete: bool = False
    _splitter: FrameSplitter = field(default_factory=FrameSplitter)
    _usage: Usage | None = None
    _usage_sent: bool = False
    _failed: int | None = None
    _first_token_s: float | None = None

    def streams(self, response: httpx.Response) -> bool:
        """Event streams are passed on frame by frame, everything else as a whole."""
        kind = response.headers.get("content-type", "")
        return not response.is_error and kind.startswith("text/event-stream")

    def part(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that `chunk` completes, as the client gets them."""
        for frame in self._splitter.feed(chunk):
            if self._passes(frame):
                yield self.call.renamed(frame)

    def tail(self) -> Iterator[bytes]:
        """What was left; a stream without its end is said to be broken."""
        rest = self._splitter.rest()
        if rest and self._passes(rest):
            yield self.call.renamed(rest)
        if not self.complete and self._failed is None:
            self._failed = BROKEN_OFF
            yield self.broken("it ended the stream too early")

    def _passes(self, frame: bytes) -> bool:
        """Note what a frame says; False for a usage frame that is not for the client (D-11)."""
        data = data_of(frame)
        if data == DONE:
            self.complete = True
            return True
        if self.begun and b'"usage"' not in data and b'"error"' not in data:
            return True  # nothing in it that is counted: not worth parsing
        body = body_of(data)
        if body is None:
            return True
        self._failed = error_in(body) or self._failed
        if not self.begun and carries_token(body):
            self.begun = True
            self._first_token_s = time.monotonic()
        usage = usage_in(body)
        self._usage = usage or self._usage
        if usage is None or body.get("choices") != []:
            return True
        first, self._usage_sent = not self._usage_sent, True
        return self.call.wants_usage and first

    def whole(self, status: int, headers: Headers, content: bytes) -> Response:
        """A plain answer; an error in the OpenAI form, under the deployment's name."""
        if status < HTTPStatus.BAD_REQUEST:
            body = body_of(content) or {}
            self._usage, self._failed = usage_in(body), error_in(body)
            self.complete = True
            content = self.call.renamed(content)
        else:
            content = openai_error(status, content)
            token, name = self.call.endpoint.served_model_name or "", self.call.endpoint.name
            content = content.replace(token.encode(), name.encode()) if token else content
            headers = [item for item in headers if item[0] != "content-type"]
            headers.append(("content-type", "application/json"))
        answer = Response(content, status_code=status)
        for name, value in headers:
            answer.headers.append(name, value)
        return answer

    def broken(self, reason: str) -> bytes:
        """An error frame: the head with its status 200 is gone already."""
        body = error_body(self._said(reason), kind="server_error", code="engine_broke_off")
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    def refused(self, status: int, message: str, *, retry_after_s: int | None = None) -> Response:
        """An error of the proxy's own, with the deployment's name."""
        code = "not_serving" if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        return refusal(
            status, self._said(message), kind="server_error", code=code, retry_after_s=retry_after_s
        )

    def _said(self, reason: str) -> str:
        return f"the engine of deployment {self.call.endpoint.name!r}: {reason}"

    def status(self, status: int) -> int:
        """A failure inside of a stream counts as one (case S-07)."""
        return self._failed or status

    async def ended(self, status: int) -> None:
        """Count it, and log it: figures only, nothing that a client or an engine wrote."""
        usage, name = self._usage, self.call.endpoint.name
        seconds = time.monotonic() - self.began_s
        ttft_s = None if self._first_token_s is None else self._first_token_s - self.began_s
        self.figures.ended(name, status, usage, seconds=seconds, ttft_s=ttft_s)
        LOG.info(
            "deployment=%s path=%s status=%d prompt_tokens=%s completion_tokens=%s ttft_s=%s"
            " seconds=%.3f",
            name,
            self.call.path,
            status,
            "-" if usage is None else usage.prompt_tokens,
            "-" if usage is None else usage.completion_tokens,
            "-" if ttft_s is None else f"{ttft_s:.3f}",
            seconds,
        )


class Forwarder:
    """Holds the HTTP client towards the engines."""

    def __init__(self, settings: ProxySettings, figures: Figures) -> None:
        self._limits = Limits(
            connect_s=settings.proxy_connect_timeout_s,
            first_byte_s=settings.proxy_first_byte_timeout_s,
            idle_s=settings.proxy_idle_timeout_s,
            stall_s=settings.proxy_client_stall_s,
        )
        self._figures = figures
        # No connection is kept: on the loopback a new one costs nothing, a stale one a request.
        self._client = httpx.AsyncClient(
            timeout=self._limits.of_client,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close every connection to an engine."""
        await self._client.aclose()

    def send(self, call: Call) -> Response:
        """The engine's answer, or a 502, 503 or 504 in the OpenAI form."""
        request = self._client.build_request(
            "POST",
            f"{call.endpoint.base_url}{call.path}",
            content=json.dumps(call.body, allow_nan=False).encode(),
            # Compressed frames could not be read without undoing it.
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
        )
        self._figures.started(call.endpoint.name)
        return Relay(self._client, self._limits, request, ServedAnswer(call, self._figures))
