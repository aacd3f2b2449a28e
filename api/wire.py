"""The HTTP side of `api.client`: requests, problem documents, server-sent events."""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from advisor.errors import RooftuneError, Unavailable
from api.codec import read
from api.schemas import Problem

T = TypeVar("T")
ANSWER_TIMEOUT_S = 300.0
ASK_AGAIN_S = 0.5


class ApiProblem(RooftuneError):
    """The service answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        remedy = f"; {problem.remedy}" if problem.remedy else ""
        wrong = [f"{item.field}: {item.message}" for item in problem.errors]
        fields = "".join(f"; {text}" for text in wrong if text not in problem.detail)
        super().__init__(f"{problem.detail}{fields}{remedy}")
        self.problem = problem
        self.status = problem.status
        self.title = problem.title
        self.detail = problem.detail
        self.remedy = problem.remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One server-sent event."""

    id: int | None
    event: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a served model said; token counts are the engine's, None where it sent no usage."""

    text: str
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    message: _Message
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    """The part of an OpenAI chat completion that is read here."""

    choices: tuple[_Choice, ...]
    usage: _Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    error: _Refusal


class Wire:
    """A connection that speaks JSON; a refusal raises `ApiProblem`, silence `Unavailable`."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.base_url = str(http.base_url).rstrip("/")

    def get(self, path: str, cls: type[T], params: Mapping[str, str] | None = None) -> T:
        """The answer of a GET as a `cls`."""
        return read(self.send("GET", path, params=params).content, cls)

    def post(
        self,
        path: str,
        cls: type[T],
        body: Mapping[str, object] | None,
        idempotency_key: str | None = None,
    ) -> T:
        """The answer of a POST as a `cls`, sent under the caller's idempotency key or a new one."""
        headers = {"idempotency-key": idempotency_key or str(uuid.uuid4())}
        return read(self.send("POST", path, json=body, headers=headers).content, cls)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request; `options` are httpx's."""
        try:
            response = self.http.request(method, path, **options)
        except httpx.TransportError as error:
            raise self.unreachable() from error
        if response.is_error:
            raise problem_of(response)
        return response

    def frames(self, path: str, last_id: int) -> Iterator[Frame]:
        """Server-sent events after `last_id`; a broken stream raises `httpx.TransportError`."""
        headers = {"accept": "text/event-stream", "last-event-id": str(last_id)}
        with self.http.stream("GET", path, headers=headers) as response:
            if response.is_error:
                response.read()
                raise problem_of(response)
            yield from parse_frames(response.iter_lines())

    def ask(self, url: str, *, model: str, question: str, max_tokens: int, wait_s: float) -> Answer:
        """One question to the OpenAI-compatible endpoint at `url`, answered at temperature 0.

        A 503 is asked again until `wait_s` have passed: a proxy may learn of a deployment late.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        end = time.monotonic() + wait_s
        response = self._asked(url, body)
        while response.status_code == httpx.codes.SERVICE_UNAVAILABLE and time.monotonic() < end:
            time.sleep(ASK_AGAIN_S)
            response = self._asked(url, body)
        if response.is_error:
            raise _openai_problem(response)
        said = read(response.content, _Completion)
        usage = said.usage or _Usage()
        return Answer(
            text=said.choices[0].message.content or "",
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            finish_reason=said.choices[0].finish_reason,
        )

    def _asked(self, url: str, body: Mapping[str, object]) -> httpx.Response:
        try:
            return self.http.post(f"{url}/chat/completions", json=body, timeout=ANSWER_TIMEOUT_S)
        except httpx.TransportError as error:
            raise Unavailable(f"nothing answers at {url}", "see whether it is serving") from error

    def unreachable(self) -> Unavailable:
        """The error for a service that does not answer."""
        what = f"no Rooftune service answers at {self.base_url}"
        return Unavailable(what, "start it with `rooftune up`")


def parse_frames(lines: Iterator[str]) -> Iterator[Frame]:
    """Server-sent events from decoded lines; comments (keep-alives) are skipped."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
            continue
        if "data" in fields:
            identifier = int(fields["id"]) if "id" in fields else None
            yield Frame(id=identifier, event=fields.get("event", "message"), data=fields["data"])
        fields = {}


def _openai_problem(response: httpx.Response) -> ApiProblem:
    """A refusal in OpenAI's form; any other body is not repeated."""
    try:
        refused = read(response.content, _Refused).error
    except ValidationError:
        return problem_of(response)
    return ApiProblem(
        Problem(
            type="about:blank",
            title=refused.code or response.reason_phrase,
            status=response.status_code,
            detail=refused.message,
            remedy=None,
            errors=(),
            found=(),
            accepted=(),
            rejects=(),
        )
    )


def problem_of(response: httpx.Response) -> ApiProblem:
    """The refusal in an answer; a foreign server's words are not repeated."""
    try:
        problem = read(response.content, Problem)
    except ValidationError:
        problem = Problem(
            type="about:blank",
            title=response.reason_phrase or "error",
            status=response.status_code,
            detail=f"{response.request.url} answered {response.status_code} without a problem"
            " document",
            remedy="check the address",
            errors=(),
            found=(),
            accepted=(),
            rejects=(),
        )
    return ApiProblem(problem)
