"""Rows of the usual shape, taken at once: what the rules for all rows say of them, in less time.

Most rows of a log have a list of plain messages, an answer as text, a usage of two counts and some
numbers. `usual_draft` takes those and leaves every other row to the rules (None); a law in
tests/property holds the two together.
"""

from collections.abc import Mapping
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple

from advisor.traffic.formats.fields import MAX_COUNT, assign, tag, valid
from advisor.traffic.formats.row import Draft, Notes, RequestFields, settle_counts
from advisor.traffic.formats.times import named_unit, read_time
from advisor.traffic.formats.timings import is_timed, tells_failures
from advisor.traffic.trace import RequestKind

_TAKEN = frozenset(
    {"messages", "response", "usage", "timestamp", "id", "session_id", "class", "model"}
    | {"max_tokens", "temperature", "top_p", "prompt_tokens", "output_tokens"}
)
_TAGS = (("id", "source_id"), ("session_id", "session"), ("class", "label"), ("model", "model"))
_COUNTS = ("max_tokens", "prompt_tokens", "output_tokens")
_SHARES = (("temperature", 100), ("top_p", 1))
_USAGE = (("prompt_tokens", "prompt_tokens"), ("completion_tokens", "output_tokens"))
# Keys that change what a row means, whatever field they are.
_SPECIAL = frozenset(
    {"body", "request", "choices", "model", "instructions", "prompt_token_ids", "output_token_ids"}
    | {"token_ids", "functions", "system"}
)
_ROLES = frozenset({"system", "user", "assistant"})
_MESSAGE = ("role", "content")
_TOTALS = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
# What an answer begins with that may be a response or a stream written as text.
_WRITTEN = frozenset('{[" \t\r\n')


class _Plan(NamedTuple):
    """Which key of a row carries what; the same for all rows with the same keys."""

    messages: str
    response: str | None
    usage: str | None
    time: str | None
    unit: str | None
    tags: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, str], ...]
    shares: tuple[tuple[str, str, float], ...]


@lru_cache(maxsize=4096)
def _plan(names: tuple[str, ...]) -> _Plan | None:
    fields = assign(names)
    special = _SPECIAL.intersection(names) - {fields.get("model")}
    odd = special or is_timed(names) or tells_failures(names)
    if odd or "messages" not in fields or not _TAKEN.issuperset(fields):
        return None
    time = fields.get("timestamp")
    return _Plan(
        messages=fields["messages"],
        response=fields.get("response"),
        usage=fields.get("usage"),
        time=time,
        unit=None if time is None else named_unit(time),
        tags=tuple((fields[field], ours) for field, ours in _TAGS if field in fields),
        counts=tuple((fields[field], field) for field in _COUNTS if field in fields),
        shares=tuple((fields[name], name, most) for name, most in _SHARES if name in fields),
    )


def usual_draft(row: Mapping[str, object], line: int, notes: Notes) -> Draft | None:
    """The draft of a usual row; None for one that needs the rules. Raises `BadField` as they do."""
    plan = _plan(tuple(row))
    if plan is None:
        return None
    messages = _messages(row[plan.messages])
    fields: RequestFields = {}
    if messages is None or not _numbers(fields, row, plan):
        return None
    if plan.response is not None and (response := row[plan.response]) is not None:
        if type(response) is not str or _may_be_encoded(response):
            return None
        fields["response"] = valid("response", response)
    for name, ours in plan.tags:
        fields[ours] = tag(ours, row[name])  # type: ignore[literal-required]
    fields["messages"] = messages
    settle_counts(fields, notes, line)
    time = None if plan.time is None else read_time(plan.time, row[plan.time], plan.unit)
    return Draft(line, RequestKind.CHAT, time, fields)


def _may_be_encoded(response: str) -> bool:
    return response[:1] in _WRITTEN or response.startswith("data:")


def _messages(value: object) -> str | None:
    """JSON text of plain messages whose last is no answer."""
    if type(value) is not list or not value:
        return None
    role: object = None
    for message in value:
        if type(message) is not dict or tuple(message) != _MESSAGE:
            return None
        role = message["role"]
        if type(role) is not str or role not in _ROLES or type(message["content"]) is not str:
            return None
    if role == "assistant":
        return None
    rows = (
        f'{{"role": "{item["role"]}", "content": {encode_basestring(item["content"])}}}'
        for item in value
    )
    return valid("messages", f"[{', '.join(rows)}]")


def _numbers(fields: RequestFields, row: Mapping[str, object], plan: _Plan) -> bool:
    """Fill in counts and sampling; False where one of them is no plain number."""
    if plan.usage is not None and not _usage(fields, row[plan.usage]):
        return False
    for name, ours in plan.counts:
        if not _count(fields, ours, row[name]):
            return False
    for name, ours, most in plan.shares:
        value = row[name]
        if value is not None and not (type(value) in {int, float} and 0 <= value <= most):  # type: ignore[operator]
            return False
        fields[ours] = None if value is None else float(value)  # type: ignore[literal-required,arg-type]
    return True


def _usage(fields: RequestFields, usage: object) -> bool:
    if usage is None:
        return True
    if type(usage) is not dict or not _TOTALS.issuperset(usage):
        return False
    return all(_count(fields, ours, usage.get(name)) for name, ours in _USAGE)


def _count(fields: RequestFields, name: str, value: object) -> bool:
    if value is None:
        fields.setdefault(name, None)  # type: ignore[misc]
        return True
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        return False
    fields[name] = value  # type: ignore[literal-required]
    return True
