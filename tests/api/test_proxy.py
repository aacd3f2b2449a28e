"""The proxy in front of engines (cases D-01, D-03, D-04, D-05, D-08, D-10, D-11)."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from advisor.states import DeploymentState
from tests.api.front import (
    BEARER,
    PROJECT,
    Engine,
    Stub,
    ask,
    figure,
    frames,
    leave,
    serving,
    until,
)
from tests.fakes.directory import PlantedDirectory
from tests.fakes.ports import free_port
from tests.fakes.small_engine import TEXT

StartEngine = Callable[..., Engine]


@pytest.mark.parametrize(
    "mode, stream", [("slowstream", True), ("slowunary", False), ("rolefirst", True)]
)
def test_a_client_that_leaves_cancels_the_engine(
    engine_of: StartEngine, directory: PlantedDirectory, mode: str, *, stream: bool
) -> None:
    """Case D-01: in a stream, in a plain answer and before the first word, within a second."""
    engine = engine_of(mode, delay_s=20)
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        leave(url, stream=stream)
        left_s = time.monotonic()
        noticed = until(engine.client_gone)
        noticed_s = time.monotonic() - left_s
        counted = until(
            lambda: figure(url, 'rooftune_proxy_requests_in_flight{deployment="prod"}') == 0
        )
        as_left = figure(url, 'rooftune_proxy_requests_total{deployment="prod",status="499"}')

    assert noticed
    assert noticed_s < 1.5
    assert not engine.stream_complete()
    assert (counted, as_left) == (True, 1)


def test_characters_cut_by_network_chunks_arrive_whole(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Case D-03: byte for byte, without a replacement mark."""
    engine = engine_of("utf8split")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        response = ask(url)

    assert frames(response)[0]["choices"][0]["delta"]["content"] == TEXT
    assert TEXT.encode() in response.content
    assert "\N{REPLACEMENT CHARACTER}" not in response.text


def test_the_openai_client_streams_through_a_deployment_name(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Case D-04: clients say `prod`, the engine hears its own name, answers say `prod`."""
    engine = engine_of("strictname")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        client = openai.OpenAI(base_url=f"{url}/serve/prod/v1", api_key="rt_planted_key")
        listed = [model.id for model in client.models.list()]
        card = client.models.retrieve("prod")
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
    assert (listed, card.id) == (["prod"], "prod")
    assert text == "alpha beta gamma delta end"
    assert {chunk.model for chunk in chunks} == {"prod"}
    assert (plain.model, plain.choices[0].message.content) == ("prod", "alpha beta")


def test_the_alias_survives_a_switch_and_may_be_left_out(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Case D-04: the same name before and after; no model and an empty one mean the deployment's;
    another is refused with the valid name, and the engine never hears of it."""
    first, second = engine_of("strictname"), engine_of("strictname")
    with serving(directory) as url:
        directory.serve("prod", PROJECT, port=first.port)
        before = ask(url, stream=False)
        directory.serve("prod", PROJECT, port=second.port)
        named = [ask(url, stream=False, model=model) for model in ("prod", "", None, ...)]
        other = ask(url, stream=False, model="internal-x")

    assert [response.status_code for response in (before, *named)] == [200] * 5
    assert {response.json()["model"] for response in (before, *named)} == {"prod"}
    assert other.status_code == 404
    assert "valid names: prod" in other.json()["error"]["message"]
    assert len(first.generated()) == 1
    assert len(second.generated()) == 4


def test_an_unknown_deployment_is_refused_with_the_known_names(
    directory: PlantedDirectory,
) -> None:
    """Case D-04: 404 in the OpenAI form, naming what the caller may use."""
    directory.serve("prod", PROJECT, port=1)
    directory.serve("foreign", uuid.uuid4(), port=1)
    with serving(directory) as url:
        response = ask(url, "staging")
        foreign = ask(url, "foreign")

    message = response.json()["error"]["message"]
    assert (response.status_code, foreign.status_code) == (404, 404)
    assert "prod" in message
    assert "foreign" not in message


ROUTES = (
    "GET /metrics", "GET /readyz", "GET /v1/models", "POST /v1/chat/completions",
    "POST /invocations", "POST /sleep", "POST /reset_prefix_cache", "POST /collective_rpc",
    "GET /openapi.json", "GET /docs", "GET /health", "GET /healthz/", "PROPFIND /metrics",
)  # fmt: skip


def test_nothing_but_the_liveness_route_is_reachable_without_a_key(
    engine_of: StartEngine, directory: PlantedDirectory, request: pytest.FixtureRequest
) -> None:
    """Case D-05: 401 at the root, under a deployment and under its `/v1`, with any method; with a
    key control routes are not forwarded either."""
    engine = engine_of("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    routes = [route.split() for route in ROUTES]
    if "cases" in request.node.callspec.id:
        shared: Path = request.getfixturevalue("shared")
        lines = (shared / "cases" / "d05_routes.txt").read_text().splitlines()
        routes += [line.split() for line in lines if line]
    places = [
        f"{base}{path}" for base in ("", "/serve/prod", "/serve/prod/v1") for _, path in routes
    ]
    control = ("/sleep", "/reset_prefix_cache", "/collective_rpc", "/v1/../sleep", "/tokenize")
    with serving(directory) as url, httpx.Client(base_url=url) as client:
        keyless = {
            client.request(method, f"{base}{path}", json={}).status_code
            for method, path in routes
            for base in ("", "/serve/prod", "/serve/prod/v1")
        }
        wrong = {
            client.post(place, json={}, headers={"Authorization": value}).status_code
            for place in places[:3]
            for value in ("Bearer rt_wrong", "Bearer", "Basic cnQ6", "rt_planted_key")
        }
        controlled = {
            client.request(method, f"{base}{path}", json={}, headers=BEARER).status_code
            for method in ("POST", "GET")
            for path in control
            for base in ("", "/serve/prod", "/serve/prod/v1")
        }
        alive = client.get("/healthz")

    assert (keyless, wrong, controlled) == ({401}, {401}, {404})
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert engine.generated() == []


def test_the_clients_key_never_reaches_the_engine(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Case D-05: it opens the proxy; the engine has no use for it."""
    engine = engine_of("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        ask(url)
        ask(url, stream=False)

    assert [request["auth"] for request in engine.generated()] == [False, False]


def test_an_idle_limit_does_not_cut_a_stream_that_moves(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Case D-08: frames that keep coming pass an idle limit far below the time of the whole."""
    engine = engine_of("packed")
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory, proxy_idle_timeout_s=0.3, proxy_first_byte_timeout_s=5) as url:
        response = ask(url)

    assert response.text.rstrip().endswith("data: [DONE]")
    assert engine.stream_complete()


@pytest.mark.long
def test_a_minute_of_trickle_is_no_reason_to_cut(
    shared: Path, directory: PlantedDirectory, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Case D-08 in full: a word every 5 s for 60 s, with an idle limit of 10 s."""
    engine = Stub(shared / "cases" / "stub_engine.py", "trickle", tmp_path / "log", delay_s=None)
    request.addfinalizer(engine.stop)
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory, proxy_idle_timeout_s=10, proxy_first_byte_timeout_s=10) as url:
        response = ask(url)

    assert "w11" in response.text
    assert response.text.rstrip().endswith("data: [DONE]")


def test_a_closed_port_is_answered_at_once(directory: PlantedDirectory) -> None:
    """Case D-08, second half: 503 in about the connect limit, with Retry-After."""
    directory.serve("prod", PROJECT, port=free_port())
    with serving(directory, proxy_check_s=1000) as url:
        started_s = time.monotonic()
        response = ask(url)
        took_s = time.monotonic() - started_s

    assert response.status_code == 503
    assert "retry-after" in response.headers
    assert took_s < 3


def test_health_follows_the_engine(engine_of: StartEngine, directory: PlantedDirectory) -> None:
    """Case D-10: within a check interval after the engine died its deployment is not ready and its
    requests get 503 at once; the other deployment and the proxy itself stay ready."""
    engine, other = engine_of("ok"), engine_of("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    directory.serve("other", PROJECT, port=other.port)
    with serving(directory, proxy_check_s=0.5) as url, httpx.Client(base_url=url) as client:
        client.headers.update(BEARER)
        alive = client.get("/serve/prod/readyz")
        engine.stop()
        stopped_s = time.monotonic()
        down = until(lambda: client.get("/serve/prod/readyz").status_code == 503)
        noticed_s = time.monotonic() - stopped_s
        asked_s = time.monotonic()
        refused = ask(url)
        took_s = time.monotonic() - asked_s
        ready, whole = client.get("/serve/prod/readyz"), client.get("/readyz")
        neighbour = ask(url, "other", stream=False)
        management = client.get("/healthz")

    assert (alive.status_code, alive.json()["state"]) == (200, "serving")
    assert down
    assert noticed_s < 1.5
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert took_s < 1
    assert ready.json() == {
        "ready": False,
        "deployment": "prod",
        "state": "unhealthy",
        "reason": "the engine does not listen",
        "restarts": 0,
    }
    assert ready.headers["retry-after"] == "5"
    assert (whole.status_code, whole.json()) == (200, {"ready": True, "not_serving": ["prod"]})
    assert (neighbour.status_code, management.status_code) == (200, 200)


@pytest.mark.parametrize("state", [DeploymentState.UNHEALTHY, DeploymentState.DRAINING])
def test_a_deployment_that_does_not_serve_is_503_with_retry_after(
    directory: PlantedDirectory, state: DeploymentState
) -> None:
    """Case D-10: what the agent says holds, though the engine may listen."""
    directory.serve("prod", PROJECT, port=1, state=state)
    with serving(directory) as url:
        response = ask(url)
        ready = httpx.get(f"{url}/serve/prod/readyz", headers=BEARER)

    assert (response.status_code, ready.status_code) == (503, 503)
    assert response.headers["retry-after"] == "5"
    assert ready.json()["state"] == state


@pytest.mark.parametrize("asked", [True, False])
def test_the_usage_frame_reaches_only_clients_that_asked(
    engine_of: StartEngine, directory: PlantedDirectory, *, asked: bool
) -> None:
    """Case D-11: once before the end when asked, never otherwise; the proxy asks the engine and
    counts 7 in and 5 out either way."""
    engine = engine_of("ok")
    directory.serve("prod", PROJECT, port=engine.port)
    options = {"include_usage": True} if asked else ...
    with serving(directory) as url:
        response = ask(url, stream_options=options)
        tokens = [
            figure(url, f'rooftune_proxy_tokens_total{{deployment="prod",kind="{kind}"}}')
            for kind in ("prompt", "completion")
        ]

    (sent,) = engine.generated()
    bodies = frames(response)
    assert sent["stream_options"] == {"include_usage": True}
    assert [body for body in bodies if body.get("usage")] == (bodies[-1:] if asked else [])
    assert all(body["choices"] for body in bodies) is not asked
    assert response.text.rstrip().endswith("data: [DONE]")
    assert tokens == [7, 5]


def test_the_first_token_is_timed_from_its_frame(
    engine_of: StartEngine, directory: PlantedDirectory
) -> None:
    """Cases D-11 and S-01: the role-only frame comes at once, the first word 0.6 s later."""
    engine = engine_of("rolefirst", delay_s=0.6)
    directory.serve("prod", PROJECT, port=engine.port)
    with serving(directory) as url:
        ask(url)
        count = figure(url, 'rooftune_proxy_ttft_seconds_count{deployment="prod"}')
        total_s = figure(url, 'rooftune_proxy_ttft_seconds_sum{deployment="prod"}')

    assert count == 1
    assert total_s == pytest.approx(0.7, abs=0.15)
