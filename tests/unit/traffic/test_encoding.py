"""From bytes to lines of text: encodings, binary files, lines without end."""

import codecs
import io
import json

import pytest

from advisor.errors import UnreadableFile
from advisor.traffic.reading import encoding
from advisor.traffic.reading.reader import read_trace
from tests.unit.traffic.rows import read


@pytest.mark.parametrize(
    "magic",
    [
        b"\x1f\x8b\x08",
        b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04",
        b"PAR1",
        b"%PDF-1.7",
        b"SQLite format 3\x00",
        b"\x00\x01" * 9 + b"\x00\x00",
    ],
)
def test_binary_files_are_refused_by_what_they_are(magic: bytes) -> None:
    """Damaged archives and tables, spreadsheets, PDF, anything with NUL bytes."""
    with pytest.raises(UnreadableFile):
        read(magic)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-16", "utf-32"])
def test_wide_encodings_are_read(codec: str) -> None:
    """With a byte-order mark, and UTF-16 without one by where its NUL bytes stand."""
    trace = read('{"prompt": "Grüße"}\n'.encode(codec))

    assert trace.requests[0].prompt == "Grüße"


def test_a_cut_wide_file_is_refused_by_line() -> None:
    """Half a character at the end."""
    body = codecs.BOM_UTF16_LE + '{"prompt": "a"}\n{"prompt": "b"}'.encode("utf-16-le")[:-1]
    with pytest.raises(UnreadableFile, match="line 2"):
        read(body)


def test_a_damaged_line_in_a_utf8_file_is_rejected_alone() -> None:
    """The other lines are UTF-8 beyond doubt: nothing is read in another code page."""
    good = '{"prompt": "Grüße"}\n'.encode()
    trace = read(good + b'{"prompt": "Gr\xfc\xdfe"}\n' + good)

    assert [reject.line for reject in trace.report.rejects] == [2]
    assert [request.prompt for request in trace.requests] == ["Grüße", "Grüße"]


def test_an_unknown_code_page_is_refused() -> None:
    """Words of high bytes are another alphabet: Windows-1252 would be mojibake."""
    with pytest.raises(UnreadableFile, match="code page"):
        read('{"prompt": "привет мир"}\n'.encode("cp1251"))


def test_too_long_lines_are_rejected_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By number, in bounded memory, in bytes and in wide text, in JSONL and in CSV."""
    monkeypatch.setattr(encoding, "MAX_LINE_BYTES", 64)
    long = json.dumps({"prompt": "x" * 200})
    body = '{"prompt": "a"}\n' + long + '\n{"prompt": "b"}\n'
    table = "prompt,output_tokens\na,1\n" + "x" * 200 + ",2\nb,3\n"
    for text in (body, table):
        for raw in (text.encode(), text.encode("utf-16")):
            trace = read(raw)

            assert [request.prompt for request in trace.requests] == ["a", "b"]
            assert trace.report.rejects[0].reason == "longer than 32 MiB"


def test_a_stream_is_read_from_its_start_and_left_open() -> None:
    """The caller owns the stream."""
    stream = io.BytesIO('{"prompt": "a"}\n'.encode("utf-16"))
    read_trace(stream, filename="x")

    assert not stream.closed
