"""Rows of nobody's format: requests, prompts and lengths under any of the names that we know.

Here also lie what gateways log around OpenAI-style requests, and the rows of `rooftune record`.
"""

from collections.abc import Mapping
from functools import lru_cache

from advisor.traffic.formats.answers import Answer, answer_of, usage_of
from advisor.traffic.formats.asked import Asked, ids_of, is_chat, listed, system_message, tools_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import IMAGES, Exchange, draft
from advisor.traffic.formats.fields import BadField, Row, assign, text
from advisor.traffic.formats.row import Draft, Notes, RequestFields, check_messages, set_prompt
from advisor.traffic.formats.times import Time, named_unit, read_time
from advisor.traffic.formats.timings import failure_of, timings_of
from advisor.traffic.formats.turns import Turns
from advisor.traffic.formats.usual_rows import usual_draft
from advisor.traffic.trace import RequestKind

_ENVELOPES = ("body", "request")  # OpenAI batch rows, gateway logs
_ALSO = ("model", "instructions", "prompt_token_ids", "output_token_ids", "token_ids", "functions")


@lru_cache(maxsize=4096)
def _places(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Our fields and the names that carry them; most rows of a file have the same names."""
    also = ((name, name) for name in _ALSO if name in names)
    return (*assign(names).items(), *also)


@lru_cache(maxsize=4096)
def _time_name(names: tuple[str, ...]) -> str | None:
    return dict(_places(names)).get("timestamp")


def values_of(row: Row) -> dict[str, object]:
    """The row's values by our names of fields, with the request's envelope laid on top."""
    values: dict[str, object] = {field: row[name] for field, name in _places(tuple(row))}
    for envelope in _ENVELOPES:
        inner = decoded(row.get(envelope))
        if isinstance(inner, dict):
            values |= {field: inner[name] for field, name in _places(tuple(inner))}
            if inner.get("system"):  # Anthropic's requests; in a row it may be anything
                values["instructions"] = inner["system"]
    return values


def time_of(row: Row) -> Time | None:
    """The first of the row's times that is filled in; its key may name the unit."""
    name = _time_name(tuple(row))
    return None if name is None else read_time(name, row[name], named_unit(name))


def draft_of(row: Row, line: int, notes: Notes) -> Draft:
    """One row as a draft; raises `BadField` with the reason why it cannot be taken."""
    return usual_draft(row, line, notes) or draft(exchange_of(row, line, notes), line, notes)


def exchange_of(row: Row, line: int, notes: Notes) -> Exchange:
    """What a row says of one request."""
    values = values_of(row)
    response = values.get("response")
    if response is None and isinstance(row.get("choices"), list):
        response = row
    if isinstance(usage := values.get("usage"), dict):
        counts = usage_of(usage)
        values.setdefault("prompt_tokens", counts.prompt_tokens)
        values.setdefault("output_tokens", counts.output_tokens)
    time = time_of(row)
    timings = timings_of(row, time, notes, line)
    return Exchange(
        asked=_asked(values),
        answer=_answer(values, response),
        values=values,
        time=time,
        duration_s=timings.get("duration_s"),
        ttft_s=timings.get("ttft_s"),
        failed=failure_of(row, response),
    )


def _answer(values: Mapping[str, object], response: object) -> Answer:
    answer = answer_of(response)
    own = values.get("output_token_ids", values.get("token_ids"))
    if own is None or answer.output_ids is not None:
        return answer
    answer.output_ids = ids_of(decoded(own))
    return answer


def _asked(values: Mapping[str, object]) -> Asked:
    """Messages, else a prompt, else neither."""
    tools = tools_of(values.get("tools") or values.get("functions"))
    prompt_ids = ids_of(decoded(values.get("prompt_token_ids")))
    messages = decoded(values.get("messages"))
    prompt = values.get("prompt")
    if messages is None:
        found = decoded(prompt) if isinstance(prompt, str) else prompt
        if is_chat(found):
            messages = found
        elif isinstance(prompt, list):
            asked = listed(prompt)
            asked.prompt_ids = asked.prompt_ids or prompt_ids
            asked.tools = tools
            return asked
    if messages is None:
        return Asked(prompt=text("prompt", prompt), prompt_ids=prompt_ids, tools=tools)
    turns = Turns()
    if not isinstance(messages, list) or not messages:
        raise BadField("messages", "not a list with at least one message")
    if instructions := values.get("instructions"):
        turns.add(system_message(instructions))
    turns.extend(messages)
    return Asked(messages=turns.messages, prompt_ids=prompt_ids, tools=tools, images=turns.images)


def fill_prompt(
    fields: RequestFields, values: Mapping[str, object], notes: Notes, line: int
) -> RequestKind:
    """Messages, else a prompt, else neither."""
    asked = _asked(values)
    if asked.messages is not None:
        if (answer := answer_of(values.get("response")).text) is not None:
            fields["response"] = answer
        set_prompt(fields, check_messages(list(asked.messages)), notes, line)
        if asked.images:
            fields["images"] = asked.images
            notes.add(IMAGES, line)
        return RequestKind.CHAT
    if not asked.prompt:
        return RequestKind.LENGTHS
    fields["prompt"] = asked.prompt
    return RequestKind.COMPLETION
