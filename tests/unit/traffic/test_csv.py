"""Tables: delimiters, widths, quotes, and cells that hold JSON."""

import json

import pytest

from advisor.errors import NoUsableRows
from tests.unit.traffic.rows import read

USER = {"role": "user", "content": "hello"}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_names_columns(delimiter: str) -> None:
    """Spreadsheets of other countries write semicolons."""
    rows = [["TIMESTAMP", "ContextTokens", "GeneratedTokens"], ["0", "10", "3"], ["1", "20", ""]]
    trace = read("\n".join(delimiter.join(row) for row in rows))

    assert [request.prompt_tokens for request in trace.requests] == [10, 20]
    assert [request.output_tokens for request in trace.requests] == [3, None]


def test_records_of_another_width_are_rejected_by_number() -> None:
    """The header is record 1, as in a spreadsheet; blank records are ignored."""
    report = read("input_tokens,output_tokens\n5,1\n,\n5\n,2\n").report

    assert [(reject.line, reject.field) for reject in report.rejects] == [
        (4, "record"),
        (5, "prompt_tokens"),
    ]
    assert report.accepted == 1


def test_a_field_beyond_the_limit_is_one_bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """An open quote does not swallow the file into memory."""
    monkeypatch.setattr("advisor.traffic.reading.csv_records.MAX_CELL_CHARS", 50)
    report = read('prompt\nfine\n"' + "x" * 100 + "\nrest\n").report

    assert report.accepted >= 1
    assert report.rejects[0].reason == "not a CSV record (quotes or size)"


def test_a_table_without_a_known_column_is_refused_and_quotes_no_text() -> None:
    """A first row that is text, not names, may be somebody's prompt."""
    with pytest.raises(NoUsableRows) as refused:
        read("duration,What is the secret of the old house on the hill?\n1,2\n")

    assert refused.value.found == ("duration", "(column 2 is no name)")


def test_a_table_with_too_many_columns_names_the_first() -> None:
    """A message stays readable."""
    with pytest.raises(NoUsableRows) as refused:
        read(",".join(f"c{place}" for place in range(60)) + "\n1\n")

    assert refused.value.found[-1] == "and 20 more"


def test_messages_in_a_cell_may_be_an_object_that_holds_them() -> None:
    """And a cell that only looks like JSON is the prompt itself."""
    cell = json.dumps({"messages": [USER]}).replace('"', '""')
    trace = read(f'messages,output\n"{cell}",ok\n"[1, 2]",\n"{{broken",x\n,y\n')

    assert json.loads(trace.requests[0].messages or "") == [USER]
    assert [request.prompt for request in trace.requests[1:]] == ["[1, 2]", "{broken"]
    assert trace.requests[1].response is None
    assert [reject.line for reject in trace.report.rejects] == [5]


def test_of_two_names_for_one_field_the_better_known_counts() -> None:
    """`prompt_tokens` before `isl`, whatever their order."""
    for header in ("isl,prompt_tokens", "prompt_tokens,isl"):
        (request,) = read(f"{header}\n{'1,2' if header.startswith('isl') else '2,1'}\n").requests

        assert request.prompt_tokens == 2


def test_a_header_longer_than_the_csv_modules_own_limit_is_a_refusal() -> None:
    """Not a crash."""
    with pytest.raises(NoUsableRows):
        read("x" * 200_000 + "\n1\n")


def test_a_cell_encoded_too_often_is_a_plain_prompt() -> None:
    """Three decodes are tried."""
    cell = json.dumps([USER])
    for _ in range(4):
        cell = json.dumps(cell)
    trace = read('prompt\n"' + cell.replace('"', '""') + '"\n')

    assert trace.requests[0].prompt == cell
