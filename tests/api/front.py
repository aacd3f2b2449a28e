"""The proxy in front of engines: the cases' stub as a process, our own small engine, a client."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

import httpx
import uvicorn
from starlette.types import ASGIApp

from api.proxy.app import build
from api.proxy.endpoints import Directory
from api.proxy.listener import listen
from api.proxy.settings import ProxySettings
from tests.fakes.ports import free_port
from tests.fakes.small_engine import SmallEngine

KEY = "rt_planted_key"
PROJECT = uuid.UUID(int=1)
BEARER = {"Authorization": f"Bearer {KEY}"}
# Runs a command of `rooftune`: exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]


def until(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Engine(Protocol):
    """What the laws ask of an engine, whichever it is."""

    @property
    def port(self) -> int: ...

    def client_gone(self) -> bool: ...

    def stream_complete(self) -> bool: ...

    def generated(self) -> list[dict[str, Any]]: ...

    def stop(self) -> None: ...


class Stub:
    """One stub engine process of ../shared/cases and its log."""

    def __init__(self, script: Path, mode: str, log: Path, *, delay_s: float | None) -> None:
        self.port = free_port()
        self._log = log
        argv = [sys.executable, str(script), str(self.port), mode, "--model", "internal-x"]
        argv += ["--log", str(log)] + ([] if delay_s is None else ["--delay", str(delay_s)])
        self._process = subprocess.Popen(argv)
        if not until(self._answers, within_s=20):
            raise TimeoutError("the stub engine did not start")

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/v1/models").status_code == 200
        except httpx.HTTPError:
            return False

    def events(self, kind: str) -> list[dict[str, Any]]:
        text = self._log.read_text() if self._log.exists() else ""
        found = [json.loads(line) for line in text.splitlines()]
        return [item for item in found if item["event"] == kind]

    def client_gone(self) -> bool:
        return bool(self.events("client_gone"))

    def stream_complete(self) -> bool:
        return bool(self.events("stream_complete"))

    def generated(self) -> list[dict[str, Any]]:
        return self.events("post")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Own:
    """The small engine under the same questions."""

    def __init__(self, mode: str, *, delay_s: float | None) -> None:
        self.engine = SmallEngine(mode=mode, delay_s=delay_s or 0.3).__enter__()

    @property
    def port(self) -> int:
        return self.engine.port

    def client_gone(self) -> bool:
        return self.engine.gone > 0

    def stream_complete(self) -> bool:
        return self.engine.completed > 0

    def generated(self) -> list[dict[str, Any]]:
        posts = [asked for asked in self.engine.asked if asked.method == "POST"]
        auth = [{"auth": "authorization" in asked.headers} for asked in posts]
        return [{**asked.body, **more} for asked, more in zip(posts, auth, strict=True)]

    def stop(self) -> None:
        self.engine.stop()


@contextmanager
def running(app: ASGIApp, *, silence_s: float = 30) -> Iterator[str]:
    """An application behind the listener of our processes; yields its address."""
    listener = listen("127.0.0.1", 0, silence_s=silence_s)
    config = uvicorn.Config(
        app, log_level="error", timeout_graceful_shutdown=2, loop="asyncio", http="h11"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        if not until(lambda: server.started, within_s=20):
            raise TimeoutError("the server did not start")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving(directory: Directory, **settings: float) -> Iterator[str]:
    """The real proxy application; yields its address."""
    config = ProxySettings.model_validate({"database_url": "unused", **settings})
    with running(build(config, directory), silence_s=config.proxy_client_silence_s) as url:
        yield url


def ask(url: str, name: str = "prod", *, stream: bool = True, **extra: object) -> httpx.Response:
    """One chat request to a deployment; `extra` changes its body."""
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    held = {key: value for key, value in {**body, **extra}.items() if value is not ...}
    address = f"{url}/serve/{name}/v1/chat/completions"
    return httpx.post(address, json=held, headers=BEARER, timeout=30)


def leave(url: str, path: str = "/serve/prod/v1/chat/completions", **body: object) -> None:
    """Ask, wait a moment for bytes and go away."""
    asked = {"messages": [{"role": "user", "content": "hi"}], **body}
    timeout = httpx.Timeout(5, read=0.5)
    with httpx.Client(timeout=timeout, headers=BEARER) as client:
        try:
            with client.stream("POST", f"{url}{path}", json=asked) as response:
                for _ in response.iter_raw():
                    time.sleep(0.3)
                    return
        except httpx.ReadTimeout:
            return


def frames(response: httpx.Response) -> list[dict[str, Any]]:
    """The bodies of an event stream without its end mark."""
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def figure(url: str, line: str) -> float | None:
    """The value of one line of the proxy's figures, None when it is not there."""
    text = httpx.get(f"{url}/metrics", headers=BEARER).text
    found = [item.rpartition(" ") for item in text.splitlines() if item.startswith(f"{line} ")]
    return float(found[0][2]) if found else None
