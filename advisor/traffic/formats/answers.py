"""What a logged request was answered: text, counts and token ids, in whatever shape it is."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from advisor.traffic.formats.asked import ids_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.fields import BadField, Row, count, text
from advisor.traffic.formats.timings import failure_of
from advisor.traffic.formats.turns import item_kind

_INPUT = (
    "prompt_tokens", "input_tokens", "prompt_token_count", "promptTokenCount", "promptTokens",
    "inputTokens", "input",
)  # fmt: skip
_OUTPUT = (
    "completion_tokens", "output_tokens", "candidates_token_count", "candidatesTokenCount",
    "completionTokens", "outputTokens", "output",
)  # fmt: skip
_CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")
_USAGE = ("usage", "usage_metadata", "usageMetadata", "token_usage")
_DETAILS = ("completion_tokens_details", "output_tokens_details")
_TEXTS = frozenset({"text", "output_text"})


@dataclass(slots=True, kw_only=True)
class Answer:
    """The first answer of a request. `choices` says how many there were."""

    text: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int = 0
    model: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    output_ids: tuple[int, ...] | None = None
    choices: int = 1
    failed: str | None = None


def answer_of(value: object) -> Answer:
    """The answer in a text, a response of any known API, or the chunks of a stream.

    Raises `BadField` for what is neither text nor an object.
    """
    if value is None:
        return Answer()
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, dict):
        return _from_object(value)
    if isinstance(value, list):
        return _from_list(value)
    raise BadField("response", "neither a string nor a response object")


def _from_text(value: str) -> Answer:
    """Text of an answer; a response object or the lines of a stream may be written as text."""
    start = value.lstrip()[:6]
    if start.startswith("data:") and (events := list(_events(value))):
        return _from_list(events)
    if start.startswith(("{", "[", '"')):
        found = decoded(value)
        if isinstance(found, dict) and _is_response(found):
            return _from_object(found)
        if isinstance(found, list) and found and all(_is_response(item) for item in found):
            return _from_list(found)
    return Answer(text=text("response", value))


def _is_response(value: object) -> bool:
    """Whether a value is without doubt a response and no text that a model wrote."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("choices"), list):
        return "object" in value or "usage" in value or "created" in value or "model" in value
    return value.get("object") == "response" or "candidates" in value


def _events(body: str) -> Iterable[object]:
    """The JSON of server-sent events."""
    for line in body.splitlines():
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data.startswith("{"):
            try:
                yield json.loads(data)
            except (ValueError, RecursionError):
                continue


def _from_list(items: Sequence[object]) -> Answer:
    """Chunks of a stream, items of the Responses API, choices, or messages."""
    found = [item for item in items if isinstance(item, dict)]
    if any(isinstance(item.get("choices"), list) for item in found):
        return _from_chunks(found)
    if any(str(item.get("type", "")).startswith("response.") for item in found):
        return _from_stream(found)
    if any(item.get("type") == "content_block_delta" for item in found):
        return _from_blocks(found)
    if found and all("finish_reason" in item and "message" in item for item in found):
        return _from_object({"choices": found})
    messages = [item for item in found if _spoken(item)]
    written = [_content(item) for item in messages]
    known = [part for part in written if part is not None]
    return Answer(text=text("response", "".join(known)) if known else None)


def _spoken(item: Row) -> bool:
    return item_kind(item) not in {"reasoning", "function_call", "thinking", "tool_use"}


def _from_chunks(chunks: Sequence[Row]) -> Answer:
    """A stream of chat or text completions: the pieces of the first choice put together."""
    choices = [
        choice
        for chunk in chunks
        if isinstance(chunk.get("choices"), list)
        for choice in _mappings(chunk["choices"])
    ]
    first = [choice for choice in choices if choice.get("index", 0) == 0]
    pieces = [_piece(choice) for choice in first]
    known = [piece for piece in pieces if piece is not None]
    ids = [found for choice in first if (found := ids_of(choice.get("token_ids"))) is not None]
    whole = _counts(_merged_usage(chunks))
    given = (chunk.get("prompt_token_ids") for chunk in (*chunks, *first))
    return replace(
        whole,
        text=text("response", "".join(known)) if known else None,
        model=_model(chunks[0]),
        prompt_ids=next((known_ids for part in given if (known_ids := ids_of(part))), None),
        output_ids=tuple(chain.from_iterable(ids)) if ids else None,
        choices=max((_index(choice) for choice in choices), default=0) + 1,
        failed=next((status for chunk in chunks if (status := failure_of(chunk))), None),
    )


def _index(choice: Row) -> int:
    index = choice.get("index", 0)
    return index if isinstance(index, int) else 0


def _piece(choice: Row) -> str | None:
    delta = choice.get("delta", choice.get("message"))
    found = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return found if isinstance(found, str) else _joined(found)


def _merged_usage(chunks: Sequence[Row]) -> Row:
    """The last usage that a stream gave: with continuous usage each one holds the counts so far."""
    found = [usage for chunk in chunks if isinstance(usage := chunk.get("usage"), dict)]
    return {"usage": found[-1]} if found else {}


def _from_stream(events: Sequence[Row]) -> Answer:
    """Events of the Responses API: the completed response, else the pieces of its text."""
    last = [event["response"] for event in events if isinstance(event.get("response"), dict)]
    if last and isinstance(last[-1], dict) and last[-1].get("output"):
        return _from_object(last[-1])
    pieces = [
        event.get("delta") for event in events if event.get("type") == "response.output_text.delta"
    ]
    known = "".join(piece for piece in pieces if isinstance(piece, str))
    return Answer(text=text("response", known) if pieces else None)


def _from_blocks(events: Sequence[Row]) -> Answer:
    """Events of Anthropic's API: pieces of text, the prompt's usage first, the answer's last."""
    usage: dict[str, object] = {}
    pieces = []
    for event in events:
        message = event.get("message", event)
        delta = event.get("delta")
        if isinstance(message, dict) and isinstance(message.get("usage"), dict):
            usage |= message["usage"]
        if isinstance(delta, dict) and isinstance(delta.get("text"), str):
            pieces.append(delta["text"])
    return replace(usage_of(usage), text=text("response", "".join(pieces)) if pieces else None)


def _from_object(value: Row) -> Answer:
    body = decoded(value.get("body", value))
    if not isinstance(body, dict):
        return Answer(failed=failure_of(value))
    choices = _mappings(body.get("choices"))
    first = choices[0] if choices else {}
    given = body.get("prompt_token_ids", first.get("prompt_token_ids"))
    return replace(
        _counts(body),
        text=text("response", _text_of(body, first)),
        model=_model(body),
        prompt_ids=ids_of(given),
        output_ids=ids_of(first.get("token_ids", body.get("token_ids"))),
        choices=max(len(choices), 1),
        failed=failure_of(value, body),
    )


def _model(body: Row) -> str | None:
    found = body.get("model")
    return found if isinstance(found, str) and found else None


def _mappings(value: object) -> list[Row]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text_of(body: Row, first: Row) -> str | None:
    if isinstance(body.get("choices"), list):
        message = first.get("message", first.get("delta"))
        return _content(message) if isinstance(message, dict) else _joined(first.get("text"))
    output = body.get("output")
    if isinstance(output, list):
        return _from_list(output).text
    candidates = _mappings(body.get("candidates"))
    if candidates:
        return _content(candidates[0])
    generations = body.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    if isinstance(generations, dict):
        return _joined(generations.get("text"))
    return _content(body)


def _content(message: Row) -> str | None:
    """Text of one message: a string, text parts, or Gemini's content with its parts."""
    content = message.get("content", message.get("parts", message.get("output_text")))
    kwargs = message.get("kwargs")
    if content is None and isinstance(kwargs, dict):
        content = kwargs.get("content")
    if isinstance(content, dict):
        content = content.get("parts", content.get("text"))
    found = _joined(content)
    return None if found == "" and _calls(message) else found


def _calls(message: Row) -> bool:
    """Whether a message calls tools: an empty text beside a call is no text."""
    more = message.get("additional_kwargs")
    given = more.get("tool_calls") if isinstance(more, dict) else None
    return bool(given or message.get("tool_calls") or message.get("function_call"))


def _joined(content: object) -> str | None:
    """A string, or the texts of a list of parts; None where there is no text among them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part for part in content if isinstance(part, str | dict)]
    found = [part if isinstance(part, str) else _part_text(part) for part in parts]
    known = [part for part in found if isinstance(part, str)]
    return "".join(known) if known else None


def _part_text(part: Row) -> object:
    if part.get("thought") is True or (item_kind(part) or "text") not in _TEXTS:
        return None
    return part.get("text", part.get("content"))


def _counts(body: Row) -> Answer:
    """Counts of tokens from the usage of a response."""
    usage = next((body[name] for name in _USAGE if isinstance(body.get(name), dict)), None)
    return usage_of(usage) if isinstance(usage, dict) else Answer()


def usage_of(usage: Row) -> Answer:
    """The counts alone.

    Anthropic's input tokens leave out what was read from its cache and written to it; both belong
    to the prompt.
    """
    prompt_tokens = count("prompt_tokens", _first(usage, _INPUT))
    if prompt_tokens is not None and usage.get("prompt_tokens") is None:
        prompt_tokens += sum(count("prompt_tokens", usage.get(name)) or 0 for name in _CACHED)
    details = _first(usage, _DETAILS)
    thought = details.get("reasoning_tokens") if isinstance(details, dict) else None
    return Answer(
        prompt_tokens=prompt_tokens,
        output_tokens=count("output_tokens", _first(usage, _OUTPUT)),
        reasoning_tokens=count("reasoning_tokens", thought) or 0,
    )


def _first(usage: Row, names: Sequence[str]) -> object:
    for name in names:
        if (found := usage.get(name)) is not None:
            return found
    return None
