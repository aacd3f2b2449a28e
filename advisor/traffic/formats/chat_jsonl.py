"""JSONL rows: OpenAI-style requests, gateway logs, batch files, plain prompts and lengths."""

import json
import math
from collections.abc import Mapping

from advisor.traffic.formats.fields import BadField, Row, assign, text
from advisor.traffic.formats.row import (
    Draft,
    Notes,
    RequestFields,
    check_messages,
    content_text,
    dumped,
    set_numbers,
    set_prompt,
    set_tags,
    settle_counts,
)
from advisor.traffic.formats.times import Time, named_unit, read_time
from advisor.traffic.trace import RequestKind

_ENVELOPES = ("body", "request")  # OpenAI batch rows, gateway logs


def parse_object(line: str) -> dict[str, object]:
    """The JSON object on one line. `NaN` is let through: the field that holds it says so."""
    try:
        found = json.loads(line, parse_constant=_constant)
    except RecursionError as error:
        raise BadField("line", "nested too deeply") from error
    except ValueError as error:
        raise BadField("line", "not valid JSON") from error
    if not isinstance(found, dict):
        kind = {list: "an array", str: "a string", type(None): "null"}.get(type(found), "a number")
        raise BadField("line", f"{kind}, not a JSON object")
    return found


def _constant(name: str) -> float:
    return math.nan if name == "NaN" else math.inf


def values_of(row: Row) -> dict[str, object]:
    """The row's values by our names of fields, with the request's envelope laid on top."""
    values: dict[str, object] = {}
    for source in (row, *(row.get(name) for name in _ENVELOPES)):
        if isinstance(source, Mapping):
            values |= {field: source[name] for field, name in assign(source).items()}
    return values


def time_of(row: Row) -> Time | None:
    """The first of the row's times that is filled in; its key may name the unit."""
    name = assign(row).get("timestamp")
    return None if name is None else read_time(name, row[name], named_unit(name))


def draft_of(row: Row, line: int, notes: Notes) -> Draft:
    """One row as a draft; raises `BadField` with the reason why it cannot be taken."""
    values = values_of(row)
    fields: RequestFields = {}
    kind = fill_prompt(fields, values, notes, line)
    _fill_answer(fields, values)
    if isinstance(usage := values.get("usage"), Mapping):
        values |= {key: usage[name] for key, name in assign(usage).items() if key not in values}
    set_numbers(fields, values)
    set_tags(fields, values)
    for name in ("tools", "response_format"):
        if values.get(name) is not None:
            fields[name] = dumped(name, values[name])
    if kind is RequestKind.LENGTHS:
        if fields.get("prompt_tokens") is None:
            raise BadField("prompt", "neither messages nor a prompt nor a prompt length")
    else:
        settle_counts(fields, notes, line)
    return Draft(line, kind, time_of(row), fields)


def fill_prompt(
    fields: RequestFields, values: Mapping[str, object], notes: Notes, line: int
) -> RequestKind:
    """Messages, else a prompt, else neither."""
    messages = values.get("messages")
    prompt = values.get("prompt")
    if messages is None and isinstance(prompt, list):
        messages = prompt
    if messages is not None:
        answer = content_answer(values.get("response"))
        if answer is not None:
            fields["response"] = answer
        set_prompt(fields, check_messages(messages), notes, line)
        return RequestKind.CHAT
    found = text("prompt", prompt)
    if not found:
        return RequestKind.LENGTHS
    fields["prompt"] = found
    return RequestKind.COMPLETION


def _fill_answer(fields: RequestFields, values: dict[str, object]) -> None:
    """The recorded answer and, from an OpenAI response object, its usage."""
    response = values.get("response")
    body = response.get("body", response) if isinstance(response, Mapping) else None
    if isinstance(body, Mapping) and not isinstance(values.get("usage"), Mapping):
        values["usage"] = body.get("usage")
    answer = content_answer(response)
    if answer is not None:
        fields["response"] = answer


def content_answer(response: object) -> str | None:
    """Text of an answer: a string, a message, an OpenAI response object or a batch result."""
    if response is None or isinstance(response, str):
        return text("response", response)
    if isinstance(response, Mapping):
        return _object_answer(response)
    raise BadField("response", "neither a string nor a response object")


def _object_answer(response: Mapping[str, object]) -> str | None:
    body = response.get("body", response)
    if not isinstance(body, Mapping):
        return None
    choices = body.get("choices")
    if not isinstance(choices, list):
        return text("response", content_text(body.get("content")))
    first = choices[0] if choices else None
    if not isinstance(first, Mapping):
        return None
    message = first.get("message")
    found = message.get("content") if isinstance(message, Mapping) else first.get("text")
    return text("response", content_text(found))
