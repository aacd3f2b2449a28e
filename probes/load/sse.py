"""Server-sent events of a completion stream: bytes in, frames out, no I/O.

Bytes are split into lines before anything is decoded, so a character cut by a packet border
stays whole (case D-03).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

DONE = b"[DONE]"
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_FAILED_FINISHES = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of the engine's own usage report."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What one ``data:`` event says.

    `carries_token` is False for the role-only frame before the first token (case S-01) and for the
    usage frame after the last. `token_ids` is None where the engine sent none. `error` names an
    in-band failure (case S-07), never its message, which can quote the request.
    """

    carries_token: bool = False
    token_ids: tuple[int, ...] | None = None
    text: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    done: bool = False


@dataclass
class EventStream:
    """Reassembles events from arbitrary cuts of the byte stream."""

    _rest: bytes = b""
    _data: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that `chunk` completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            content = line.removesuffix(b"\r")
            if content.startswith(b"data:"):
                self._data.append(content.removeprefix(b"data:").removeprefix(b" "))
            elif not content and self._data:
                payload = b"\n".join(self._data)
                self._data = []
                yield read_frame(payload)

    @property
    def pending(self) -> bool:
        """Whether the stream was cut in the middle of an event."""
        return bool(self._rest.strip() or self._data)


def read_frame(payload: bytes) -> Frame:
    """One event's data as a frame; data that is not a JSON object is a failure of the server."""
    if payload.strip() == DONE:
        return Frame(done=True)
    try:
        body = json.loads(payload)
    except ValueError:
        return Frame(error="in_band:not_json")
    if not isinstance(body, dict):
        return Frame(error="in_band:not_an_object")
    if body.get("error") is not None:
        return Frame(error=f"in_band:{error_kind(body['error'])}")
    return _completion_frame(body)


def error_kind(error: object) -> str:
    """The type or code of an OpenAI error object, if it is a plain word; else ``unnamed``.

    Never the message: engines quote the request in it.
    """
    if isinstance(error, Mapping):
        for name in ("type", "code"):
            value = str(error.get(name) or "")
            if _PLAIN_WORD.fullmatch(value):
                return value
    return "unnamed"


def _completion_frame(body: Mapping[str, object]) -> Frame:
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, Mapping):
        return Frame(error="in_band:not_a_choice")
    text = _text(choice)
    ids = choice.get("token_ids")
    token_ids = tuple(ids) if isinstance(ids, list) else None
    finish = choice.get("finish_reason")
    return Frame(
        carries_token=bool(token_ids) or bool(text),
        token_ids=token_ids,
        text=text,
        usage=_usage(body.get("usage")),
        finish_reason=str(finish) if finish else None,
        error=f"finished:{finish}" if finish in _FAILED_FINISHES else None,
    )


def _text(choice: Mapping[str, object]) -> str:
    """All text that a choice adds: answer, reasoning and the arguments of tool calls."""
    delta = choice.get("delta")
    source = delta if isinstance(delta, Mapping) else choice
    parts = [source.get("reasoning"), source.get("content"), source.get("text")]
    calls = source.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            parts += [function.get("name"), function.get("arguments")]
    return "".join(part for part in parts if isinstance(part, str))


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, Mapping):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
