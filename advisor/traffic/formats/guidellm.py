"""Requests in a GuideLLM report: one record is one benchmark with its lists of requests."""

from collections.abc import Iterable, Iterator, Mapping

from advisor.traffic.formats.answers import Answer
from advisor.traffic.formats.asked import Asked, asked_of
from advisor.traffic.formats.decoding import decoded
from advisor.traffic.formats.exchange import Exchange, draft
from advisor.traffic.formats.fields import BadField, Row, assign, text
from advisor.traffic.formats.format import Format, Head, Record
from advisor.traffic.formats.lengths_row import failed_draft
from advisor.traffic.formats.row import Draft, Notes
from advisor.traffic.formats.times import Time, read_time
from advisor.traffic.formats.timings import between_s

FAILURES: Mapping[str, str] = {"errored": "error", "incomplete": "incomplete"}
NO_REQUESTS = "the report keeps totals and no single requests"
_ASKED = ("max_tokens", "temperature", "top_p", "model", "response_format")
_LEFT_OUT = "hold a request whose lengths or times are none: it was left out"
_SAMPLED = "is a benchmark of which the report keeps a part: the run sent more, and more often"
_KEYS = frozenset({"benchmarks", "metadata", "config", "args", "type_", "version"})
_STARTS = ("request_start_time", "start_time")
_ENDS = ("request_end_time", "end_time")
_FIRSTS = ("first_token_time",)


def benchmarks_of(head: Head) -> list[Row] | None:
    """The benchmarks of a report; None where it is none, empty where they are not shown."""
    if "benchmarks" not in head.document or not _KEYS.issuperset(head.document):
        return None
    shown = head.records[0].get("benchmarks") if head.records else None
    if not isinstance(shown, list):
        return []
    found = [item for item in shown if isinstance(item, Mapping)]
    return found if all("requests" in item for item in found) else None


def holds_requests(record: Record) -> bool:
    """Whether a benchmark's lists of requests hold any."""
    requests = record.get("requests")
    return isinstance(requests, Mapping) and any(
        requests.get(name) for name in ("successful", *FAILURES)
    )


def claims(head: Head) -> bool:
    """A document with `benchmarks` that have lists of `requests`."""
    found = benchmarks_of(head)
    return found is not None and (not found or any(map(holds_requests, found)))


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One benchmark, as many requests as its lists hold, numbered on from `line`."""
    requests = record.get("requests")
    if not isinstance(requests, Mapping) or not holds_requests(record):
        raise BadField("requests", NO_REQUESTS)
    good = requests.get("successful")
    if isinstance(good, list) and len(good) < _succeeded(record):
        notes.add(_SAMPLED, line)
    return _requests(requests, line, notes)


def _succeeded(record: Record) -> int:
    """How many requests of the benchmark succeeded, 0 where it does not say."""
    scheduler = _object(record.get("scheduler_metrics"))
    for totals in (scheduler.get("requests_made"), record.get("request_totals")):
        found = _object(totals).get("successful")
        if isinstance(found, int):
            return found
    return 0


def _requests(requests: Row, line: int, notes: Notes) -> Iterator[Draft]:
    good = requests.get("successful")
    for item in good if isinstance(good, list) else ():
        try:
            yield draft(_exchange(item), line, notes)
        except BadField:
            notes.add(_LEFT_OUT, line)
        line += 1
    for name, status in FAILURES.items():
        bad = requests.get(name)
        for _ in bad if isinstance(bad, list) else ():
            yield failed_draft(line, status)
            line += 1


def _exchange(item: object) -> Exchange:
    row = _object(item)
    body = _body(row)
    names = assign(body)
    values: dict[str, object] = {field: body[names[field]] for field in _ASKED if field in names}
    values["id"] = row.get("request_id")
    values["prompt_tokens"] = _count(row, "prompt_tokens", "input_metrics")
    values["output_tokens"] = _count(row, "output_tokens", "output_metrics")
    start = _moment(row, _STARTS, "request_start")
    first = _moment(row, _FIRSTS, "first_token_iteration")
    return Exchange(
        asked=_asked(row, body),
        answer=Answer(text=text("output", row.get("output"))),
        values=values,
        time=start,
        duration_s=between_s(start, _moment(row, _ENDS, "request_end")),
        ttft_s=between_s(start, first),
        lenient=True,
    )


def _object(value: object) -> Row:
    return value if isinstance(value, Mapping) else {}


def _body(row: Row) -> Row:
    """What was sent: the body in the request's arguments, which newer versions write as text."""
    arguments = _object(decoded(row.get("request_args")))
    return _object(arguments.get("body", arguments))


def _asked(row: Row, body: Row) -> Asked:
    found = asked_of(body)
    prompt = row.get("prompt")
    if found.messages is not None or found.prompt is not None or not isinstance(prompt, str):
        return found
    if str(row.get("request_type", "")).startswith(("chat", "/v1/chat")):
        return asked_of([{"role": "user", "content": prompt}])
    return Asked(prompt=prompt)


def _count(row: Row, name: str, metrics: str) -> object:
    """A count by its old name, else among the metrics of newer versions; 0 is one not made."""
    found = row.get(name)
    if found is None:
        parts = _object(row.get(metrics))
        found = parts.get("text_tokens", parts.get("total_tokens"))
    return found or None


def _moment(row: Row, names: tuple[str, ...], timing: str) -> Time | None:
    """A time of the request by its computed name, else from the timings of the scheduler."""
    for name in names:
        if row.get(name) is not None:
            return read_time(name, row[name], "s")
    for place, inner in (("info", "timings"), ("scheduler_info", "request_timings")):
        found = _object(_object(row.get(place)).get(inner)).get(timing)
        if found is not None:
            return read_time(timing, found, "s")
    return None


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM report (JSON, versions 1 and 2)",
    claims=claims,
    drafts=drafts,
    mapping={
        "timestamp": "request_start_time, start_time, info.timings.request_start (epoch seconds)",
        "messages": "request_args.body, else prompt",
        "prompt": "request_args.body, else prompt",
        "max_tokens": "request_args.body",
        "temperature": "request_args.body",
        "top_p": "request_args.body",
        "model": "request_args.body",
        "response": "output",
        "prompt_tokens": "prompt_tokens, else input_metrics.text_tokens",
        "output_tokens": "output_tokens, else output_metrics.text_tokens",
        "ttft_s": "first_token_time, info.timings.first_token_iteration, minus the start",
        "duration_s": "request_end_time, end_time, info.timings.request_end, minus the start",
        "id": "request_id",
        "failed": "the lists errored and incomplete",
    },
    at=("benchmarks.item",),
    quirks=(
        "Requests of all benchmarks of a report are taken together, each at its own time.",
        "With `--sample-requests` a report keeps a part of its requests; a warning says so.",
        "Rows are numbered from the number of their benchmark on.",
    ),
)
