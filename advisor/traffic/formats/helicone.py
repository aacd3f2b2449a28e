"""Helicone: exported requests with their bodies (JSON, JSON Lines or CSV)."""

from collections.abc import Iterable, Mapping

from advisor.traffic.formats.answers import Answer, answer_of
from advisor.traffic.formats.asked import Asked, asked_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft, overlaid
from advisor.traffic.formats.fields import BadField, count, is_nothing, number
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.pages import page_of
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import read_time
from advisor.traffic.formats.timings import between_s, error_status, failure_of, measured

_MS = 1e-3
_SIGNS = frozenset({"request_body", "response_status", "delay_ms", "response_id", "request_path"})
_NO_GENERATION = ("embeddings", "rerank", "moderations", "images/generations", "transcriptions")
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "response_format": ("response_format",),
}
_SESSIONS = ("Helicone-Session-Id", "helicone-session-id", "session_id", "sessionId")


def claims(head: Head) -> bool:
    """The names of Helicone's request table."""
    rows = page_of(head, "data")
    return rows.has("request_created_at") and not _SIGNS.isdisjoint(rows.names)


def drafts(row: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """The request of one row; calls of models that generate no text are none."""
    path = row.get("request_path")
    if isinstance(path, str) and path.rstrip("/").endswith(_NO_GENERATION):
        return
    asked = body_of(row.get("request_body"))
    answered = body_of(row.get("response_body"))
    time = read_time("request_created_at", row.get("request_created_at"), None)
    duration_s = measured(_cell(row, "delay_ms"), _MS, notes, line)
    if duration_s is None:
        end = read_time("response_created_at", _cell(row, "response_created_at"), None)
        duration_s = between_s(time, end)
    answer = answer_of(answered) if answered else Answer()
    yield draft(
        Exchange(
            asked=asked_of(asked) if asked else Asked(),
            answer=answer,
            values=_values(row, asked, answer),
            time=time,
            duration_s=duration_s,
            ttft_s=measured(_cell(row, "time_to_first_token"), _MS, notes, line) or None,
            failed=_failure(row, answered),
            lenient=True,
        ),
        line,
        notes,
    )


def body_of(value: object) -> object:
    """A body as an object; the CSV export doubles the quotes of its JSON once too often."""
    found = decoded(value)
    if isinstance(found, str) and found.startswith(('{""', '[{""')):
        found = decoded(found.replace('""', '"'))
    return found


def _cell(row: Record, name: str) -> object:
    value = row.get(name)
    return None if is_nothing(value) else value


def _values(row: Record, asked: object, answer: Answer) -> dict[str, object]:
    values = overlaid(asked, _PARAMETERS) if isinstance(asked, Mapping) else {}
    names = {"id": ("request_id", "response_id"), "model": ("request_model", "model")}
    values |= overlaid({name: cell for name, cell in row.items() if not is_nothing(cell)}, names)
    properties = (decoded(row.get("request_properties")), decoded(row.get("properties")))
    for found in properties:
        session = overlaid(found, {"session_id": _SESSIONS}) if isinstance(found, Mapping) else {}
        values |= session
    if answer.prompt_tokens is None:
        values["prompt_tokens"] = _prompt_tokens(row)
    if answer.output_tokens is None:
        values["output_tokens"] = _cell(row, "completion_tokens")
    return values


def _prompt_tokens(row: Record) -> int | None:
    """The table's own count; Anthropic's leaves out what its cache read and wrote."""
    found = count("prompt_tokens", _cell(row, "prompt_tokens"))
    if found is None or str(row.get("provider")).upper() != "ANTHROPIC":
        return found
    cached = ("prompt_cache_read_tokens", "prompt_cache_write_tokens")
    return found + sum(count(name, _cell(row, name)) or 0 for name in cached)


def _failure(row: Record, answered: object) -> str | None:
    """A status of 400 and above; Helicone's own below 0 are time-outs and cancellations."""
    status = _cell(row, "response_status")
    try:
        code = number("response_status", status)
    except BadField:
        code = None
    if code is not None and code < 0:
        return "error"
    error = answered.get("error") if isinstance(answered, Mapping) else None
    return failure_of({"response_status": status}) or error_status(error)


HELICONE = Format(
    name="helicone",
    title="Helicone request export",
    claims=claims,
    drafts=drafts,
    at=("data.item",),
    mapping={
        "messages": "request_body.messages, contents or input",
        "prompt": "request_body.prompt",
        "response": "response_body",
        "prompt_tokens": "response_body.usage, else prompt_tokens",
        "output_tokens": "response_body.usage, else completion_tokens",
        "timestamp": "request_created_at",
        "duration_s": "delay_ms, else response_created_at - request_created_at",
        "ttft_s": "time_to_first_token (ms)",
        "session_id": "request_properties.Helicone-Session-Id",
        "id": "request_id, response_id",
        "model": "request_model, model",
        "max_tokens": "request_body.max_tokens",
        "temperature": "request_body.temperature",
        "top_p": "request_body.top_p",
        "tools": "request_body.tools",
        "failed": "response_status of 400 and above or below 0",
    },
    quirks=(
        "Bodies are in the export only with --include-body; without them rows are lengths.",
        "The CSV export doubles the quotes of a JSON body twice; both forms are read.",
        "The CSV column latency is left empty by the export; delay_ms is read where it is there.",
        "A status below 0 is Helicone's own (time-out, cancelled): such requests count as failed.",
    ),
)
