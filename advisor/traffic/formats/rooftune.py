"""Our own JSON Lines: every field of a request, so that reading gives back what was written."""

import json
from collections.abc import Iterable, Mapping
from functools import partial

from advisor.errors import InvalidInput
from advisor.traffic.formats.fields import BadField, bounded, count, text
from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.hash_trace import BLOCK_SIZES
from advisor.traffic.formats.row import (
    Draft,
    Notes,
    RequestFields,
    check_messages,
    dumped,
    set_numbers,
    set_tags,
)
from advisor.traffic.formats.times import read_time
from advisor.traffic.trace import Request, RequestKind

VERSION = 1
_MARK = "rooftune"
_BLOCK_TOKENS = "block_tokens"
_LONGEST_S = 1e7
_IDS = ("block_ids", "prompt_ids", "output_ids")
_SMALLEST_ID, _LARGEST_ID = -(1 << 63), (1 << 64) - 1
# Our field to the name in the file, for what is written as it is.
_PLAIN: Mapping[str, str] = {
    "source_id": "id",
    "label": "class",
    "session": "session_id",
    "model": "model",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "duration_s": "duration_s",
    "ttft_s": "ttft_s",
    "prompt": "prompt",
    "response": "response",
}
_AS_JSON = ("messages", "tools", "response_format")


def row_of(request: Request, block_tokens: int | None) -> str:
    """One line of the file, without its end. `block_tokens` are behind one of the block ids.

    `arrival_s` is whole nanoseconds, as in requests that were read. Raises `InvalidInput` for a
    size of blocks that reading does not know.
    """
    row: dict[str, object] = {_MARK: VERSION}
    if request.arrival_s is not None:
        row["timestamp"] = request.arrival_s
    for name in _AS_JSON:
        if (found := getattr(request, name)) is not None:
            row[name] = json.loads(found)
    row |= {
        theirs: value
        for ours, theirs in _PLAIN.items()
        if (value := getattr(request, ours)) is not None
    }
    if request.images:
        row["images"] = request.images
    row |= {name: value for name in _IDS if (value := getattr(request, name)) is not None}
    if block_tokens is not None:
        if block_tokens not in BLOCK_SIZES:
            raise InvalidInput(_BLOCK_TOKENS, f"{block_tokens} is none of {BLOCK_SIZES}")
        row[_BLOCK_TOKENS] = block_tokens
    return json.dumps(row, ensure_ascii=False, allow_nan=False)


def drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One row, one request. Values are checked: anybody can write such a file."""
    del notes  # nothing here is read in two ways
    if record.get(_MARK) != VERSION:
        raise BadField(_MARK, f"not version {VERSION}, the only one so far")
    fields: RequestFields = {}
    kind = _fill_text(fields, record)
    set_tags(fields, record)
    set_numbers(fields, record)
    if "images" in record:
        fields["images"] = count("images", record["images"]) or 0
    fields["duration_s"] = bounded("duration_s", record.get("duration_s"), _LONGEST_S)
    fields["ttft_s"] = bounded("ttft_s", record.get("ttft_s"), _LONGEST_S)
    fields["block_ids"] = _ids("block_ids", record)
    fields["prompt_ids"] = _ids("prompt_ids", record)
    fields["output_ids"] = _ids("output_ids", record)
    if kind is RequestKind.LENGTHS and fields.get("prompt_tokens") is None:
        raise BadField("prompt", "neither messages nor a prompt nor a prompt length")
    yield Draft(line, kind, read_time("timestamp", record.get("timestamp"), "s"), fields)


def _fill_text(fields: RequestFields, record: Record) -> RequestKind:
    for name in ("tools", "response_format"):
        if record.get(name) is not None:
            fields[name] = dumped(name, record[name])
    if (response := text("response", record.get("response"))) is not None:
        fields["response"] = response
    if (messages := record.get("messages")) is not None:
        fields["messages"] = dumped("messages", check_messages(messages))
        return RequestKind.CHAT
    if (prompt := text("prompt", record.get("prompt"))) is not None:
        fields["prompt"] = prompt
        return RequestKind.COMPLETION
    return RequestKind.LENGTHS


def _ids(name: str, record: Record) -> tuple[int, ...] | None:
    found = record.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(
        type(item) is int and _SMALLEST_ID <= item <= _LARGEST_ID for item in found
    ):
        raise BadField(name, "not a list of whole numbers of 64 bits")
    return tuple(found)


def _claims(head: Head, *, block_tokens: int | None) -> bool:
    """Rows with the key `rooftune`."""
    if head.framing not in (Framing.JSONL, Framing.JSON) or not head.has(_MARK):
        return False
    sizes = {record.get(_BLOCK_TOKENS) for record in head.records} - {None}
    return sizes == ({block_tokens} if block_tokens is not None else set())


def _format(block_tokens: int | None) -> Format:
    return Format(
        name=_MARK if block_tokens is None else f"{_MARK}_blocks_{block_tokens}",
        title="Rooftune's own JSON Lines (`rooftune workload derive`)",
        claims=partial(_claims, block_tokens=block_tokens),
        drafts=drafts,
        mapping={
            "timestamp": "timestamp (seconds from the start)",
            **{name: name for name in (*_AS_JSON, "images", *_IDS)},
            **{_NAMED.get(ours, ours): theirs for ours, theirs in _PLAIN.items()},
        },
        block_tokens=block_tokens,
    )


_NAMED = {"source_id": "id", "label": "class", "session": "session_id"}
OWN = (_format(None), *(_format(size) for size in sorted(BLOCK_SIZES)))
