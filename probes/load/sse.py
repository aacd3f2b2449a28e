"""Server-sent events of a completion stream: bytes in, frames out, no I/O.

Bytes are split into lines before anything is decoded, so a character cut by a packet border
stays whole (case D-03). Lines that are neither ``data`` nor ``event`` (comments, ids) are skipped.
"""

import re
from typing import NamedTuple

import orjson

DONE = b"[DONE]"
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_FAILED_FINISHES = frozenset({"abort", "error"})


class Usage(NamedTuple):
    """Token counts of the engine's own usage report."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class Frame(NamedTuple):
    """What one event says. A tuple, because a client makes thousands a second of them.

    `carries_token` is False for the role-only frame before the first token (case S-01) and for the
    usage frame after the last. `token_ids` is None where the engine sent none. `text` is all that
    the frame adds, `content` the part of it that belongs into the history of a next turn. `error`
    names an in-band failure (case S-07), never its message, which can quote the request.
    `accepted_histogram[j]` counts verification steps with j accepted draft tokens.
    """

    carries_token: bool = False
    token_ids: tuple[int, ...] | None = None
    text: str = ""
    content: str = ""
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    done: bool = False
    accepted_histogram: tuple[int, ...] | None = None


class EventStream:
    """Reassembles events from arbitrary cuts of the byte stream."""

    __slots__ = ("_data", "_event", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._event = b""

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that `chunk` completes."""
        clean = not (self._rest or self._data or self._event)
        whole = chunk.endswith(b"\n\n") and chunk.find(b"\n") == len(chunk) - 2
        if clean and whole and chunk.startswith(b"data: "):
            # Servers write one event at a time: nothing to split and nothing to keep.
            return [read_frame(chunk[6:-2])]
        frames: list[Frame] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line.removesuffix(b"\r"), frames)
        return frames

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self._event = line[6:].strip()
        elif not line:
            self._event_ends(frames)

    def _event_ends(self, frames: list[Frame]) -> None:
        data, event = self._data, self._event
        self._data, self._event = [], b""
        if data:
            frame = read_frame(b"\n".join(data))
            if event == b"error" and frame.error is None:
                frame = Frame(error="in_band:unnamed")
            frames.append(frame)

    def end(self) -> list[Frame]:
        """What stands before the end of the stream without its blank line, if it is whole."""
        frames: list[Frame] = []
        if self._rest:
            self._line(self._rest.removesuffix(b"\r"), frames)
            self._rest = b""
        self._event_ends(frames)
        return [frame for frame in frames if frame.error != "in_band:not_json"]

    @property
    def pending(self) -> bool:
        """Whether the stream was cut in the middle of an event."""
        return bool(self._rest.strip() or self._data)


def read_frame(payload: bytes) -> Frame:
    """One event's data as a frame; data that is not a JSON object is a failure of the server."""
    try:
        body = orjson.loads(payload)
    except orjson.JSONDecodeError:
        if payload.strip() == DONE:
            return Frame(done=True)
        return Frame(error="in_band:not_json")
    if not isinstance(body, dict):
        return Frame(error="in_band:not_an_object")
    error = body.get("error")
    if error is not None:
        return Frame(error=f"in_band:{error_kind(error)}")
    return _completion_frame(body)


def error_kind(error: object) -> str:
    """The type or code of an OpenAI error object, if it is a plain word; else ``unnamed``.

    Never the message: engines quote the request in it.
    """
    if isinstance(error, dict):
        for name in ("type", "code"):
            value = str(error.get(name) or "")
            if _PLAIN_WORD.fullmatch(value):
                return value
    return "unnamed"


def _completion_frame(body: dict[str, object]) -> Frame:
    choices = body.get("choices")
    choice: object = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, dict):
        return Frame(error="in_band:not_a_choice")
    ids = choice.get("token_ids")
    token_ids = tuple(ids) if isinstance(ids, list) else None
    delta = choice.get("delta")
    text, content = _text(delta if isinstance(delta, dict) else choice)
    finish = choice.get("finish_reason")
    if not isinstance(finish, str):
        finish = None
    usage, metrics = body.get("usage"), body.get("metrics")
    return Frame(
        bool(token_ids or text),
        token_ids,
        text,
        content,
        None if usage is None else _usage(usage),
        finish or None,
        f"finished:{finish}" if finish in _FAILED_FINISHES else None,
        accepted_histogram=None if metrics is None else _histogram(metrics),
    )


def _text(source: dict[str, object]) -> tuple[str, str]:
    """All text that a delta or choice adds (reasoning, answer, tool calls), and the answer."""
    content = source.get("content") or source.get("text")
    answer = content if isinstance(content, str) else ""
    parts = [source.get("reasoning"), source.get("reasoning_content"), answer]
    calls = source.get("tool_calls")
    if not (calls or parts[0] or parts[1]):
        return answer, answer
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += [function.get("name"), function.get("arguments")]
    return "".join(part for part in parts if isinstance(part, str)), answer


def _usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(cached),
    )


def _histogram(metrics: object) -> tuple[int, ...] | None:
    """Of vLLM's ``--per-request-spec-decode-metrics``, on the usage frame (0.32)."""
    drafts = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    counts = drafts.get("acceptance_histogram") if isinstance(drafts, dict) else None
    if not isinstance(counts, list) or any(_count(count) is None for count in counts):
        return None
    return tuple(counts)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
