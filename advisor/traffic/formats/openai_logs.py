"""Logs of an OpenAI-style gateway: one record per call, the request and its response inside."""

from collections.abc import Iterable, Mapping

from advisor.traffic.formats.chat_jsonl import exchange_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.row import Draft, Notes

# What a gateway calls the two halves of a call.
REQUESTS = ("request", "body", "request_body", "requestBody", "req", "kwargs")
RESPONSES = (
    "response", "response_body", "responseBody", "resp", "chunks", "stream_chunks", "events",
    "stream_response",
)  # fmt: skip
# Names by which other formats are known; their own parsers know their quirks.
_OTHERS = frozenset(
    {
        "custom_id", "conversations", "request_created_at", "response_created_at", "call_type",
        "traceId", "resourceSpans", "spans", "observations", "attributes", "hash_ids",
    }
)  # fmt: skip
_ASKED = frozenset({"messages", "prompt", "input"})
_ANSWERED = frozenset({"choices", "output", "candidates", "body"})
_EMBEDDINGS = ("embeddings", "rerank", "score", "moderations", "audio/transcriptions", "models")


def claims(head: Head) -> bool:
    """A record with a request object, or messages beside a response object or its chunks."""
    return _OTHERS.isdisjoint({*head.names, *head.document}) and any(map(_is_call, head.records))


def _is_call(record: Record) -> bool:
    asked = _half(record, REQUESTS)
    if isinstance(asked, Mapping) and not _ASKED.isdisjoint(asked):
        return True
    if isinstance(record.get("choices"), list):
        return True
    if _ASKED.isdisjoint(record) or isinstance(record.get("response"), str):
        return False
    answered = _half(record, RESPONSES)
    if isinstance(answered, list):
        return any(isinstance(item, Mapping) for item in answered)
    return isinstance(answered, Mapping) and not _ANSWERED.isdisjoint(answered)


def _half(record: Record, names: tuple[str, ...]) -> object:
    found = (decoded(record[name]) for name in names if record.get(name))
    return next((half for half in found if isinstance(half, Mapping | list)), None)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The call of one record; calls of models that generate nothing are none."""
    path = record.get("path", record.get("endpoint", record.get("url")))
    if isinstance(path, str) and path.rstrip("/").endswith(_EMBEDDINGS):
        return
    yield draft(call_of(record, line, notes), line, notes)


def call_of(record: Record, line: int, notes: Notes) -> Exchange:
    """The two halves under the names that the generic rules know."""
    row = dict(record)
    asked = _half(record, REQUESTS)
    if isinstance(asked, Mapping):
        row["request"] = asked
    answered = _half(record, RESPONSES)
    if answered is not None:
        row["response"] = answered
    return exchange_of(row, line, notes)


OPENAI_LOGS = Format(
    name="openai_logs",
    title="OpenAI-style request and response logs",
    claims=claims,
    drafts=drafts,
    mapping={
        "messages": "request.messages, or request.input with request.instructions (Responses API)",
        "prompt": "request.prompt",
        "response": "response.choices[0] or response.output; the chunks of a stream put together",
        "prompt_tokens": "response.usage.prompt_tokens or input_tokens",
        "output_tokens": "response.usage.completion_tokens or output_tokens",
        "tools": "request.tools, request.functions",
        "images": "parts of the messages that are not text",
        "max_tokens": "request.max_tokens, max_completion_tokens, max_output_tokens",
        "temperature": "request.temperature",
        "top_p": "request.top_p",
        "response_format": "request.response_format",
        "model": "request.model, else response.model",
        "timestamp": "timestamp, start_time, created_at and other names of times",
        "duration_s": "latency_s, latency_ms, duration_ms, response_time_ms, or end_time - start",
        "ttft_s": "ttft_s, ttft_ms, time_to_first_token_ms",
        "session_id": "session_id, conversation_id, thread_id",
        "prompt_ids": "response.prompt_token_ids (vLLM with return_token_ids)",
        "output_ids": "response.choices[0].token_ids (vLLM with return_token_ids)",
        "failed": "status_code of 400 and above, error objects",
    },
    quirks=(
        (
            "The request may lie under request, body, request_body or req, also as JSON in a"
            " string; the response under response, response_body, resp, chunks or events."
        ),
        "A latency is read only where its name says the unit (latency_ms, duration_s).",
        (
            "With n above 1 the first choice is kept; its output tokens are known from its token"
            " ids only, because usage counts all choices."
        ),
        "Pictures, sound and files are counted, not kept.",
    ),
)
