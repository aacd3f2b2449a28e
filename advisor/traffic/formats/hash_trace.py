"""Traces of lengths and ids of prompt blocks: Mooncake, Bailian, timed traces of `vllm bench`.

The ids of a prompt's blocks show which prompts share a prefix without showing any text. How many
tokens a block has is not in the file: it follows from lengths and numbers of ids.
"""

from collections.abc import Callable, Iterable
from functools import partial

from advisor.traffic.formats.fields import Row, assign, count
from advisor.traffic.formats.format import Format, Framing, Head, Record
from advisor.traffic.formats.lengths_row import block_ids_of, lengths_draft
from advisor.traffic.formats.row import Draft, Notes, RequestFields, set_tags
from advisor.traffic.formats.times import Time, named_unit, read_time

MOONCAKE_TOKENS = 512
ENGINE_TOKENS = 16  # the default of `--timed-trace-chunk-hash-size` and of vLLM's own blocks
# Sizes that a file may have; of several that fit, the first is taken.
BLOCK_SIZES = (MOONCAKE_TOKENS, ENGINE_TOKENS, 32, 64, 128, 256, 1024)
_FITTING_SHARE = 0.9
_IDS = "hash_ids"
_LENGTH = "input_length"


def block_size_of(records: Iterable[Row]) -> int | None:
    """Tokens a block, from lengths and numbers of ids; None when no known size fits.

    A prompt of L tokens has L/B ids, with its last, half full block counted in all rows (Mooncake)
    or in none (vLLM, which shares full blocks only).
    """
    pairs = [pair for record in records if (pair := _sizes(record)) is not None]
    if not pairs:
        return None
    for size in BLOCK_SIZES:
        with_last = sum(blocks == -(-length // size) for length, blocks in pairs)
        full_only = sum(blocks == length // size for length, blocks in pairs)
        if max(with_last, full_only) >= _FITTING_SHARE * len(pairs):
            return size
    return None


def _sizes(record: Row) -> tuple[int, int] | None:
    """Prompt length and number of block ids; None for a row that says nothing about the size."""
    length, ids = record.get(_LENGTH), record.get(_IDS)
    if type(length) is not int or not isinstance(ids, list) or not ids:
        return None
    return length, len(ids)


def claims_size(size: int, head: Head) -> bool:
    """Rows with `input_length` and `hash_ids`, as many ids as the length has blocks."""
    return (
        head.framing in (Framing.JSONL, Framing.JSON, Framing.PARQUET)
        and not head.document  # one row alone fits several sizes
        and head.has(_LENGTH, _IDS)
        and block_size_of(head.records) == size
    )


def claims_bailian(head: Head) -> bool:
    """Rows with `chat_id`, `parent_chat_id`, `turn` and `input_length`."""
    return head.has("chat_id", "parent_chat_id", "turn", _LENGTH)


def sized_drafts(
    record: Record, line: int, notes: Notes, *, size: int, unit: str | None
) -> Iterable[Draft]:
    """One row, one request. `unit` is that of the times unless their name says another."""
    names = assign(record)
    values: dict[str, object] = {field: record[name] for field, name in names.items()}
    fields = _lengths(record)
    set_tags(fields, values)
    _take_blocks(fields, record, size=size, notes=notes, line=line)
    yield lengths_draft(line, _time(record, unit), fields, notes, field=_LENGTH)


def bailian_drafts(record: Record, line: int, notes: Notes) -> Iterable[Draft]:
    """One row, one request. Its chat id is its own, so that it names no session."""
    fields = _lengths(record)
    set_tags(fields, {"id": record.get("chat_id"), "class": record.get("type")})
    _take_blocks(fields, record, size=ENGINE_TOKENS, notes=notes, line=line)
    yield lengths_draft(line, _time(record, "s"), fields, notes, field=_LENGTH)


def _lengths(record: Record) -> RequestFields:
    return {
        "prompt_tokens": count(_LENGTH, record.get(_LENGTH)),
        "output_tokens": count("output_length", record.get("output_length")),
    }


def _time(record: Record, unit: str | None) -> Time | None:
    name = assign(record).get("timestamp")
    return None if name is None else read_time(name, record[name], named_unit(name) or unit)


def _take_blocks(
    fields: RequestFields, record: Record, *, size: int, notes: Notes, line: int
) -> None:
    """Block ids, unless there are more or fewer than the prompt has blocks."""
    ids = block_ids_of(_IDS, record.get(_IDS))
    length = fields.get("prompt_tokens")
    if ids is None or length is None:
        return
    if len(ids) in (length // size, -(-length // size)):
        fields["block_ids"] = ids
    else:
        notes.add(
            f"have another number of block ids than their prompt has blocks of {size} tokens:"
            " the ids were left out",
            line,
        )


def _format(
    name: str, title: str, *, size: int, unit: str | None, quirks: tuple[str, ...]
) -> Format:
    return Format(
        name=name,
        title=title,
        claims=partial(claims_size, size),
        drafts=_drafts(size, unit),
        mapping={
            "timestamp": "timestamp, timestamp_ms" + (f" ({unit})" if unit else ""),
            "prompt_tokens": _LENGTH,
            "output_tokens": "output_length",
            "block_ids": _IDS,
            "session_id": "session_id",
            "id": "request_id",
        },
        block_tokens=size,
        quirks=quirks,
    )


def _drafts(size: int, unit: str | None) -> Callable[[Record, int, Notes], Iterable[Draft]]:
    return partial(sized_drafts, size=size, unit=unit)


_SHARED = (
    (
        "The tokens of a block are read off from lengths and numbers of ids in the first rows;"
        " a row whose number of ids does not fit keeps its lengths and loses its ids."
    ),
)
MOONCAKE = _format(
    "mooncake",
    "Mooncake trace (JSON Lines, blocks of 512 tokens)",
    size=MOONCAKE_TOKENS,
    unit="ms",
    quirks=(
        *_SHARED,
        (
            "Times are milliseconds from the start. Those of the conversation trace come in ticks"
            " of about three seconds: gaps between arrivals are an artefact there."
        ),
    ),
)
TIMED_TRACE = _format(
    "vllm_timed_trace",
    "Timed trace of `vllm bench serve --dataset-name timed_trace` (blocks of 16 tokens)",
    size=ENGINE_TOKENS,
    unit=None,
    quirks=(
        *_SHARED,
        (
            "The unit of the times is an option of the tool, not in the file: seconds unless the"
            " name says another (`timestamp_ms`) or `time_unit` is given."
        ),
    ),
)
OTHER_SIZES = tuple(
    _format(
        f"hash_trace_{size}",
        "Trace with block ids of another size",
        size=size,
        unit=None,
        quirks=(*_SHARED, "Blocks of 32, 64, 128, 256 and 1,024 tokens are known."),
    )
    for size in BLOCK_SIZES
    if size not in (MOONCAKE_TOKENS, ENGINE_TOKENS)
)
BAILIAN = Format(
    name="bailian",
    title="Qwen-Bailian trace (JSON Lines, blocks of 16 tokens)",
    claims=claims_bailian,
    drafts=bailian_drafts,
    mapping={
        "timestamp": "timestamp (seconds)",
        "prompt_tokens": _LENGTH,
        "output_tokens": "output_length",
        "block_ids": _IDS,
        "class": "type",
        "id": "chat_id",
    },
    block_tokens=ENGINE_TOKENS,
    quirks=(
        (
            "`chat_id` numbers requests, `parent_chat_id` the request before: sessions are not put"
            " together from them. Lengths are those of whole prompts."
        ),
    ),
)
HASH_TRACES = (BAILIAN, MOONCAKE, TIMED_TRACE, *OTHER_SIZES)
