"""What the load client sends: the upload's own requests, with their lengths limited by the plan."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.canonical import Json
from advisor.errors import InvalidInput
from advisor.traffic.trace import Request, RequestKind
from probes.load.schedule import Schedule

CHAT_PATH = "/v1/chat/completions"
COMPLETION_PATH = "/v1/completions"
CONNECT_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRule:
    """How requests are replayed: how many tokens they may generate, and whether they must.

    The limit is the recorded output length, else the request's ``max_tokens``, else
    `default_tokens`, and never above `cap_tokens`. With `fixed` the engine is told to go on to the
    limit, so that every configuration generates the same number of tokens; requests with a
    ``response_format`` end where their grammar ends all the same. `vocab_size` and `seed` make up
    the prompts of requests with lengths only. `tool_parser` says whether the engine has one.
    """

    cap_tokens: int
    default_tokens: int
    fixed: bool
    vocab_size: int | None = None
    seed: int = 0
    tool_parser: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.default_tokens <= self.cap_tokens:
            raise InvalidInput("default_tokens", "must lie between 1 and cap_tokens")

    def limit(self, request: Request, output_tokens: int | None) -> int:
        """Tokens that `request` may generate; `output_tokens` is its tokenised recorded output."""
        known = (request.output_tokens, output_tokens, request.max_tokens, self.default_tokens)
        wanted = next(count for count in known if count is not None)
        return max(1, min(wanted, self.cap_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request as it goes over the wire. `body` holds the user's text: never log it."""

    request_id: str
    label: str | None
    path: str
    body: Mapping[str, Json] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Everything the client process needs. Connect and idle limits are apart (case D-08)."""

    host: str
    port: int
    schedule: Schedule
    requests: tuple[PlannedRequest, ...] = field(repr=False)
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S

    def __post_init__(self) -> None:
        offsets = self.schedule.offsets_s
        if not self.requests:
            raise InvalidInput("requests", "a load without a request measures nothing")
        if offsets is not None and len(offsets) != len(self.requests):
            raise InvalidInput("offsets_s", "one send time per request is needed")

    def to_json(self) -> bytes:
        """The form that the client process reads."""
        document = {
            "host": self.host,
            "port": self.port,
            "concurrency": self.schedule.concurrency,
            "offsets_s": self.schedule.offsets_s,
            "gang": self.schedule.gang,
            "connect_timeout_s": self.connect_timeout_s,
            "idle_timeout_s": self.idle_timeout_s,
            "requests": [
                {"request_id": r.request_id, "label": r.label, "path": r.path, "body": r.body}
                for r in self.requests
            ],
        }
        return json.dumps(document, ensure_ascii=False).encode()


def read_plan(text: bytes) -> LoadPlan:
    """The inverse of `LoadPlan.to_json`."""
    document = json.loads(text)
    offsets = document["offsets_s"]
    return LoadPlan(
        host=document["host"],
        port=document["port"],
        schedule=Schedule(
            concurrency=document["concurrency"],
            offsets_s=None if offsets is None else tuple(offsets),
            gang=document["gang"],
        ),
        requests=tuple(PlannedRequest(**request) for request in document["requests"]),
        connect_timeout_s=document["connect_timeout_s"],
        idle_timeout_s=document["idle_timeout_s"],
    )


def load_plan(
    requests: Sequence[Request],
    *,
    host: str,
    port: int,
    model: str,
    concurrency: int,
    rule: ReplayRule,
    output_tokens: Sequence[int | None] | None = None,
    gang: bool = False,
) -> LoadPlan:
    """A closed loop over `requests` in the order given, or gangs of `concurrency` of them."""
    lengths = output_tokens if output_tokens is not None else [None] * len(requests)
    return LoadPlan(
        host=host,
        port=port,
        schedule=Schedule(concurrency=concurrency, gang=gang),
        requests=tuple(
            planned_request(request, model=model, rule=rule, output_tokens=length)
            for request, length in zip(requests, lengths, strict=True)
        ),
    )


def planned_request(
    request: Request, *, model: str, rule: ReplayRule, output_tokens: int | None = None
) -> PlannedRequest:
    """`request` as the engine gets it.

    Sampling values go out as the upload had them; what it did not have is not sent, so the
    engine's default applies (case S-22). Messages go to the chat route with all turns (case E-28).
    A request with lengths only becomes random token ids. `output_tokens` is the tokenised length
    of the recorded answer, for uploads that did not report it.
    """
    limit = rule.limit(request, output_tokens)
    body: dict[str, Json] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "max_tokens": limit,
    }
    if rule.fixed and request.response_format is None:
        body |= {"ignore_eos": True, "min_tokens": limit}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.response_format is not None:
        body["response_format"] = json.loads(request.response_format)
    body |= _prompt(request, rule)
    return PlannedRequest(
        request_id=request.id,
        label=request.class_name,
        path=CHAT_PATH if request.kind is RequestKind.CHAT else COMPLETION_PATH,
        body=body,
    )


def _prompt(request: Request, rule: ReplayRule) -> dict[str, Json]:
    match request.kind:
        case RequestKind.COMPLETION:
            return {"prompt": request.prompt}
        case RequestKind.CHAT:
            return _chat(request, tool_parser=rule.tool_parser)
        case RequestKind.LENGTHS:
            return {"prompt": _random_ids(request, rule)}


def _chat(request: Request, *, tool_parser: bool) -> dict[str, Json]:
    body: dict[str, Json] = {"messages": json.loads(request.messages or "[]")}
    if request.tools is not None:
        body["tools"] = json.loads(request.tools)
        if not tool_parser:
            # The engine refuses tools without a parser; with "none" it still renders them into
            # the prompt, which is what the prompt's length needs.
            body["tool_choice"] = "none"
    return body


def _random_ids(request: Request, rule: ReplayRule) -> list[Json]:
    """Token ids of the recorded length; equal seeds give equal prompts, rows share no prefix."""
    if rule.vocab_size is None or request.prompt_tokens is None:
        raise InvalidInput("vocab_size", "a request with lengths only needs a length and this")
    rng = random.Random(f"{rule.seed}:{request.index}")  # noqa: S311 - load, not a secret
    return [rng.randrange(rule.vocab_size) for _ in range(max(1, request.prompt_tokens))]
