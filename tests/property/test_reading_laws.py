"""Laws of reading: blocks say what rows say, however a file is cut, packed or written."""

import io
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import NoUsableRows
from advisor.traffic.facts import Facts, facts_of
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading import reader
from advisor.traffic.reading.choice import choose
from advisor.traffic.reading.compression import Source
from advisor.traffic.reading.conclusion import Reading, conclude
from advisor.traffic.reading.framing import framed
from advisor.traffic.reading.opened import OpenTrace
from advisor.traffic.trace import Request

COUNTS = st.integers(0, 5000).map(str)
ODD = st.sampled_from(
    [
        "", "0", "NULL", "null", "None", "-", "n/a", " 7", "7 ", "1e3", "2.0", "2.5", "-1", "-5",
        "007", "+5", "0x10", "1_000", "inf", "nan", "999999999999", "x", "٣", "'", " ", "1,5",
        '"8"', '"8\n9"', 'a"b', "\r", "9" * 30,
    ]
)  # fmt: skip
TIMES = st.sampled_from(["0", "1", "1.5", "0.1", "12.25", "99999999"]) | st.integers(0, 10**6).map(
    str
)
MOMENTS = st.sampled_from(
    [
        "1700000000", "1700000000.25", "1700000001123", "1700000001123.5", "1700000001123456",
        "1700000001123456789", "2023-11-16 18:15:46.6805900", "2023-11-16T18:15:46Z",
        "2023-11-16T20:15:46.5+02:00", "2023-11-16 18:15:46.123456789", "2023-11-16", "1960-01-01",
        "2300-01-01 00:00:00", "1e9", "9000000000", "99999999999", "-3", "NULL", "soon",
    ]
)  # fmt: skip
NAMES = st.sampled_from(["", "a", " a", "b", "null", "Grüße", "N/A", "0x1", "7", "k\u2003"])
COLUMNS = {
    "prompt_tokens": COUNTS | ODD,
    "output_tokens": COUNTS | ODD,
    "max_tokens": st.sampled_from(["", "-1", "5", "0", "-2", "7.0"]),
    "temperature": st.sampled_from(["", "0", "0.7", "1", "101", "nan", "-0"]),
    "session_id": NAMES,
    "class": NAMES,
    "id": NAMES,
    "model": NAMES,
    "unknown": NAMES,
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, str | None]:
    """Mostly clean tables with odd cells, and a unit of time that somebody may give."""
    others = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True, max_size=4))
    names = list(dict.fromkeys(["prompt_tokens", *others]))
    time = draw(st.sampled_from([None, "timestamp", "arrival_ms"]))
    header = [*names, time] if time else names
    odd = draw(st.booleans())
    clean = {"prompt_tokens": COUNTS, "output_tokens": COUNTS}
    kinds = [COLUMNS[name] if odd else clean.get(name, COLUMNS[name]) for name in names]
    if time:
        kinds.append(draw(st.sampled_from([TIMES, MOMENTS, TIMES | MOMENTS])))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    delimiter = draw(st.sampled_from([",", ";", "\t"]))
    rows = draw(st.lists(st.tuples(*kinds), min_size=1, max_size=12))
    lines = [delimiter.join(header), *(delimiter.join(row) for row in rows)]
    if draw(st.booleans()):
        lines.insert(draw(st.integers(0, len(lines))), draw(st.sampled_from(["", " ", ",,", "1"])))
    body = end.join(lines) + draw(st.sampled_from(["", end]))
    return body.encode(), draw(st.sampled_from([None, None, "s", "ms", "us"]))


def opened(body: bytes, options: ReadOptions, *, by_rows: bool) -> OpenTrace:
    """The file read as it is, or row by row."""
    source = Source(io.BytesIO(body))
    found, encoding = framed(source, io.BytesIO(), filename="f", max_bytes=1 << 30)
    choice = choose(found, {}, None)
    if choice is None:
        raise NoUsableRows("no column", (), ())
    reading = Reading(
        filename="f",
        options=options,
        compression=None,
        encoding=encoding,
        framed=found,
        choice=replace(choice, plain=None) if by_rows else choice,
    )
    return conclude(reading, reader._taken(source, reading, io.BytesIO()))


def said(body: bytes, options: ReadOptions, *, by_rows: bool) -> object:
    """Requests and report of a file, or why it is refused."""
    try:
        trace = opened(body, options, by_rows=by_rows)
    except NoUsableRows as refused:
        return refused.reason, refused.rejects
    return [request for part in trace.batches(5) for request in part], trace.report


@settings(max_examples=80)
@given(tables(), st.sampled_from([16, 64, 4096]))
def test_blocks_say_what_rows_say(table: tuple[bytes, str | None], size: int) -> None:
    """Requests, rejects by number, notes, units: all of it."""
    body, unit = table
    options = ReadOptions(max_bad_share=1, time_unit=unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("advisor.traffic.reading.lengths_table.BLOCK_BYTES", size)
        blocks = said(body, options, by_rows=False)

    assert blocks == said(body, options, by_rows=True)


def same(one: Facts, other: Facts) -> bool:
    """Equal columns, unknown being equal to unknown."""
    pairs = [(getattr(one, item.name), getattr(other, item.name)) for item in fields(Facts)]
    return all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and a.dtype == b.dtype
        if isinstance(a, np.ndarray)
        else a == b
        for a, b in pairs
    )


@settings(max_examples=40)
@given(tables())
def test_the_facts_of_a_table_are_those_of_its_requests(table: tuple[bytes, str | None]) -> None:
    """Columns that no request was made for."""
    try:
        trace = opened(table[0], ReadOptions(max_bad_share=1), by_rows=False)
    except NoUsableRows:
        return
    requests: list[Request] = [request for part in trace.batches() for request in part]

    assert trace.facts is not None
    assert same(trace.facts, facts_of(requests, None))
