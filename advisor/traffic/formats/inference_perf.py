"""Requests that inference-perf recorded: `per_request_lifecycle_metrics.json`."""

import re
from collections.abc import Iterable, Mapping

from advisor.traffic.formats.answers import Answer, answer_of
from advisor.traffic.formats.asked import asked_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft
from advisor.traffic.formats.fields import Row, assign
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.lengths_row import failed_draft
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import between_s, error_status

_CODE = re.compile(r"[45]\d\d\b")
_ASKED = ("max_tokens", "temperature", "top_p", "model", "response_format")


def claims(head: Head) -> bool:
    """Objects with `start_time`, `end_time`, `request`, `response`, `info` and `error`."""
    return head.has("start_time", "end_time", "request", "response", "info", "error")


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One request; `request` is the JSON text of what was sent, `response` of what came back."""
    if (failed := _failed(record.get("error"))) is not None:
        yield failed_draft(line, failed)
        return
    start = read_time("start_time", record.get("start_time"), "s")
    body = decoded(record.get("request"))
    info = _object(record.get("info"))
    response = _object(info.get("response_metrics"))
    found = Exchange(
        asked=asked_of(body),
        answer=_answer(record.get("response"), response),
        values=_values(_object(body), info, response) | {"session_id": record.get("session_id")},
        time=start,
        duration_s=between_s(start, read_time("end_time", record.get("end_time"), "s")),
        ttft_s=_ttft_s(start, info, response),
        lenient=True,
    )
    yield draft(found, line, notes)


def _object(value: object) -> Row:
    return value if isinstance(value, Mapping) else {}


def _failed(error: object) -> str | None:
    """The code of an HTTP answer where the error names one; its message stays where it is."""
    if isinstance(error, Mapping) and isinstance(kind := error.get("error_type"), str):
        found = _CODE.match(kind)
        return found.group() if found else "error"
    return error_status(error)


def _answer(response: object, metrics: Row) -> Answer:
    """The answer as it came back; a stream's is empty there and stands in its chunks."""
    chunks = metrics.get("response_chunks")
    if not response and isinstance(chunks, list):
        response = "\n".join(chunk for chunk in chunks if isinstance(chunk, str))
    return answer_of(response) if response else Answer()


def _values(body: Row, info: Row, response: Row) -> dict[str, object]:
    """Counts of the tool and parameters of the request; a count of 0 is one not made."""
    names = assign(body)
    values: dict[str, object] = {field: body[names[field]] for field in _ASKED if field in names}
    text = _object(_object(info.get("request_metrics")).get("text"))
    usage = _object(response.get("server_usage"))
    values["prompt_tokens"] = (
        usage.get("prompt_tokens") or info.get("input_tokens") or text.get("input_tokens") or None
    )
    values["output_tokens"] = (
        usage.get("completion_tokens")
        or info.get("output_tokens")
        or response.get("output_tokens")
        or None
    )
    return values


def _ttft_s(start: Time | None, info: Row, response: Row) -> float | None:
    times = response.get("output_token_times", info.get("output_token_times"))
    first = times[0] if isinstance(times, list) and times else None
    return between_s(start, read_time("output_token_times", first, "s"))


INFERENCE_PERF = Format(
    name="inference_perf",
    title="inference-perf requests (`per_request_lifecycle_metrics.json`)",
    claims=claims,
    drafts=drafts,
    mapping={
        "timestamp": "start_time (seconds of the tool's clock)",
        "messages": "request (the JSON text of what was sent)",
        "prompt": "request",
        "max_tokens": "request",
        "temperature": "request",
        "top_p": "request",
        "model": "request",
        "response": "response, else info.response_metrics.response_chunks",
        "prompt_tokens": (
            "info.response_metrics.server_usage, else info.input_tokens,"
            " else info.request_metrics.text.input_tokens"
        ),
        "output_tokens": (
            "info.response_metrics.server_usage, else info.output_tokens,"
            " else info.response_metrics.output_tokens"
        ),
        "ttft_s": "the first of output_token_times - start_time",
        "duration_s": "end_time - start_time",
        "failed": "error",
    },
    quirks=(
        "The file is only written with `report.request_lifecycle.per_request: true`.",
        "A failed request is counted by its HTTP status, else as `error`.",
    ),
)
