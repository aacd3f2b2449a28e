"""Server-sent event frames as bytes: split at blank lines, never inside a character."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_FRAME_BYTES = 16 << 20
DONE = b"[DONE]"
_BLANK_LINE = re.compile(rb"\r?\n\r?\n|\r\r")
# The longest end of a frame, less one byte: where the next look for it must begin.
_MARK_BYTES = 3
FAILED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts that an engine reported for one answer."""

    prompt_tokens: int
    completion_tokens: int


class FrameSplitter:
    """Bytes in, whole frames out (each with its closing blank line).

    Multi-byte characters cut by network chunks stay intact because nothing is decoded before a
    frame is complete (case D-03).
    """

    def __init__(self) -> None:
        self._rest = b""
        self._looked = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Frames completed by `chunk`."""
        held = self._rest + chunk
        begin, look = 0, self._looked
        while (end := _BLANK_LINE.search(held, look)) is not None:
            yield held[begin : end.end()]
            begin = look = end.end()
        self._rest = held[begin:]
        if len(self._rest) > MAX_FRAME_BYTES:
            yield self.rest()
        self._looked = max(0, len(self._rest) - _MARK_BYTES)

    def rest(self) -> bytes:
        """What came after the last complete frame."""
        rest, self._rest, self._looked = self._rest, b"", 0
        return rest


def data_of(frame: bytes) -> bytes:
    """The data of an event, empty for a comment."""
    lines = (line[5:].strip() for line in frame.splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines)


def body_of(data: bytes) -> Mapping[str, object] | None:
    """An event's data or an answer's body as a JSON object, None when it is none."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def usage_in(body: Mapping[str, object]) -> Usage | None:
    """The usage of a whole answer or frame, if it has one."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int or min(prompt, completion) < 0:
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def error_in(body: Mapping[str, object]) -> int | None:
    """The status of an error that came inside an answer of status 200 (case S-07), else None."""
    error = body.get("error")
    if error is None:
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if type(code) is int and 400 <= code < 600 else FAILED  # noqa: PLR2004 - HTTP


def choices_in(body: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The choices of an answer or frame that are objects."""
    choices = body.get("choices")
    listed = choices if isinstance(choices, list) else []
    return [choice for choice in listed if isinstance(choice, dict)]


def choice_text(choice: Mapping[str, object]) -> str:
    """All text of a choice: reasoning, answer, and the names and arguments of tool calls."""
    held = choice.get("delta", choice.get("message", choice))
    source = held if isinstance(held, dict) else choice
    parts = [source.get("reasoning"), source.get("content"), source.get("text")]
    calls = source.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [function.get("name"), function.get("arguments")]
    return "".join(part for part in parts if isinstance(part, str))


def carries_token(body: Mapping[str, object]) -> bool:
    """Whether a frame holds text or token ids; the role-only frame does not (case S-01)."""
    return any(choice_text(choice) or choice.get("token_ids") for choice in choices_in(body))
