"""What the proxy withstands: errors, limits, clients that stall, many streams, odd bodies."""

import asyncio
import json
import logging
import socket
import time
import uuid

import httpx
import pytest

from api.proxy.listener import PROBES, listen
from tests.api.front import BEARER, KEY, PROJECT, ask, figure, frames, serving, until
from tests.fakes.directory import PlantedDirectory
from tests.fakes.small_engine import SmallEngine

CHAT = "/serve/prod/v1/chat/completions"


@pytest.mark.parametrize(
    "mode, status, kind, message",
    [
        ("error_openai", 400, "BadRequestError", "The model `prod` is too short"),
        ("error_plain", 500, "server_error", "the engine answered 500"),
        ("error_detail", 422, "invalid_request_error", "no messages"),
        ("error_flat", 404, "NotFoundError", "no such model"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_errors_of_an_engine_arrive_in_the_openai_form(
    directory: PlantedDirectory,
    *,
    mode: str,
    status: int,
    kind: str,
    message: str,
    stream: bool,
) -> None:
    """Whatever form the engine has; its own name for the model stays inside."""
    with SmallEngine(mode=mode) as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        response = ask(url, stream=stream)

    error = response.json()["error"]
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert (error["type"], error["message"]) == (kind, message)
    assert {"param", "code"} <= error.keys()


def test_a_stream_that_ends_too_early_says_so_and_is_counted(directory: PlantedDirectory) -> None:
    """An engine that dies closes its connections: without `[DONE]` the answer is not whole."""
    with SmallEngine(mode="cut") as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        response = ask(url)
        counted = figure(url, 'rooftune_proxy_requests_total{deployment="prod",status="502"}')

    *_, last = frames(response)
    assert last["error"]["code"] == "engine_broke_off"
    assert "[DONE]" not in response.text
    assert counted == 1


def test_an_error_inside_a_stream_is_passed_on_and_counted_as_one(
    directory: PlantedDirectory,
) -> None:
    """Case S-07 at the proxy: the head said 200, the figures do not."""
    with SmallEngine(mode="inband") as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        response = ask(url)
        counted = figure(url, 'rooftune_proxy_requests_total{deployment="prod",status="503"}')

    assert frames(response)[-1]["error"]["message"] == "out of memory"
    assert counted == 1


def test_silence_after_the_first_token_meets_the_idle_limit(directory: PlantedDirectory) -> None:
    """Case D-08: said inside the stream, and the engine is let go."""
    with SmallEngine(mode="silent") as engine:
        directory.serve("prod", PROJECT, port=engine.port)
        with serving(directory, proxy_idle_timeout_s=0.4) as url:
            response = ask(url)
        gone = until(lambda: engine.gone == 1)

    assert "did not go on in time" in frames(response)[-1]["error"]["message"]
    assert gone


@pytest.mark.parametrize("stream", [True, False])
def test_the_wait_for_the_first_token_has_its_own_limit(
    directory: PlantedDirectory, *, stream: bool
) -> None:
    """Case D-08: neither the idle limit nor the role-only frame ends it; the limit itself does."""
    mode = "rolefirst" if stream else "slowunary"
    with SmallEngine(mode=mode, delay_s=0.8) as engine:
        directory.serve("prod", PROJECT, port=engine.port)
        with serving(directory, proxy_idle_timeout_s=0.3) as url:
            patient = ask(url, stream=stream).text if stream else "[DONE]"
        with serving(directory, proxy_first_byte_timeout_s=0.4) as url:
            hasty = ask(url, stream=stream)

    assert "[DONE]" in patient
    assert "in time" in hasty.text
    assert hasty.status_code == (200 if stream else 504)


def test_a_client_that_stops_reading_lets_the_engine_go(directory: PlantedDirectory) -> None:
    """Case D-01 without a goodbye: nobody reads, nothing is closed, and the engine is freed."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with SmallEngine(mode="flood") as engine, socket.socket() as client:
        directory.serve("prod", PROJECT, port=engine.port)
        with serving(directory, proxy_client_stall_s=0.5) as url:
            client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            client.sendall(head.encode() + body)
            gone = until(lambda: engine.gone == 1)
            client.close()
            time.sleep(0.2)  # the server sees the end of the connection before it ends itself

    assert gone
    assert engine.completed == 0


def test_connections_of_clients_that_vanish_are_found_out_by_the_kernel() -> None:
    """Case D-01: a peer that answers nothing is gone after the time of silence, data or not."""
    with listen("127.0.0.1", 0, silence_s=12) as listener, socket.socket() as client:
        listener.listen()
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            alive = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            first_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            every_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            unread_ms = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    assert alive == 1
    assert first_s + PROBES * every_s == 12
    assert unread_ms == 12_000


def test_a_hundred_streams_do_not_stall_each_other(directory: PlantedDirectory) -> None:
    """All of them are in the engine at one time, on one key that was not seen before."""

    async def all_of_them(url: str) -> list[str]:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=BEARER, timeout=30, limits=limits) as client:
            asks = [client.post(f"{url}{CHAT}", json=body) for _ in range(100)]
            return [response.text for response in await asyncio.gather(*asks)]

    with SmallEngine(mode="trickle") as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        texts = asyncio.run(all_of_them(url))

    assert all(text.rstrip().endswith("[DONE]") and "w4 " in text for text in texts)
    assert engine.most_at_once == 100


def test_headers_end_where_they_should(directory: PlantedDirectory) -> None:
    """Hop-by-hop ones at each hop; of the client's own none goes to the engine."""
    headers = {**BEARER, "X-Secret": "s3cret", "Cookie": "a=b", "TE": "trailers"}
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with SmallEngine() as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        response = httpx.post(f"{url}{CHAT}", json=body, headers=headers)

    (asked,) = [item for item in engine.asked if item.method == "POST"]
    assert not {"authorization", "x-secret", "cookie", "te"} & asked.headers.keys()
    assert asked.headers["accept-encoding"] == "identity"
    assert response.headers["x-engine"] == "small"
    assert "keep-alive" not in response.headers


@pytest.mark.parametrize("chunked", [True, False])
def test_a_body_above_the_limit_is_refused(directory: PlantedDirectory, *, chunked: bool) -> None:
    """Whether its length is told or not; the engine sees nothing of it."""
    content = b'{"prompt": "' + b"x" * 5000 + b'"}'
    with SmallEngine() as engine, serving(directory, proxy_max_body_bytes=1000) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        sent = iter([content[:900], content[900:]]) if chunked else content
        response = httpx.post(f"{url}{CHAT}", content=sent, headers=BEARER)

    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"
    assert not any(asked.method == "POST" for asked in engine.asked)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[1]", b"{", b'"x"', b'{"temperature": NaN}', b'{"temperature": 1e999}', b"\xff",
        b'{"a": ' + b"[" * 200_000,
    ],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_refused(
    directory: PlantedDirectory, content: bytes
) -> None:
    """400, never 500."""
    directory.serve("prod", PROJECT, port=1)
    with serving(directory) as url:
        response = httpx.post(f"{url}{CHAT}", content=content, headers=BEARER)

    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_half_a_character_in_a_body_is_the_engines_to_judge(directory: PlantedDirectory) -> None:
    """A lone surrogate is valid JSON; it arrives as it was sent."""
    content = b'{"messages": [{"role": "user", "content": "\\ud800 \xe4\xbd\xa0"}]}'
    with SmallEngine() as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port)
        response = httpx.post(f"{url}{CHAT}", content=content, headers=BEARER)

    (asked,) = [item for item in engine.asked if item.method == "POST"]
    assert response.status_code == 200
    assert asked.body["messages"][0]["content"] == "\ud800 你"


def test_a_text_that_is_the_engines_name_is_not_renamed(directory: PlantedDirectory) -> None:
    """Case D-04: only the value of `model` is replaced, not a word of the answer."""
    with SmallEngine(model="alpha ") as engine, serving(directory) as url:
        directory.serve("prod", PROJECT, port=engine.port, model="alpha ")
        bodies = frames(ask(url))

    assert bodies[0]["choices"][0]["delta"]["content"] == "alpha "
    assert {body["model"] for body in bodies} == {"prod"}


def test_figures_and_the_log_tell_nothing_of_texts_keys_or_other_projects(
    directory: PlantedDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """Case D-05: the log line of a request has figures only; other projects' labels stay theirs."""
    with (
        SmallEngine() as engine,
        serving(directory) as url,
        caplog.at_level(logging.INFO, "api.proxy"),
    ):
        directory.serve("prod", PROJECT, port=engine.port)
        ask(url, messages=[{"role": "user", "content": "SECRETWORD"}])
        directory.serve("prod", PROJECT, port=engine.port)
        seen = httpx.get(f"{url}/metrics", headers=BEARER).text
        directory.serve("prod", uuid.uuid4(), port=engine.port)
        unseen = httpx.get(f"{url}/metrics", headers=BEARER).text

    assert 'deployment="prod"' in seen
    assert "prod" not in unseen
    assert "prompt_tokens=7 completion_tokens=5" in caplog.text
    assert not any(word in caplog.text + seen for word in ("SECRETWORD", "alpha", KEY))
