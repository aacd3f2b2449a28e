"""LiteLLM: rows of its spend log and the standard payload that its callbacks log."""

from collections.abc import Iterable, Mapping

from advisor.traffic.formats.answers import Answer, answer_of
from advisor.traffic.formats.asked import Asked, asked_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft, overlaid
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.pages import page_of
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import between_s, error_status, failure_of, measured

_SIGNS = frozenset(
    {"spend", "response_cost", "custom_llm_provider", "model_group", "cache_key", "api_base"}
)
_NO_GENERATION = (
    "embedding", "rerank", "image", "transcription", "speech", "moderation", "file", "batch",
)  # fmt: skip
_CACHED = "were answered from the gateway's own cache and reached no model: they are kept"
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "response_format": ("response_format",),
}
_ROW: Mapping[str, tuple[str, ...]] = {
    "id": ("request_id", "id"),
    "session_id": ("session_id", "trace_id"),
    "model": ("model",),
    "prompt_tokens": ("prompt_tokens",),
    "output_tokens": ("completion_tokens",),
}


def claims(head: Head) -> bool:
    """The names of a spend log or of a standard payload: a call type, a start and a cost."""
    rows = page_of(head, "data", "logs")
    return rows.has("call_type", "startTime") and not _SIGNS.isdisjoint(rows.names)


def drafts(row: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The call of one row; calls of models that generate no text are none."""
    call = str(row.get("call_type") or "")
    if any(kind in call for kind in _NO_GENERATION):
        return
    if str(row.get("cache_hit")).lower() == "true":
        notes.add(_CACHED, line)
    start = read_time("startTime", row.get("startTime"), None)
    end = read_time("endTime", row.get("endTime"), None)
    duration_s = between_s(start, end)
    if duration_s is None:
        duration_s = measured(row.get("response_time"), 1, notes, line)
    request = _object(row.get("proxy_server_request"))
    request = _object(request.get("body")) or request
    asked = _asked(row, request)
    yield draft(
        Exchange(
            asked=asked,
            answer=_answer(row),
            values=_values(row, request),
            time=start,
            duration_s=duration_s,
            ttft_s=_ttft_s(row, start, end),
            failed=_failure(row),
            lenient=True,
        ),
        line,
        notes,
    )


def _object(value: object) -> Mapping[str, object]:
    found = decoded(value)
    return found if isinstance(found, Mapping) else {}


def _asked(row: Record, request: Mapping[str, object]) -> Asked:
    """The row's messages, else those of the request that the proxy kept."""
    messages = decoded(row.get("messages"))
    tools = request.get("tools") or _object(row.get("model_parameters")).get("tools")
    if messages:
        body = messages if isinstance(messages, Mapping) else {"input": messages}
        return asked_of({"tools": tools, **body})
    return asked_of(request) if request else Asked()


def _answer(row: Record) -> Answer:
    response = decoded(row.get("response"))
    return answer_of(response) if response else Answer()


def _values(row: Record, request: Mapping[str, object]) -> dict[str, object]:
    parameters = _object(row.get("model_parameters"))
    values = overlaid(request, _PARAMETERS) | overlaid(parameters, _PARAMETERS)
    values |= overlaid(row, _ROW)
    usage = _object(_object(row.get("metadata")).get("usage_object"))
    for ours, theirs in (
        ("prompt_tokens", "prompt_tokens"),
        ("output_tokens", "completion_tokens"),
    ):
        if not values.get(ours) and usage.get(theirs) is not None:
            values[ours] = usage[theirs]
    return values


def _ttft_s(row: Record, start: Time | None, end: Time | None) -> float | None:
    """Time to the first token. Of a call that was not streamed the log gives its end here."""
    first = read_time("completionStartTime", row.get("completionStartTime"), None)
    if first is None or end is None or first.ns >= end.ns:
        return None
    return between_s(start, first)


def _failure(row: Record) -> str | None:
    """The status of a failed call; its code is in the metadata or the error information."""
    found = failure_of(row)
    if found is None and not row.get("error_str"):
        return None
    metadata = _object(row.get("metadata"))
    for error in (row.get("error_information"), metadata.get("error_information")):
        status = error_status(_object(error))
        if status is not None:
            return status
    return found or "error"


LITELLM = Format(
    name="litellm",
    title="LiteLLM spend logs and standard logging payloads",
    claims=claims,
    drafts=drafts,
    at=("data.item", "logs.item"),
    mapping={
        "messages": "messages (also as JSON in a string), else proxy_server_request.messages",
        "response": "response.choices[0] (also as JSON in a string)",
        "prompt_tokens": "prompt_tokens, metadata.usage_object.prompt_tokens",
        "output_tokens": "completion_tokens, metadata.usage_object.completion_tokens",
        "timestamp": "startTime",
        "duration_s": "endTime - startTime, response_time",
        "ttft_s": "completionStartTime - startTime, where it is before endTime",
        "session_id": "session_id, trace_id",
        "id": "request_id, id",
        "model": "model",
        "max_tokens": "model_parameters.max_tokens, proxy_server_request.max_tokens",
        "temperature": "model_parameters.temperature, proxy_server_request.temperature",
        "top_p": "model_parameters.top_p, proxy_server_request.top_p",
        "tools": "model_parameters.tools, proxy_server_request.tools",
        "failed": "status failure with error_information.error_code",
    },
    quirks=(
        (
            "The proxy stores messages and responses as {} unless store_prompts_in_spend_logs is"
            " on: such rows are lengths."
        ),
        "Times have no zone and are taken as UTC, which no offset depends on.",
        "metadata is JSON inside a string.",
        "For a call that was not streamed completionStartTime is the end: it is no TTFT then.",
        "Embeddings, images, speech and reranking are no requests to a generating model.",
    ),
)
