"""An httpx transport that hands requests of `api.client` to an application in this process."""

import httpx
from fastapi import FastAPI
from starlette.testclient import TestClient
from typing_extensions import override


class AppTransport(httpx.BaseTransport):
    """No socket is opened; an answer arrives whole, so streams must end by themselves."""

    def __init__(self, app: FastAPI) -> None:
        self._client = TestClient(app, raise_server_exceptions=False)

    @override
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._client.request(
            request.method,
            str(request.url),
            headers=list(request.headers.items()),
            content=request.read(),
        )
        return httpx.Response(
            answer.status_code,
            headers=list(answer.headers.items()),
            content=answer.content,
            request=request,
        )
