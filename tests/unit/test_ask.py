"""Asking a served model through the client: the call, the answer, refusals."""

import json

import httpx
import pytest

from advisor.errors import Unavailable
from api.client import Answer, ApiProblem, Client

URL = "http://proxy.test/serve/demo/v1"
SAID = {
    "id": "x",
    "model": "demo",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13},
}


def client(answer: httpx.Response | httpx.TransportError, seen: list[httpx.Request]) -> Client:
    """A client whose every request is answered so."""

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if isinstance(answer, httpx.TransportError):
            raise answer
        return answer

    return Client("http://api.test", "rt_key", transport=httpx.MockTransport(respond))


def test_a_question_goes_to_the_proxy_with_the_callers_key() -> None:
    """Under the deployment's name, at temperature 0; unknown fields of the answer are ignored."""
    seen: list[httpx.Request] = []
    with client(httpx.Response(200, json=SAID), seen) as asking:
        answer = asking.ask(URL, "Where?", model="demo", max_tokens=8)
    sent = json.loads(seen[0].content)

    assert answer == Answer(text="Paris", prompt_tokens=12, output_tokens=1, finish_reason=None)
    assert str(seen[0].url) == f"{URL}/chat/completions"
    assert seen[0].headers["authorization"] == "Bearer rt_key"
    assert sent == {
        "model": "demo",
        "messages": [{"role": "user", "content": "Where?"}],
        "max_tokens": 8,
        "temperature": 0,
    }


def test_a_deployment_that_the_proxy_does_not_know_yet_is_waited_for() -> None:
    """503 is asked again within the wait; any other refusal is the answer."""
    answers = [httpx.Response(503, json={}), httpx.Response(200, json=SAID)]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with Client("http://api.test", "rt_key", transport=transport) as asking:
        answer = asking.ask(URL, "Where?", model="demo", wait_s=30.0)

    assert (answer.text, answers) == ("Paris", [])


def test_a_refusal_in_openais_form_keeps_its_words() -> None:
    """The message is the detail, the code the title."""
    body = {"error": {"message": "demo is draining", "type": "x", "param": None, "code": "gone"}}
    with (
        client(httpx.Response(503, json=body), []) as asking,
        pytest.raises(ApiProblem) as refused,
    ):
        asking.ask(URL, "Where?", model="demo")

    assert (refused.value.status, refused.value.title) == (503, "gone")
    assert refused.value.detail == "demo is draining"


def test_a_foreign_servers_body_is_not_repeated() -> None:
    """It may quote the question."""
    with (
        client(httpx.Response(502, text="you asked Where?"), []) as asking,
        pytest.raises(ApiProblem) as refused,
    ):
        asking.ask(URL, "Where?", model="demo")

    assert "you asked" not in str(refused.value)


def test_a_proxy_that_does_not_answer_is_unavailable() -> None:
    """With the address that was asked."""
    with client(httpx.ConnectError("no"), []) as asking, pytest.raises(Unavailable) as missing:
        asking.ask(URL, "Where?", model="demo")

    assert URL in str(missing.value)
