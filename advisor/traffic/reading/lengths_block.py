"""Tables of lengths read by blocks: what reading row by row gives, without an object for a row.

A block that holds anything out of the ordinary (a quote, a blank line, a cell that is no number)
is left to the reader of rows, so that reasons and numbers of bad rows are the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from advisor.traffic.facts import UNKNOWN, Flags, Floats, Integers
from advisor.traffic.formats.fields import MAX_COUNT, NOTHING
from advisor.traffic.formats.times import (
    ASSUMED,
    EPOCH_FROM_NS,
    EPOCH_UNITS,
    ISO,
    LATEST_NS,
    NAMED,
    NS_PER_S,
    overridden_all,
)
from advisor.traffic.reading.lengths_columns import COUNTS, NAMES, RATIOS, TEXT, Chunk

# The field of a request for each column that a table may have.
FIELD_OF: Mapping[str, str] = {
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "id": "source_id",
    "session_id": "session",
    "class": "label",
    "model": "model",
}
# Times of a row: none, an offset from some start, a moment, with the unit they were read in.
NO_TIME = -1
UNITS: tuple[tuple[str, bool], ...] = (
    (ISO, True),
    *((name, True) for _, name, _ in EPOCH_UNITS),
    (ASSUMED, False),
    *((name, False) for name in NAMED),
)
_HIGHEST: Mapping[str, float] = {"temperature": 100, "top_p": 1}
_CONTROL = bytes(code for code in range(32) if code not in b"\t\r\n")
_DIGITS = "^[0-9]{1,19}$"
_ISO_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?$"
)
_FIRST_YEAR, _LAST_YEAR = "1970", "2262"
_BLANKS = [form for word in sorted(NOTHING) for form in {word, word.upper(), word.title()}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which column of a table is which of our fields. `unit` is that of its times, if stated.

    `override` is the unit that the caller gave.
    """

    width: int
    delimiter: str
    places: Mapping[str, int]
    time: int | None
    unit: str | None
    override: str | None


class _Odd(Exception):
    """Something that only reading row by row can judge."""


def read_block(block: bytes, plan: Plan, first: int) -> Chunk | None:
    """Whole lines as columns, the first is record `first`; None if rows must be looked at."""
    if not _is_plain(block):
        return None
    try:
        table = _cells(block, plan)
        counts = {name: _count(name, table[name]) for name in COUNTS if name in table}
        if (counts["prompt_tokens"] < 0).any():
            return None
        ns, clock = _times(table.get("timestamp"), plan, len(counts["prompt_tokens"]))
        return Chunk(
            lines=np.arange(first, first + len(ns), dtype=np.int64),
            ns=ns,
            clock=clock,
            counts=counts,
            ratios={name: _ratio(name, table[name]) for name in RATIOS if name in table},
            names={
                FIELD_OF[name]: _name(cells)
                for name, cells in table.items()
                if FIELD_OF.get(name) in NAMES
            },
        )
    except (pa.ArrowInvalid, _Odd):
        return None


def _is_plain(block: bytes) -> bool:
    """No quotes, no blank lines, no control characters, no line ends of an old kind, no hex."""
    return not (
        b'"' in block
        or block.startswith((b"\n", b"\r\n"))
        or b"\n\n" in block
        or b"\n\r\n" in block
        or block.translate(None, _CONTROL) != block
        or block.count(b"\r") != block.count(b"\r\n")
        or b"0x" in block
        or b"0X" in block
    )


def _cells(block: bytes, plan: Plan) -> dict[str, pa.Array]:
    """The columns that we know, as text; null where a cell says that nothing is known."""
    names = [str(place) for place in range(plan.width)]
    wanted = dict(plan.places)
    if plan.time is not None:
        wanted["timestamp"] = plan.time
    table = pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(
            use_threads=False, column_names=names, block_size=len(block) + 1
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=plan.delimiter, quote_char=False, ignore_empty_lines=False
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, TEXT),
            include_columns=[str(place) for place in wanted.values()],
            null_values=_BLANKS,
            strings_can_be_null=True,
            check_utf8=False,
        ),
    )
    return {name: table.column(str(place)).combine_chunks() for name, place in wanted.items()}


def _count(name: str, cells: pa.Array) -> NDArray[np.int32]:
    found = _numbers(cells)
    if name == "max_tokens":  # -1 is how several clients write "no limit"
        found = np.where(found == UNKNOWN, np.nan, found)
    known = found[~np.isnan(found)]
    if (known < 0).any() or (known > MAX_COUNT).any() or (known != np.floor(known)).any():
        raise _Odd
    return np.where(np.isnan(found), UNKNOWN, found).astype(np.int32)


def _ratio(name: str, cells: pa.Array) -> Floats:
    found = _numbers(cells)
    if (found < 0).any() or (found > _HIGHEST[name]).any():
        raise _Odd
    return found


def _numbers(cells: pa.Array) -> Floats:
    """Finite numbers, NaN for blanks. Whole numbers up to 2^53 are exact, longer ones too long."""
    found = pc.cast(cells, pa.float64())
    values: Floats = found.fill_null(0).to_numpy(zero_copy_only=False)
    if not np.isfinite(values).all():
        raise _Odd
    if found.null_count:
        values = np.where(found.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    return values


def _name(cells: pa.Array) -> pa.Array:
    """Names without white space around them, null where they say that nothing is known."""
    trimmed = pc.utf8_trim_whitespace(cells)
    nothing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(sorted(NOTHING), type=TEXT))
    return pc.if_else(nothing, pa.scalar(None, type=TEXT), trimmed)


def _times(cells: pa.Array | None, plan: Plan, rows: int) -> tuple[Integers, Flags]:
    ns = np.zeros(rows, dtype=np.int64)
    clock = np.full(rows, NO_TIME, dtype=np.int8)
    if cells is None or cells.null_count == rows:
        return ns, clock
    known = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
    found = cells.drop_null()
    if pc.all(pc.match_substring_regex(found, _ISO_TIME)).as_py():
        ns[known] = _moments(found)
        clock[known] = UNITS.index((ISO, True))
        return ns, clock
    ns[known], clock[known] = _scaled(found, plan)
    return ns, clock


def _moments(cells: pa.Array) -> Integers:
    """Nanoseconds since 1970 of ISO times; one without a zone is UTC."""
    ends = pc.min_max(cells).as_py()
    if not _FIRST_YEAR <= ends["min"] <= ends["max"] < _LAST_YEAR:
        raise _Odd
    zoned = pc.match_substring_regex(cells, "(Z|[+-][0-9]{2}:[0-9]{2})$")
    if pc.any(zoned).as_py():
        if not pc.all(zoned).as_py():
            raise _Odd
        moments = pc.cast(cells, pa.timestamp("ns", tz="UTC"))
    else:
        moments = pc.cast(cells, pa.timestamp("ns"))
    ns: Integers = moments.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if (ns < 0).any():
        raise _Odd
    return ns


def _scaled(cells: pa.Array, plan: Plan) -> tuple[Integers, Flags]:
    """Numbers as nanoseconds by their size; digits alone are whole numbers and stay exact."""
    digits = pc.match_substring_regex(cells, _DIGITS).to_numpy(zero_copy_only=False)
    values = _numbers(cells)
    if (values < 0).any():
        raise _Odd
    whole = np.zeros(len(values), dtype=np.int64)
    if digits.any():
        whole[digits] = pc.cast(cells.filter(pa.array(digits)), pa.int64()).to_numpy()
    scale = np.full(len(values), NAMED[plan.unit] if plan.unit else NS_PER_S, dtype=np.int64)
    clock = np.full(len(values), UNITS.index((plan.unit or ASSUMED, False)), dtype=np.int8)
    for bound, name, size in reversed(EPOCH_UNITS):
        larger = np.where(digits, whole >= bound, values >= bound)
        scale[larger] = size
        clock[larger] = UNITS.index((name, True))
    if (whole > LATEST_NS // scale).any() or (values * scale >= float(LATEST_NS)).any():
        raise _Odd
    ns = np.where(digits, whole * scale, np.rint(values * scale).astype(np.int64))
    if plan.override is not None:
        return _overridden(ns, clock, plan.override)
    return ns, clock


def _overridden(ns: Integers, clock: Flags, unit: str) -> tuple[Integers, Flags]:
    """The same numbers read in another unit."""
    for place in np.unique(clock).tolist():
        rows = clock == place
        moved = overridden_all(ns[rows], UNITS[place][0], unit)
        if moved is None:
            raise _Odd
        ns[rows] = moved
        moment, offset = UNITS.index((unit, True)), UNITS.index((unit, False))
        clock[rows] = np.where(moved >= EPOCH_FROM_NS, moment, offset)
    return ns, clock
