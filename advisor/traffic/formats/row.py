"""One row of any format as a draft of a `Request`: the rules that all formats share."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import TypedDict, cast

from advisor.traffic.formats.fields import BadField, bounded, count, limit, tag, valid
from advisor.traffic.formats.times import Time
from advisor.traffic.trace import RequestKind

# Fewer tokens than this share of the characters is not plausible for any tokenizer we know.
_CHARS_PER_TOKEN_LIMIT = 12
_SHORT_TEXT_CHARS = 200
_MAX_LINES = 5
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class RequestFields(TypedDict, total=False):
    """Keyword arguments of `Request` that a row gives; what it does not give is left out."""

    source_id: str | None
    label: str | None
    session: str | None
    messages: str | None
    prompt: str | None
    tools: str | None
    response_format: str | None
    response: str | None
    max_tokens: int | None
    temperature: float | None
    top_p: float | None
    prompt_tokens: int | None
    output_tokens: int | None
    model: str | None
    images: int
    duration_s: float | None
    ttft_s: float | None
    block_ids: tuple[int, ...] | None
    prompt_ids: tuple[int, ...] | None
    output_ids: tuple[int, ...] | None


@dataclass(slots=True)
class Draft:
    """A row that was taken: everything of a request but its place in the order of arrival.

    `failed` is the status of a request that the log says failed ("408", "error"): it is counted
    apart and is none of the requests.
    """

    line: int
    kind: RequestKind
    time: Time | None
    fields: RequestFields
    failed: str | None = None


@dataclass(slots=True)
class Notes:
    """What was odd about rows that were taken: kind of oddity to how many rows showed it.

    `lines` holds the first of them, so that a million odd rows cost no memory.
    """

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, oddity: str, line: int) -> None:
        """Remember that `line` showed `oddity`."""
        self.add_all(oddity, (line,))

    def add_all(self, oddity: str, lines: Sequence[int]) -> None:
        """Remember that all of `lines` showed `oddity`."""
        first = self.lines.setdefault(oddity, [])
        first.extend(lines[: _MAX_LINES - len(first)])
        self.counts[oddity] = self.counts.get(oddity, 0) + len(lines)

    def warnings(self) -> tuple[str, ...]:
        """One sentence per oddity with the first lines that showed it."""
        return tuple(
            f"{count:,} row{'s' if count > 1 else ''} {oddity}"
            f" (line {', '.join(map(str, self.lines[oddity]))}{', …' * (count > _MAX_LINES)})"
            for oddity, count in self.counts.items()
        )


def dumped(name: str, value: object) -> str:
    """JSON text of a value from the file, in the file's own order of keys."""
    plain = _plain_text(value)
    if plain is not None:
        return valid(name, plain)
    try:
        found = _ENCODER.encode(value)
    except ValueError as error:
        raise BadField(name, "holds NaN or infinity, which JSON does not have") from error
    except RecursionError as error:
        raise BadField(name, "nested too deeply") from error
    return valid(name, found)


def _plain_text(value: object) -> str | None:
    """JSON text of a list of objects that hold strings only, as most messages do; else None.

    The encoder gives the same text and takes three times as long.
    """
    if type(value) is not list:
        return None
    rows: list[str] = []
    for item in value:
        if type(item) is not dict:
            return None
        cells: list[str] = []
        for key, text in item.items():
            if type(text) is not str or type(key) is not str:
                return None
            cells.append(f"{encode_basestring(key)}: {encode_basestring(text)}")
        rows.append(", ".join(cells))
    return "[{" + "}, {".join(rows) + "}]" if rows else None


def check_messages(value: object) -> list[dict[str, object]]:
    """A list of OpenAI-style messages; raises `BadField` naming the message and what is wrong."""
    if not isinstance(value, list) or not value:
        raise BadField("messages", "not a list with at least one message")
    for place, message in enumerate(value):
        if not _is_plain(message):
            _check_message(f"messages[{place}]", message)
    return cast("list[dict[str, object]]", value)


def _is_plain(message: object) -> bool:
    """Whether nothing needs a closer look: a role and a text."""
    return (
        type(message) is dict
        and type(message.get("content")) is str
        and type(role := message.get("role")) is str
        and role != ""
    )


def _check_message(where: str, message: object) -> None:
    if not isinstance(message, Mapping):
        raise BadField(where, "not an object")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise BadField(f"{where}.role", "missing or not a string")
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise BadField(f"{where}.content", "missing or null")
    elif isinstance(content, list):
        _check_parts(f"{where}.content", content)
    elif not isinstance(content, str):
        raise BadField(f"{where}.content", "neither a string, a list of text parts nor null")


def _check_parts(where: str, parts: list[object]) -> None:
    for part in parts:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            raise BadField(where, "holds a part that is not text; only text can be replayed")
        if not isinstance(part.get("text"), str):
            raise BadField(where, "holds a text part without text")


def content_text(content: object) -> str | None:
    """Text of a message's content when it is a string or text parts, else None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return None


def set_prompt(
    fields: RequestFields, messages: list[dict[str, object]], notes: Notes, line: int
) -> None:
    """Store the history as the prompt; a final answer of the assistant is the recorded response."""
    last = messages[-1]
    if last["role"] == "assistant" and len(messages) > 1:
        answer = content_text(last.get("content"))
        if "response" not in fields and answer is not None:
            fields["response"] = valid("messages", answer)
        messages = messages[:-1]
        notes.add("end with an assistant message: it was taken as the recorded response", line)
    if any(
        isinstance(m.get("content"), list) and len(cast("list[object]", m["content"])) > 1
        for m in messages
    ):
        notes.add(
            "hold content in several text parts: they are joined as the model's template does", line
        )
    fields["messages"] = dumped("messages", messages)


def set_numbers(fields: RequestFields, values: Mapping[str, object]) -> None:
    """Counts, limits and sampling parameters; `values` is by our own names of fields."""
    if "max_tokens" in values:
        fields["max_tokens"] = limit("max_tokens", values["max_tokens"])
    if "temperature" in values:
        fields["temperature"] = bounded("temperature", values["temperature"], 100)
    if "top_p" in values:
        fields["top_p"] = bounded("top_p", values["top_p"], 1)
    if "prompt_tokens" in values:
        fields["prompt_tokens"] = count("prompt_tokens", values["prompt_tokens"])
    if "output_tokens" in values:
        fields["output_tokens"] = count("output_tokens", values["output_tokens"])


def set_tags(fields: RequestFields, values: Mapping[str, object]) -> None:
    """Ids, sessions and classes."""
    if "id" in values:
        fields["source_id"] = tag("id", values["id"])
    if "session_id" in values:
        fields["session"] = tag("session_id", values["session_id"])
    if "class" in values:
        fields["label"] = tag("class", values["class"])
    if "model" in values:
        fields["model"] = tag("model", values["model"])


def settle_counts(fields: RequestFields, notes: Notes, line: int) -> None:
    """Counts that contradict the text: a zero beside text means "not counted" (case T-16)."""
    prompt = fields.get("messages") or fields.get("prompt") or ""
    prompt_tokens = fields.get("prompt_tokens")
    if prompt_tokens == 0:
        fields["prompt_tokens"] = None
        notes.add("report 0 prompt tokens although there is a prompt: taken as unknown", line)
    elif prompt_tokens and len(prompt) > max(
        _SHORT_TEXT_CHARS, _CHARS_PER_TOKEN_LIMIT * prompt_tokens
    ):
        fields["prompt_tokens"] = None
        notes.add("report far fewer prompt tokens than their text has: taken as unknown", line)
    response = fields.get("response")
    if fields.get("output_tokens") == 0 and response != "":
        fields["output_tokens"] = None
        notes.add("report 0 output tokens for an answer: taken as unknown", line)
