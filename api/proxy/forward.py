"""Sends one request to the engine behind a deployment and the answer back.

The engine's own model name (a random token) is replaced by the deployment's name in both
directions. A client that leaves cancels the upstream call, before the first byte too.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.proxy.answers import refusal
from api.proxy.endpoints import Endpoint
from api.proxy.figures import Figures
from api.proxy.frames import FrameSplitter, Usage, usage_in, usage_of
from api.proxy.settings import ProxySettings

HOP_BY_HOP = frozenset({"content-length", "transfer-encoding", "connection", "date", "server"})
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way: where it goes, what is sent, and what the client asked for."""

    endpoint: Endpoint
    path: str
    body: dict[str, Any]
    streaming: bool
    wants_usage: bool

    @classmethod
    def of(cls, endpoint: Endpoint, path: str, body: dict[str, Any]) -> "Call":
        """The call for a client's body: engine's model name in, usage frame always asked for."""
        streaming = body.get("stream") is True
        options = body.get("stream_options")
        options = dict(options) if isinstance(options, dict) else {}
        wants_usage = options.get("include_usage") is True
        sent = {**body, "model": endpoint.served_model_name}
        if streaming:
            sent["stream_options"] = {**options, "include_usage": True}
        return cls(
            endpoint=endpoint, path=path, body=sent, streaming=streaming, wants_usage=wants_usage
        )

    def renamed(self, data: bytes) -> bytes:
        """Engine bytes with the deployment's name in place of the engine's token."""
        token = self.endpoint.served_model_name or ""
        return data.replace(json.dumps(token).encode(), json.dumps(self.endpoint.name).encode())


class Forwarder:
    """Holds the connections to the engines."""

    def __init__(self, settings: ProxySettings, figures: Figures) -> None:
        self._settings = settings
        self._figures = figures
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(
                connect=settings.proxy_connect_timeout_s,
                read=None,  # first byte and idle limits are kept here, they differ
                write=settings.proxy_idle_timeout_s,
                pool=None,
            ),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close every connection to an engine."""
        await self._client.aclose()

    async def send(self, request: Request, call: Call) -> Response:
        """The engine's answer, or a 502, 503 or 504 in the OpenAI form."""
        self._figures.started(call.endpoint.name)
        upstream = asyncio.ensure_future(self._open(call))
        gone = asyncio.ensure_future(_client_gone(request))
        try:
            await asyncio.wait(
                {upstream, gone},
                timeout=self._settings.proxy_first_byte_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if upstream.done():
                return await self._answer(call, upstream.result())
            if gone.done():
                return self._refused(call, CLIENT_CLOSED_REQUEST, "the client left")
            return self._refused(call, 504, "the engine did not begin to answer in time")
        except httpx.ConnectError:
            return self._refused(call, 503, "the engine is not reachable", retry_after_s=2)
        except httpx.HTTPError as error:
            return self._refused(call, 502, f"the engine broke off ({type(error).__name__})")
        finally:
            await _cancelled(upstream, gone)

    async def _open(self, call: Call) -> httpx.Response:
        """Response with its head read; a plain answer has its body read too."""
        url = f"{call.endpoint.base_url}{call.path}"
        upstream = self._client.build_request("POST", url, json=call.body)
        response = await self._client.send(upstream, stream=True)
        if not call.streaming or response.is_error:
            try:
                await response.aread()
            finally:
                await response.aclose()
        return response

    async def _answer(self, call: Call, response: httpx.Response) -> Response:
        headers = {k: v for k, v in response.headers.items() if k.lower() not in HOP_BY_HOP}
        headers.pop("content-encoding", None)
        if call.streaming and not response.is_error:
            return StreamingResponse(
                self._stream(call, response), status_code=response.status_code, headers=headers
            )
        content = call.renamed(response.content)
        usage = _usage_in_bytes(content)
        self._figures.ended(call.endpoint.name, response.status_code, usage)
        return Response(content, status_code=response.status_code, headers=headers)

    async def _stream(self, call: Call, response: httpx.Response) -> AsyncIterator[bytes]:
        splitter, usage, status = FrameSplitter(), None, CLIENT_CLOSED_REQUEST
        try:
            async for chunk in _within(response.aiter_raw(), self._settings.proxy_idle_timeout_s):
                for frame in splitter.feed(chunk):
                    seen, usage_only = usage_of(frame)
                    usage = seen or usage
                    if usage_only and not call.wants_usage:
                        continue
                    yield call.renamed(frame)
            if rest := splitter.rest():
                yield call.renamed(rest)
            status = response.status_code
        except (httpx.HTTPError, TimeoutError) as error:
            status = 502
            yield _broken_off(type(error).__name__)
        finally:
            await response.aclose()
            self._figures.ended(call.endpoint.name, status, usage)

    def _refused(
        self, call: Call, status: int, message: str, retry_after_s: int | None = None
    ) -> JSONResponse:
        self._figures.ended(call.endpoint.name, status, None)
        return refusal(
            status,
            f"deployment {call.endpoint.name!r}: {message}",
            kind="server_error",
            retry_after_s=retry_after_s,
        )


async def _within(chunks: AsyncIterator[bytes], idle_s: float) -> AsyncIterator[bytes]:
    """`chunks`, with a limit on the wait for each."""
    while True:
        try:
            yield await asyncio.wait_for(anext(chunks), idle_s)
        except StopAsyncIteration:
            return


async def _client_gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel what is still running; a response opened too late is closed by its own task."""
    pending = [task for task in tasks if not task.done()]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def _usage_in_bytes(content: bytes) -> Usage | None:
    try:
        return usage_in(json.loads(content))
    except ValueError:
        return None


def _broken_off(reason: str) -> bytes:
    error = {"message": f"the engine broke off ({reason})", "type": "server_error", "code": None}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
