"""Rows that hold lengths and no text: the rules that all such formats share."""

from collections.abc import Mapping

from advisor.traffic.formats.fields import BadField, is_nothing, number, tag
from advisor.traffic.formats.row import Draft, Notes, RequestFields
from advisor.traffic.formats.times import Time
from advisor.traffic.trace import RequestKind

# Hashes of 64 bits are written with and without a sign.
_MIN_BLOCK_ID, _MAX_BLOCK_ID = -(2**63), 2**64 - 1


def lengths_draft(
    line: int, time: Time | None, fields: RequestFields, notes: Notes, *, field: str
) -> Draft:
    """A request by its lengths; raises `BadField` for `field` where the prompt's is not known."""
    if fields.get("prompt_tokens") is None:
        raise BadField(field, "no prompt length")
    note_zeros(fields, notes, line)
    return Draft(line, RequestKind.LENGTHS, time, fields)


def note_zeros(fields: RequestFields, notes: Notes, line: int) -> None:
    """Lengths of 0 stay what they are, and are said."""
    if fields.get("prompt_tokens") == 0:
        notes.add("count 0 tokens in the prompt: kept as written", line)
    if fields.get("output_tokens") == 0:
        notes.add("count 0 tokens in the answer: kept as written", line)


def set_timings(fields: RequestFields, found: Mapping[str, float]) -> None:
    """`duration_s` and `ttft_s` where they are known."""
    if (duration_s := found.get("duration_s")) is not None:
        fields["duration_s"] = duration_s
    if (ttft_s := found.get("ttft_s")) is not None:
        fields["ttft_s"] = ttft_s


def failed_draft(line: int, status: str) -> Draft:
    """A request that the log says failed: counted by its status, nothing else of it is kept."""
    return Draft(line, RequestKind.LENGTHS, None, {}, status)


def block_ids_of(field: str, value: object) -> tuple[int, ...] | None:
    """The ids of a prompt's blocks, None when there are none."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadField(field, "not a list of block ids")
    for item in value:
        if type(item) is not int or not _MIN_BLOCK_ID <= item <= _MAX_BLOCK_ID:
            raise BadField(field, "holds what is no block id")
    return tuple(value) or None


def tag_of(row: Mapping[str, object], name: str) -> str | None:
    """A short name from the row, None when it is not there."""
    return tag(name, row.get(name))


def whole_number(field: str, value: object) -> int:
    """A count of things that are mostly absent: 0 when blank."""
    found = None if is_nothing(value) else number(field, value)
    if found is None:
        return 0
    if found != int(found) or found < 0:
        raise BadField(field, "not a count")
    return int(found)
