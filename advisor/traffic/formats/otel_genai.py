"""OpenTelemetry spans of calls to models: GenAI conventions old and new, and OpenInference."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from advisor.traffic.formats.answers import Answer, answer_of
from advisor.traffic.formats.asked import Asked, asked_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft, overlaid
from advisor.traffic.formats.fields import count
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.otel_attributes import (
    Attributes,
    attributes_of,
    messages_of,
    numbered,
)
from advisor.traffic.formats.pages import page_of
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import between_s, error_status, measured

_GENERATING = frozenset({"chat", "text_completion", "generate_content", "completion", "llm"})
_STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime", "timestamp")
_ENDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
_FIRST_TOKEN = (
    "gen_ai.latency.time_to_first_token",  # vLLM
    "gen_ai.server.time_to_first_token",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.response.time_to_first_token",
)
_WHOLE = ("gen_ai.latency.e2e",)
_VALUES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "max_tokens": ("gen_ai.request.max_tokens", "llm.request.max_tokens"),
    "temperature": ("gen_ai.request.temperature", "llm.request.temperature"),
    "top_p": ("gen_ai.request.top_p", "llm.request.top_p"),
    "model": ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name"),
    "session_id": (
        "gen_ai.conversation.id", "session.id", "langfuse.session.id",
        "traceloop.association.properties.session_id",
    ),
    "class": ("gen_ai.agent.name",),
    "id": ("gen_ai.request.id", "gen_ai.response.id"),
}  # fmt: skip
_TOOLS = ("gen_ai.tool.definitions", "gen_ai.request.tools", "ai.prompt.tools")
_EVENT_ROLES = ("system", "user", "assistant", "tool")
_SPANS = (
    ("resourceSpans", "resource_spans", "data"),
    ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
    ("spans",),
)


def claims(head: Head) -> bool:
    """OTLP, or spans whose attributes have names of the conventions for models."""
    names = {*head.document, *head.names}
    if not names.isdisjoint({"resourceSpans", "resource_spans"}) or "spans" in head.document:
        return True
    if page_of(head, "data").has("traceID", "spans"):  # Jaeger
        return True
    if "spans" in names:
        return any(_is_model_span(span) for record in head.records for span in spans_in(record))
    return any(map(_is_model_span, head.records))


def _is_model_span(span: Record) -> bool:
    named = attributes_of(span.get("attributes", span.get("tags")))
    return any(name.startswith(("gen_ai.", "llm.", "openinference.")) for name in named)


def spans_in(record: Record) -> Iterable[Record]:
    """The spans of an OTLP message, of a collection, or the one that the record is."""
    nested = [name for names in _SPANS for name in names if isinstance(record.get(name), list)]
    if not nested:
        yield record
        return
    inner = record[nested[0]]
    for item in inner if isinstance(inner, list) else ():
        if isinstance(item, Mapping):
            yield from spans_in(item)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The calls of models among the spans of a record; other spans are none."""
    for span in spans_in(record):
        attributes = attributes_of(span.get("attributes", span.get("tags")))
        if _calls_model(attributes):
            yield draft(_exchange(span, attributes, notes, line), line, notes)


def _calls_model(attributes: Attributes) -> bool:
    operation = attributes.get("gen_ai.operation.name", attributes.get("llm.request.type"))
    if operation is not None:
        return str(operation).lower() in _GENERATING
    if "openinference.span.kind" in attributes:
        return attributes["openinference.span.kind"] == "LLM"
    asked = ("gen_ai.usage.", "gen_ai.prompt", "gen_ai.input.messages", "llm.token_count.")
    return any(name.startswith(asked) for name in attributes) and not any(
        name.startswith(("gen_ai.tool.name", "gen_ai.embeddings.")) for name in attributes
    )


def _exchange(span: Record, attributes: Attributes, notes: Notes, line: int) -> Exchange:
    events = _events(span)
    detailed = {**attributes, **events.get("gen_ai.client.inference.operation.details", [{}])[0]}
    start = _time(span, _STARTS)
    answer = _answer(detailed, events)
    whole_s = _seconds(attributes, _WHOLE, notes, line)
    return Exchange(
        asked=_asked(detailed, events),
        answer=answer,
        values=_values(span, detailed, answer),
        time=start,
        duration_s=whole_s if whole_s is not None else _duration_s(span, start, notes, line),
        ttft_s=_ttft_s(attributes, notes, line),
        failed=_failure(span, attributes),
        lenient=True,
    )


def _time(span: Record, names: tuple[str, ...]) -> Time | None:
    name = next((name for name in names if span.get(name)), None)
    return None if name is None else read_time(name, span[name], None)


def _duration_s(span: Record, start: Time | None, notes: Notes, line: int) -> float | None:
    if "tags" in span:  # Jaeger counts microseconds
        return measured(span.get("duration"), 1e-6, notes, line)
    return between_s(start, _time(span, _ENDS))


def _ttft_s(attributes: Attributes, notes: Notes, line: int) -> float | None:
    found = _seconds(attributes, _FIRST_TOKEN, notes, line)
    if found is not None:
        return found
    return measured(attributes.get("ai.response.msToFirstChunk"), 1e-3, notes, line)


def _seconds(
    attributes: Attributes, names: tuple[str, ...], notes: Notes, line: int
) -> float | None:
    found = overlaid(attributes, {"found": names}).get("found")
    return measured(found, 1, notes, line)


def _values(span: Record, attributes: Attributes, answer: Answer) -> dict[str, object]:
    values = overlaid(attributes, _VALUES)
    if "session_id" not in values:
        named = (value for name, value in attributes.items() if name.endswith(".session.id"))
        context = span.get("context")
        inner: Mapping[str, object] = context if isinstance(context, Mapping) else {}
        traces = (span.get("traceId"), span.get("trace_id"), span.get("traceID"))
        values["session_id"] = next(
            (name for name in (*named, *traces, inner.get("trace_id")) if name), None
        )
    if "id" not in values:
        values["id"] = overlaid(span, {"id": ("spanId", "span_id", "spanID")}).get("id")
    parameters = decoded(attributes.get("llm.invocation_parameters"))
    if isinstance(parameters, Mapping):
        names = {name: (name,) for name in ("max_tokens", "temperature", "top_p")}
        values = overlaid(parameters, names) | values
    if attributes.get("gen_ai.output.type") == "json":
        values["response_format"] = {"type": "json_object"}
    if answer.choices > 1:
        values.pop("output_tokens", None)
    return values


def _events(span: Record) -> dict[str, list[dict[str, object]]]:
    """Events by name: older instrumentations write messages into them."""
    found: dict[str, list[dict[str, object]]] = {}
    events = span.get("events", span.get("logs"))
    for event in events if isinstance(events, list) else ():
        if isinstance(event, Mapping):
            attributes = attributes_of(event.get("attributes", event.get("fields")))
            name = str(event.get("name", attributes.get("event", "")))
            found.setdefault(name, []).append(attributes)
            found.setdefault("", []).append({"name": name, **attributes})
    return found


def _asked(attributes: Attributes, events: Mapping[str, list[dict[str, object]]]) -> Asked:
    """The messages: as one attribute, numbered, or in events."""
    tools = overlaid(attributes, {"tools": _TOOLS}).get("tools") or _functions(attributes)
    system = attributes.get("gen_ai.system_instructions")
    messages: object = decoded(attributes.get("gen_ai.input.messages"))
    for prefix in ("gen_ai.prompt", "llm.input_messages", "llm.prompts"):
        messages = messages or messages_of(numbered(attributes, prefix))
    messages = messages or decoded(attributes.get("ai.prompt.messages"))  # Vercel's AI SDK
    messages = messages or decoded(attributes.get("gen_ai.prompt"))
    for event in events.get("gen_ai.content.prompt", []):
        messages = messages or decoded(event.get("gen_ai.prompt"))
    messages = messages or _spoken(events)
    if isinstance(messages, Mapping):
        return asked_of(messages)
    return asked_of({"input": messages, "system": decoded(system), "tools": decoded(tools)})


def _functions(attributes: Attributes) -> object:
    """Tools as OpenLLMetry and OpenInference number them."""
    found = numbered(attributes, "llm.request.functions") or numbered(attributes, "llm.tools")
    return [_function(tool) for tool in found]


def _function(tool: object) -> object:
    inner = tool.get("tool") if isinstance(tool, Mapping) else None
    found = decoded(inner.get("json_schema")) if isinstance(inner, Mapping) else tool
    if isinstance(found, Mapping) and isinstance(found.get("parameters"), str):
        return {**found, "parameters": decoded(found["parameters"])}
    return found


def _spoken(events: Mapping[str, list[dict[str, object]]]) -> list[object]:
    """Events like `gen_ai.user.message`, in their order."""
    found: list[object] = []
    for event in events.get("", []):
        kind = str(event["name"]).removeprefix("gen_ai.").removesuffix(".message")
        if kind in _EVENT_ROLES and event["name"] == f"gen_ai.{kind}.message":
            message = {"role": kind, "content": event.get("content")}
            calls = decoded(event.get("tool_calls"))
            if isinstance(calls, list):
                message["tool_calls"] = calls
            if isinstance(event.get("id"), str) and kind == "tool":
                message["tool_call_id"] = event["id"]
            found.append(message)
    return found


def _answer(attributes: Attributes, events: Mapping[str, list[dict[str, object]]]) -> Answer:
    """The first answer: as one attribute, numbered, or in an event."""
    written = attributes.get("gen_ai.output.text", attributes.get("ai.response.text"))
    if isinstance(written, str):
        return Answer(text=written)
    found = decoded(attributes.get("gen_ai.output.messages"))
    for prefix in ("gen_ai.completion", "llm.output_messages", "llm.completions"):
        found = found or messages_of(numbered(attributes, prefix))
    found = found or decoded(attributes.get("gen_ai.completion"))
    for event in events.get("gen_ai.content.completion", []):
        found = found or decoded(event.get("gen_ai.completion"))
    found = found or [
        decoded(event.get("message", event)) for event in events.get("gen_ai.choice", [])
    ]
    sequences = count("choices", attributes.get("gen_ai.usage.num_sequences")) or 1
    if isinstance(found, list) and found:
        return replace(answer_of(found[0]), choices=max(len(found), sequences))
    given = found if isinstance(found, str | Mapping) and found else None
    return replace(answer_of(given), choices=sequences)


def _failure(span: Record, attributes: Attributes) -> str | None:
    status = span.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, Mapping) else None
    named = str(attributes.get("otel.status_code", code)).upper().removeprefix("STATUS_CODE_")
    http = attributes.get("http.response.status_code", attributes.get("http.status_code"))
    error = attributes.get("error.type")
    known = error_status({"code": http}) if http else None
    if known not in {None, "error"}:
        return known
    failed = named in {"2", "ERROR"} or bool(error) or attributes.get("error") is True
    return error_status({"code": error}) if failed else None


OTEL_GENAI = Format(
    name="otel_genai",
    title="OpenTelemetry GenAI spans",
    claims=claims,
    drafts=drafts,
    at=(
        "resourceSpans.item.scopeSpans.item.spans.item",
        "resource_spans.item.scope_spans.item.spans.item",
        "spans.item",
        "data.item.spans.item",
    ),
    mapping={
        "messages": (
            "gen_ai.input.messages with gen_ai.system_instructions, gen_ai.prompt.N.*,"
            " llm.input_messages.N.*, ai.prompt.messages, events gen_ai.user.message and"
            " gen_ai.content.prompt"
        ),
        "response": (
            "gen_ai.output.messages, gen_ai.output.text, gen_ai.completion.0.content,"
            " llm.output_messages.0.*, ai.response.text, event gen_ai.choice"
        ),
        "prompt_tokens": "gen_ai.usage.input_tokens or prompt_tokens, llm.token_count.prompt",
        "output_tokens": "gen_ai.usage.output_tokens or completion_tokens",
        "timestamp": "startTimeUnixNano, start_time, startTime",
        "duration_s": "gen_ai.latency.e2e, else end - start",
        "ttft_s": "gen_ai.latency.time_to_first_token, gen_ai.response.time_to_first_chunk",
        "session_id": "gen_ai.conversation.id, session.id, else the trace id",
        "class": "gen_ai.agent.name",
        "id": "gen_ai.request.id, gen_ai.response.id, span id",
        "model": "gen_ai.request.model, gen_ai.response.model",
        "max_tokens": "gen_ai.request.max_tokens",
        "temperature": "gen_ai.request.temperature",
        "top_p": "gen_ai.request.top_p",
        "tools": "gen_ai.tool.definitions, llm.request.functions.N.*",
        "response_format": "gen_ai.output.type json",
        "failed": "status ERROR, error.type, http.response.status_code",
    },
    quirks=(
        (
            "Only spans of chat, text_completion and generate_content are requests; tools, agents"
            " and embeddings are not."
        ),
        "Attributes may be an object, OTLP's list of keys and values, or Jaeger's tags.",
        "vLLM's own spans hold lengths and latencies, no text.",
        "Where two instrumentations trace one call, it is in the file twice and counts twice.",
        "Times without a zone are taken as UTC.",
    ),
)
