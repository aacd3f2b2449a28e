"""What the load client sends: the upload's own requests, with their lengths limited by the plan."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
class EarlierAnswer:
    """In the messages of a later turn: the one at `message` is the answer to turn `turn`."""

    message: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request as it goes over the wire. `body` holds the user's text: never log it.

    Requests of one `session` go strictly in the order of `turn` (from 0). A turn is not sent before
    the answer of the one before is complete and `think_s` seconds more have passed (None: the
    recording does not say). `history` names the messages in `body` that are answers to earlier
    turns of this load: what the engine really said is put in their place.
    """

    request_id: str
    label: str | None
    path: str
    body: Mapping[str, Json] = field(repr=False)
    session: str | None = None
    turn: int | None = None
    think_s: float | None = None
    history: tuple[EarlierAnswer, ...] = ()

    def __post_init__(self) -> None:
        if (self.session is None) != (self.turn is None):
            raise InvalidInput("turn", "a session has numbered turns, and only a session has")
        if self.think_s is not None and not 0 <= self.think_s < float("inf"):
            raise InvalidInput("think_s", f"{self.think_s} is no time to think")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Everything the client process needs. Connect and idle limits are apart (case D-08).

    `request_timeout_s` limits a whole attempt, None: only silence is limited. `retries` is how
    often a request is tried again that was refused or cut before its first token, after
    `retry_wait_s`, twice that, and so on; probes run without, because a retry hides a failure
    (case S-08). For endpoints elsewhere: `api_key` goes out as a bearer token, `base_path` before
    every path, and with `tls` the server's certificate is verified.
    """

    host: str
    port: int
    schedule: Schedule
    requests: tuple[PlannedRequest, ...] = field(repr=False)
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S
    request_timeout_s: float | None = None
    retries: int = 0
    retry_wait_s: float = 1.0
    api_key: str | None = field(default=None, repr=False)
    base_path: str = ""
    tls: bool = False

    def __post_init__(self) -> None:
        offsets = self.schedule.offsets_s
        if not self.requests:
            raise InvalidInput("requests", "a load without a request measures nothing")
        if offsets is not None and len(offsets) != len(self.requests):
            raise InvalidInput("offsets_s", "one send time per request is needed")
        if self.retries < 0:
            raise InvalidInput("retries", f"{self.retries} is below 0")
        for name in ("host", "base_path", "api_key"):
            value = getattr(self, name) or ""
            # A space or line break would end the part of the request that it stands in.
            if not (value.isascii() and value.isprintable()) or " " in value:
                raise InvalidInput(name, "holds a character that no header can")
        turns = [(r.session, r.turn) for r in self.requests if r.session is not None]
        if len(set(turns)) != len(turns):
            raise InvalidInput("turn", "a session has two turns of one number")


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
    return LoadPlan(
        host=host,
        port=port,
        schedule=Schedule(concurrency=concurrency, gang=gang),
        requests=planned_requests(requests, model=model, rule=rule, output_tokens=output_tokens),
    )


def planned_requests(
    requests: Sequence[Request],
    *,
    model: str,
    rule: ReplayRule,
    output_tokens: Sequence[int | None] | None = None,
    sessions: bool = False,
    think: bool = False,
) -> tuple[PlannedRequest, ...]:
    """`requests` as the engine gets them, in the order given.

    With `sessions` the turns of a session wait for each other and quote the engine's own answers;
    with `think` also for as long as the user thought in the recording. Otherwise each goes on its
    own as recorded.
    """
    lengths = output_tokens if output_tokens is not None else [None] * len(requests)
    planned = [
        planned_request(request, model=model, rule=rule, output_tokens=length)
        for request, length in zip(requests, lengths, strict=True)
    ]
    return linked(requests, planned, think=think) if sessions else tuple(planned)


def linked(
    requests: Sequence[Request], planned: Sequence[PlannedRequest], *, think: bool
) -> tuple[PlannedRequest, ...]:
    """`planned` with the turns of each session numbered in the order given, and their history."""
    out = list(planned)
    sessions: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        if request.session is not None:
            sessions.setdefault(request.session, []).append(place)
    for session, places in sessions.items():
        for turn, place in enumerate(places):
            out[place] = replace(
                planned[place],
                session=session,
                turn=turn,
                think_s=(
                    _think_s(requests[places[turn - 1]], requests[place])
                    if think and turn
                    else None
                ),
                history=_history([planned[earlier] for earlier in places[:turn]], planned[place]),
            )
    return tuple(out)


def _history(earlier: Sequence[PlannedRequest], later: PlannedRequest) -> tuple[EarlierAnswer, ...]:
    """Where `later` quotes an answer: after messages that are all those of an earlier turn.

    An answer that calls tools stays as recorded, because the tool's message after it names the
    call.
    """
    messages = later.body.get("messages")
    found: dict[int, EarlierAnswer] = {}
    for turn, request in enumerate(earlier):
        asked = request.body.get("messages")
        if not isinstance(messages, list) or not isinstance(asked, list):
            continue
        answer = messages[len(asked)] if len(asked) < len(messages) else None
        if (
            isinstance(answer, dict)
            and answer.get("role") == "assistant"
            and not answer.get("tool_calls")
            and messages[: len(asked)] == asked
        ):
            found[len(asked)] = EarlierAnswer(message=len(asked), turn=turn)
    return tuple(found.values())


def _think_s(before: Request, after: Request) -> float | None:
    """From the end of one recorded answer to the next question; None where a time is missing."""
    if before.arrival_s is None or before.duration_s is None or after.arrival_s is None:
        return None
    return max(0.0, after.arrival_s - before.arrival_s - before.duration_s)


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
    chat = request.kind is RequestKind.CHAT
    if chat:
        # Some servers honour only the one name, some only the other (case T-23).
        body["max_completion_tokens"] = limit
    body |= _prompt(request, rule)
    return PlannedRequest(
        request_id=request.id,
        label=request.class_name,
        path=CHAT_PATH if chat else COMPLETION_PATH,
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
