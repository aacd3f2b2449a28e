"""The proxy in front of the stub engine of ../shared/cases (cases D-01, D-03, D-04, D-05, D-11)."""

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

import httpx
import openai
import pytest
import uvicorn

from advisor.states import DeploymentState
from api.proxy.app import build
from api.proxy.settings import ProxySettings
from db.identity import Principal, Role
from tests.fakes.directory import PlantedDirectory
from tests.fakes.ports import free_port

KEY = "rt_planted_key"
PROJECT = uuid.uuid4()


def until(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Stub:
    """One stub engine process and its log."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    def events(self) -> list[dict[str, object]]:
        text = self._log.read_text() if self._log.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def saw(self, event: str) -> bool:
        return any(item["event"] == event for item in self.events())


@pytest.fixture
def stub(shared: Path, tmp_path: Path) -> Iterator[Callable[..., Stub]]:
    running: list[Stub] = []

    def start(mode: str, *extra: str) -> Stub:
        port, log = free_port(), tmp_path / f"{mode}.log"
        script = shared / "cases" / "stub_engine.py"
        argv = [sys.executable, str(script), str(port), mode, "--model", "internal-x"]
        process = subprocess.Popen([*argv, "--log", str(log), *extra])
        engine = Stub(process, port, log)
        running.append(engine)
        up = until(lambda: _answers(port))

        assert up, "the stub engine did not start"
        return engine

    yield start
    for engine in running:
        engine.process.kill()
        engine.process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/models").status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def serving(directory: PlantedDirectory, **settings: float) -> Iterator[str]:
    """The real proxy application under uvicorn; yields its address."""
    port = free_port()
    config = ProxySettings(database_url="unused", proxy_port=port, **settings)  # type: ignore[arg-type]
    server = uvicorn.Server(
        uvicorn.Config(build(config, directory), host="127.0.0.1", port=port, log_level="error")
    )
    thread = Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        assert until(lambda: server.started)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def directory() -> PlantedDirectory:
    caller = Principal(
        user_id=uuid.uuid4(), name="ada", role=Role.VIEWER, project_ids=frozenset({PROJECT})
    )
    return PlantedDirectory(sessions=None, key_cache_s=60, callers={KEY: caller})  # type: ignore[arg-type]


def ask(url: str, name: str = "prod", *, stream: bool = True, **extra: object) -> httpx.Response:
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    return httpx.post(
        f"{url}/serve/{name}/v1/chat/completions",
        json={**body, **extra},
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=30,
    )


def frames(response: httpx.Response) -> list[dict[str, object]]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_the_openai_client_streams_through_a_deployment_name(
    stub: Callable[..., Stub], directory: PlantedDirectory
) -> None:
    """Case D-04: clients say `prod`, the engine hears its own name, answers say `prod`."""
    engine = stub("strictname")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        client = openai.OpenAI(base_url=f"{url}/serve/prod/v1", api_key=KEY, max_retries=0)
        listed = [model.id for model in client.models.list()]
        chunks = list(
            client.chat.completions.create(
                model="prod", messages=[{"role": "user", "content": "hi"}], stream=True
            )
        )
        plain = client.chat.completions.create(
            model="prod", messages=[{"role": "user", "content": "hi"}]
        )
        client.close()

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert listed == ["prod"]
    assert text == "alpha beta gamma delta end"
    assert {chunk.model for chunk in chunks} == {"prod"}
    assert (plain.model, plain.choices[0].message.content) == ("prod", "alpha beta")


def test_an_unknown_deployment_is_refused_with_the_known_names(
    directory: PlantedDirectory,
) -> None:
    """Case D-04: 404 in the OpenAI form, naming what the caller may use."""
    directory.serve("prod", PROJECT, port=1)
    directory.serve("foreign", uuid.uuid4(), port=1)
    with serving(directory) as url:
        response = ask(url, "staging")

    message = response.json()["error"]["message"]
    assert response.status_code == 404
    assert "prod" in message
    assert "foreign" not in message


@pytest.mark.parametrize("asked", [True, False])
def test_the_usage_frame_reaches_only_clients_that_asked(
    stub: Callable[..., Stub], directory: PlantedDirectory, *, asked: bool
) -> None:
    """Case D-11: once when asked, never otherwise; the proxy counts 7 in and 5 out either way."""
    engine = stub("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    options = {"include_usage": True} if asked else None
    with serving(directory) as url:
        response = ask(url, stream_options=options)
        figures = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).text

    with_usage = [frame for frame in frames(response) if frame.get("usage")]
    assert len(with_usage) == (1 if asked else 0)
    assert response.text.rstrip().endswith("data: [DONE]")
    assert 'rooftune_proxy_tokens_total{deployment="prod",kind="prompt"} 7.0' in figures
    assert 'rooftune_proxy_tokens_total{deployment="prod",kind="completion"} 5.0' in figures


def test_characters_cut_by_network_chunks_arrive_whole(
    stub: Callable[..., Stub], directory: PlantedDirectory
) -> None:
    """Case D-03: byte for byte, without a replacement mark."""
    engine = stub("utf8split")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        response = ask(url)

    choices = frames(response)[0]["choices"]
    assert isinstance(choices, list)
    assert choices[0]["delta"]["content"] == "hé 你好 🙂 ok"


@pytest.mark.parametrize(
    "mode, stream", [("slowstream", True), ("slowunary", False), ("rolefirst", True)]
)
def test_a_client_that_leaves_cancels_the_engine(
    stub: Callable[..., Stub], directory: PlantedDirectory, mode: str, *, stream: bool
) -> None:
    """Case D-01: in a stream, in a plain answer and before the first word."""
    engine = stub(mode, "--delay", "20")
    directory.serve("prod", PROJECT, port=engine.port)
    body = {"model": "prod", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with serving(directory) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}/serve/prod/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {KEY}"},
                timeout=httpx.Timeout(5, read=0.7) if not stream else httpx.Timeout(5, read=0.15),
            )
        noticed = until(lambda: engine.saw("client_gone"), within_s=3)

    assert noticed
    assert not engine.saw("stream_complete")


def test_nothing_of_an_engine_but_its_model_is_reachable(
    stub: Callable[..., Stub], directory: PlantedDirectory, shared: Path
) -> None:
    """Case D-05: 401 without a key, and control routes are not forwarded with one."""
    engine = stub("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    listed = (shared / "cases" / "d05_routes.txt").read_text().split()
    paths = [item for item in listed if item.startswith("/")]
    key = {"Authorization": f"Bearer {KEY}"}
    with serving(directory) as url, httpx.Client(base_url=url) as client:
        keyless = {client.post(f"/serve/prod{path}", json={}).status_code for path in paths}
        control = {
            client.post(f"/serve/prod{path}", json={}, headers=key).status_code
            for path in ("/sleep", "/reset_prefix_cache", "/collective_rpc", "/v1/../sleep")
        }
        direct = client.post("/reset_prefix_cache", headers=key).status_code

    assert keyless == {401}
    assert control == {404}
    assert direct == 404
    assert not any(event["event"] == "post" for event in engine.events())


def test_a_closed_port_is_answered_at_once(directory: PlantedDirectory) -> None:
    """Case D-08, second half: 503 in about the connect limit, with Retry-After."""
    directory.serve("prod", PROJECT, port=free_port())
    started = time.monotonic()
    with serving(directory) as url:
        response = ask(url)

    assert response.status_code == 503
    assert "retry-after" in response.headers
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("state", [DeploymentState.UNHEALTHY, DeploymentState.STARTING])
def test_a_deployment_that_does_not_serve_is_503_with_retry_after(
    directory: PlantedDirectory, state: DeploymentState
) -> None:
    """Case D-10: refused at once, and readiness says so."""
    directory.serve("prod", PROJECT, port=1, state=state)
    with serving(directory) as url:
        response = ask(url)
        ready = httpx.get(f"{url}/readyz")

    assert (response.status_code, ready.status_code) == (503, 503)
    assert response.headers["retry-after"] == "5"


def test_an_idle_limit_does_not_cut_a_stream_that_moves(
    stub: Callable[..., Stub], directory: PlantedDirectory
) -> None:
    """Case D-08: frames every 0.2 s pass an idle limit of 1 s although the whole takes longer."""
    engine = stub("packed")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory, proxy_idle_timeout_s=0.3) as url:
        response = ask(url)

    assert response.text.rstrip().endswith("data: [DONE]")
    assert engine.saw("stream_complete")
