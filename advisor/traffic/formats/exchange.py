"""A logged request with its answer, however a log writes it, as a draft of a `Request`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.traffic.formats.answers import Answer
from advisor.traffic.formats.asked import Asked
from advisor.traffic.formats.fields import BadField, Row, text
from advisor.traffic.formats.lengths_row import failed_draft
from advisor.traffic.formats.row import (
    Draft,
    Notes,
    RequestFields,
    check_messages,
    dumped,
    set_numbers,
    set_prompt,
    set_tags,
    settle_counts,
)
from advisor.traffic.formats.times import Time
from advisor.traffic.trace import RequestKind

IMAGES = "hold images, sound or files: only their text is kept"
SEVERAL = "asked for several answers: the first is kept, its output tokens are not known"
REASONED = "count output tokens of a reasoning that their text does not show"
SHAPE = "hold a prompt in a shape that is not known: only its length is taken"


@dataclass(slots=True, kw_only=True)
class Exchange:
    """What a record says of one request. `values` are by our names of fields (`fields.ALIASES`).

    With `lenient` a prompt that cannot be read leaves the lengths that the record gives.
    """

    asked: Asked = field(default_factory=Asked)
    answer: Answer = field(default_factory=Answer)
    values: Mapping[str, object] = field(default_factory=dict)
    time: Time | None = None
    duration_s: float | None = None
    ttft_s: float | None = None
    failed: str | None = None
    lenient: bool = False


def draft(found: Exchange, line: int, notes: Notes) -> Draft:
    """The draft; raises `BadField` with the reason why the record cannot be taken."""
    failed = found.failed or found.answer.failed
    if failed is not None:
        return failed_draft(line, failed)
    fields: RequestFields = {}
    if found.answer.text is not None:
        fields["response"] = found.answer.text
    _fill_counts(fields, found, notes, line)
    set_tags(fields, found.values)
    _fill_request(fields, found)
    kind = _fill_prompt(fields, found, notes, line)
    if kind is RequestKind.LENGTHS:
        fields.pop("response", None)
        if fields.get("prompt_tokens") is None:
            raise BadField("prompt", "neither messages nor a prompt nor a prompt length")
    else:
        settle_counts(fields, notes, line)
    return Draft(line, kind, found.time, fields)


def _fill_counts(fields: RequestFields, found: Exchange, notes: Notes, line: int) -> None:
    answer = found.answer
    given = dict(found.values)
    ids = found.asked.prompt_ids or answer.prompt_ids
    several = answer.choices > 1
    for name, counted, exact in (
        ("prompt_tokens", answer.prompt_tokens, ids),
        ("output_tokens", None if several else answer.output_tokens, answer.output_ids),
    ):
        if given.get(name) is None or (several and name == "output_tokens"):
            given[name] = counted if exact is None else len(exact)
    set_numbers(fields, given)
    if ids is not None:
        fields["prompt_ids"] = ids
    if answer.output_ids is not None:
        fields["output_ids"] = answer.output_ids
    if several:
        notes.add(SEVERAL, line)
    if answer.reasoning_tokens:
        notes.add(REASONED, line)


def _fill_request(fields: RequestFields, found: Exchange) -> None:
    values = found.values
    if not fields.get("model") and found.answer.model:
        fields["model"] = text("model", found.answer.model)
    if found.duration_s is not None:
        fields["duration_s"] = found.duration_s
    if found.ttft_s is not None:
        fields["ttft_s"] = found.ttft_s
    if found.asked.tools is not None:
        fields["tools"] = dumped("tools", found.asked.tools)
    if values.get("response_format") is not None:
        fields["response_format"] = dumped("response_format", values["response_format"])


def _fill_prompt(fields: RequestFields, found: Exchange, notes: Notes, line: int) -> RequestKind:
    asked = found.asked
    if asked.images:
        fields["images"] = asked.images
        notes.add(IMAGES, line)
    if asked.messages is None:
        prompt = text("prompt", asked.prompt)
        if not prompt:
            return RequestKind.LENGTHS
        fields["prompt"] = prompt
        return RequestKind.COMPLETION
    try:
        set_prompt(fields, check_messages(list(asked.messages)), notes, line)
    except BadField:
        if not found.lenient or fields.get("prompt_tokens") is None:
            raise
        notes.add(SHAPE, line)
        return RequestKind.LENGTHS
    return RequestKind.CHAT


def overlaid(row: Row, names: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    """Values by our names: the first of their names that is filled in."""
    found: dict[str, object] = {}
    for ours, theirs in names.items():
        for name in theirs:
            if row.get(name) is not None:
                found[ours] = row[name]
                break
    return found
