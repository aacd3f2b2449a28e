"""The same requests in every encoding, framing and compression; documents; what is too much."""

import gzip
import io
import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from advisor.errors import NoUsableRows, UnreadableFile
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading import json_documents, open_trace, read_trace
from advisor.traffic.trace import Trace
from advisor.units import MIB
from tests.unit.traffic.rows import jsonl, read

ROWS = (
    {"prompt": 'Grüße, "Köln"', "prompt_tokens": 4, "output_tokens": 1, "time": 10.5},
    {"prompt": "one\ntwo", "prompt_tokens": 2, "output_tokens": 7, "time": 12},
    {"prompt": "été", "prompt_tokens": 3, "output_tokens": 5, "time": 11},
)
NAMES = tuple(ROWS[0])


def _csv() -> str:
    rows = [NAMES, *(row.values() for row in ROWS)]
    cells = (['"' + str(cell).replace('"', '""') + '"' for cell in row] for row in rows)
    return "\r\n".join(map(",".join, cells))


TEXTS: Mapping[str, str] = {
    "jsonl": jsonl(*ROWS),
    "jsonl without a last line end": jsonl(*ROWS).rstrip(),
    "jsonl of strings": jsonl(*map(json.dumps, ROWS)),
    "array": json.dumps(ROWS, ensure_ascii=False),
    "pretty array": json.dumps(ROWS, indent=2),
    "array of lines": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    "pretty objects": "\n".join(json.dumps(row, indent=1) for row in ROWS),
    "object around": json.dumps({"object": "list", "data": ROWS, "more": False}, indent=1),
    "one-line object around": json.dumps({"count": 3, "rows": ROWS}),
    "csv": _csv(),
}
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "windows-1252")
PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip members": lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:]),
    "zstd": zstandard.ZstdCompressor().compress,
    "zstd frames": lambda body: b"".join(map(zstandard.compress, (body[:50], body[50:]))),
}


def _seen(trace: Trace) -> list[tuple[object, ...]]:
    return [
        (item.prompt, item.prompt_tokens, item.output_tokens, item.arrival_s)
        for item in trace.requests
    ]


EXPECTED = [('Grüße, "Köln"', 4, 1, 0.0), ("été", 3, 5, 0.5), ("one\ntwo", 2, 7, 1.5)]


@pytest.mark.parametrize("framing", TEXTS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encoding_and_framing_change_nothing(framing: str, encoding: str) -> None:
    """Whatever the file is called: nobody looks at its name."""
    assert _seen(read(TEXTS[framing].encode(encoding))) == EXPECTED


@pytest.mark.parametrize("framing", TEXTS)
@pytest.mark.parametrize("packer", PACKERS)
def test_compression_changes_nothing_and_is_reported(framing: str, packer: str) -> None:
    """Several members or frames are one file."""
    trace = read(PACKERS[packer](TEXTS[framing].encode()))

    assert _seen(trace) == EXPECTED
    assert trace.report.compression == {"plain": None}.get(packer, packer.partition(" ")[0])


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=2)
    return buffer.getvalue()


@pytest.mark.parametrize("packer", PACKERS)
def test_a_parquet_table_is_read_compressed_as_a_whole_or_not(packer: str) -> None:
    """Rows are records, numbered from 1."""
    trace = read(PACKERS[packer](_parquet(pa.Table.from_pylist(list(ROWS)))))

    assert _seen(trace) == EXPECTED
    assert (trace.report.format, trace.report.line_unit) == ("parquet", "record")


def test_values_of_a_parquet_table_are_those_of_json() -> None:
    """Lists of objects, moments to the nanosecond, whole numbers that a gap made floats."""
    table = pa.table(
        {
            "messages": [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]],
            "created_at": pa.array([1_700_000_001_500_000_001, 1_700_000_000_000_000_000]).cast(
                pa.timestamp("ns", tz="UTC")
            ),
            "output_tokens": pa.array([float("nan"), 3.0]),
            "class": pa.array(["x", "x"]).dictionary_encode(),
        }
    )
    first, second = read(_parquet(table)).requests

    assert first.messages == '[{"role": "user", "content": "b"}]'
    assert (first.output_tokens, second.output_tokens) == (3, None)
    assert second.arrival_s == pytest.approx(1.500000001, abs=1e-9)
    assert first.label == "x"


@pytest.mark.parametrize("cut", [10, 40])
def test_a_cut_archive_is_refused(cut: int) -> None:
    """Not read as far as it goes."""
    for pack in (gzip.compress, zstandard.compress):
        with pytest.raises(UnreadableFile, match="damaged or cut off"):
            read(pack(TEXTS["jsonl"].encode())[:-cut])


def test_more_bytes_than_allowed_are_refused_by_name() -> None:
    """Before and after decompression."""
    body = jsonl(*[{"prompt": "a" * 100}] * 100).encode()
    for packed in (body, gzip.compress(body)):
        with pytest.raises(UnreadableFile, match=r"limit of 4\.88 KiB; split it"):
            read_trace(io.BytesIO(packed), filename="x", options=ReadOptions(max_bytes=5000))


def test_more_rows_than_allowed_are_refused() -> None:
    """The limit is told, and no row beyond it is read."""
    options = ReadOptions(max_rows=3)
    for body in (jsonl(*[{"prompt": "a"}] * 4), "prompt_tokens\n" + "1\n" * 4):
        with pytest.raises(UnreadableFile, match="more than 3 rows"):
            read_trace(io.BytesIO(body.encode()), filename="x", options=options)


def test_a_bomb_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row again and again, far below the limit on bytes."""
    monkeypatch.setattr("advisor.traffic.reading.compression._RATIO_FROM_BYTES", MIB)
    body = jsonl({"prompt": "a" * 1000}).encode() * 4000
    with pytest.raises(UnreadableFile, match="expand to more than 200 times"):
        read(gzip.compress(body))


def test_a_long_document_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is never held at once; its records are numbered from 1."""
    monkeypatch.setattr(json_documents, "LOADED_BYTES", 100)
    rows = [*ROWS, {"nothing": 1}, 7]
    for text in (
        json.dumps({"page": 1, "data": rows}, indent=1),
        json.dumps({"data": rows, "meta": {"data": [1]}}, indent=1),
    ):
        monkeypatch.setattr("advisor.traffic.reading.framing.LOADED_BYTES", 100)
        trace = read(text)

        assert _seen(trace) == EXPECTED
        assert [(reject.line, reject.field) for reject in trace.report.rejects] == [
            (4, "prompt"),
            (5, "record"),
        ]


def test_an_array_that_ends_early_keeps_what_it_has_and_says_so() -> None:
    """The file was cut while it was written."""
    report = read('[{"prompt": "a"}, {"prompt": "b"}, {"pro').report

    assert report.accepted == 2
    assert [(reject.line, "the file ends" in reject.reason) for reject in report.rejects] == [
        (3, True)
    ]


def test_a_broken_array_is_refused() -> None:
    """Nobody can tell where its next element starts; the text is not quoted."""
    with pytest.raises(UnreadableFile, match="not valid from element 2 on") as refused:
        read('[{"prompt": "a"}, {secret}, {"prompt": "b"}]')

    assert "secret" not in str(refused.value)


def test_numbers_that_json_does_not_have_are_read_in_documents_too() -> None:
    """`NaN` rejects the row that holds it as a count."""
    report = read('[{"prompt": "a"}, {"prompt": "b", "output_tokens": NaN}]').report

    assert [(reject.line, reject.field) for reject in report.rejects] == [(2, "output_tokens")]


def test_one_object_that_is_no_request_is_refused_with_its_keys() -> None:
    """As a table without a known column is."""
    with pytest.raises(NoUsableRows) as refused:
        read('{\n"a": 1}')

    assert refused.value.found == ("a",)


def test_progress_tells_how_far_the_file_was_read() -> None:
    """In bytes of the file as it is, up to its end."""
    body = gzip.compress(jsonl(*[{"prompt": f"{place}"} for place in range(3000)]).encode())
    told: list[int] = []
    open_trace(io.BytesIO(body), filename="x", spool=io.BytesIO(), progress=told.append)

    assert told == sorted(told)
    assert told[-1] == len(body)


def test_batches_hold_few_bytes_and_may_be_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long rows come in small batches, in order."""
    monkeypatch.setattr("advisor.traffic.reading.spool._BATCH_BYTES", 10_000)
    rows = [{"prompt": "x" * 1000, "id": f"q{place}", "time": 90 - place} for place in range(40)]
    opened = open_trace(io.BytesIO(jsonl(*rows).encode()), filename="x", spool=io.BytesIO())
    sizes = [len(part) for part in opened.batches()]
    again = [item.source_id for part in opened.batches(7) for item in part]

    assert len(sizes) > 1
    assert sum(sizes) == 40
    assert again == [f"q{place}" for place in reversed(range(40))]
