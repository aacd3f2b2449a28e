"""Reading uploads: formats, encodings, and what is said about rows that cannot be taken."""

import codecs
import io
import json

import pytest

from advisor.errors import NoUsableRows, UnreadableFile
from advisor.traffic.formats import encoding
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.reader import MAX_REJECTS, MIN_ROWS_FOR_SHARE, read_trace
from advisor.traffic.formats.row import dumped
from advisor.traffic.trace import RequestKind
from tests.unit.traffic.rows import jsonl, one, read, rejected

USER = {"role": "user", "content": "hello"}


def test_an_answer_at_the_end_of_the_messages_is_the_recorded_response() -> None:
    """The history before it is the prompt, and the report counts such rows."""
    trace = read(jsonl({"messages": [USER, {"role": "assistant", "content": "hi there"}]}))
    (request,) = trace.requests

    assert json.loads(request.messages or "") == [USER]
    assert request.response == "hi there"
    assert any("end with an assistant message" in warning for warning in trace.report.warnings)


def test_a_stated_response_wins_over_a_final_assistant_message() -> None:
    """Two answers: the row's own field is the recorded one."""
    row = {"messages": [USER, {"role": "assistant", "content": "old"}], "response": "new"}

    assert one(row).response == "new"


def test_a_final_tool_call_is_no_recorded_text() -> None:
    """The call is taken off the prompt, and there is no text to call a response."""
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    request = one({"messages": [USER, call]})

    assert json.loads(request.messages or "") == [USER]
    assert request.response is None


@pytest.mark.parametrize(
    "response",
    [
        "hi",
        {"choices": [{"message": {"role": "assistant", "content": "hi"}}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": "hi"}]}}]},
        {"choices": [{"text": "hi"}]},
        {"status_code": 200, "body": {"choices": [{"message": {"content": "hi"}}]}},
        {"role": "assistant", "content": "hi"},
    ],
)
def test_answers_are_found_in_every_shape_that_logs_have(response: object) -> None:
    """A string, a response object, a completion, a batch result, a message."""
    assert one({"messages": [USER], "response": response}).response == "hi"


@pytest.mark.parametrize(
    "response",
    [None, {"choices": []}, {"choices": [7]}, {"choices": [{}]}, {"body": "text"}, {"error": "no"}],
)
def test_an_answer_without_text_is_unknown(response: object) -> None:
    """A failed or tool-only answer is not an empty text."""
    assert one({"prompt": "hello", "response": response}).response is None


def test_usage_comes_from_the_row_or_from_the_response_object() -> None:
    """Both spellings of the counts; the row's own counts are not overwritten."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    inside = one({"messages": [USER], "response": {"choices": [], "usage": usage}})
    beside = one({"messages": [USER], "usage": usage, "prompt_tokens": 6})

    assert (inside.prompt_tokens, inside.output_tokens) == (5, 2)
    assert (beside.prompt_tokens, beside.output_tokens) == (6, 2)


def test_zero_prompt_tokens_beside_a_prompt_are_unknown() -> None:
    """A gateway that did not count."""
    assert one({"prompt": "hello", "prompt_tokens": 0}).prompt_tokens is None


def test_an_empty_answer_of_zero_tokens_is_known() -> None:
    """Text and count agree: nothing was generated."""
    request = one({"prompt": "hello", "response": "", "completion_tokens": 0})

    assert (request.response, request.output_tokens) == ("", 0)


def test_all_fields_of_a_gateway_log_are_read() -> None:
    """The request may be wrapped; tags may be numbers."""
    request = one(
        {
            "request_id": "q-1",
            "conversation_id": 17,
            "category": "faq",
            "arrival_ms": 2500,
            "request": {
                "messages": [USER],
                "max_completion_tokens": 30,
                "temperature": 0.5,
                "top_p": 0.9,
                "response_format": {"type": "json_object"},
            },
        }
    )

    assert (request.source_id, request.session, request.label) == ("q-1", "17", "faq")
    assert (request.max_tokens, request.temperature, request.top_p) == (30, 0.5, 0.9)
    assert request.response_format == '{"type": "json_object"}'
    assert request.kind is RequestKind.CHAT


def test_a_list_of_messages_may_stand_under_input() -> None:
    """Responses-style rows."""
    assert one({"input": [USER]}).kind is RequestKind.CHAT


def test_no_limit_is_written_as_minus_one() -> None:
    """Several clients send -1."""
    assert one({"prompt": "a", "max_tokens": -1}).max_tokens is None


@pytest.mark.parametrize(
    "row, field",
    [
        ({"messages": []}, "messages"),
        ({"messages": "text"}, "messages"),
        ({"messages": ["secret"]}, "messages[0]"),
        ({"messages": [{"content": "secret"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["secret"]}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "secret \ud83d"}]}, "messages"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": "secret \udcff"}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"response": "secret"}, "prompt"),
        ({"prompt": "a", "response": 3}, "response"),
        ({"prompt": "a", "max_tokens": "secret"}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "prompt_tokens": -4}, "prompt_tokens"),
        ({"prompt": "a", "output_tokens": 10**12}, "output_tokens"),
        ({"prompt": "a", "output_tokens": "inf"}, "output_tokens"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "top_p": 1.5}, "top_p"),
        ({"prompt": "a", "session_id": ["secret"]}, "session_id"),
        ({"prompt": "a", "class": True}, "class"),
        ({"prompt": "a", "timestamp": "secret"}, "timestamp"),
        ({"prompt": "a", "timestamp": "12.10.secret"}, "timestamp"),
        ({"prompt": "a", "timestamp": [1]}, "timestamp"),
        ({"prompt": "a", "timestamp": "NaN"}, "timestamp"),
    ],
)
def test_a_bad_value_is_rejected_by_field_without_quoting_it(row: object, field: str) -> None:
    """The reason names what is wrong, never the text."""
    body = json.dumps({"prompt": "good"}) + "\n" + json.dumps(row)
    (reject,) = read(body).report.rejects

    assert (reject.line, reject.field) == (2, field)
    assert "secret" not in reject.reason


def test_infinity_inside_tools_is_rejected() -> None:
    """It has no JSON form and could not be sent again."""
    body = '{"prompt": "good"}\n{"prompt": "a", "tools": [{"x": Infinity}]}\n'

    assert [reject.field for reject in read(body).report.rejects] == ["tools"]


def test_deep_nesting_is_rejected_not_a_crash() -> None:
    """A line of 100,000 brackets."""
    body = '{"prompt": "good"}\n{"prompt": ' + "[" * 100_000 + "]" * 100_000 + "}\n"

    assert [reject.line for reject in read(body).report.rejects] == [2]


def test_blank_tags_are_no_tags() -> None:
    """A null id and an empty class."""
    request = one({"prompt": "a", "id": None, "class": " "})

    assert (request.source_id, request.label) == (None, None)


def test_numbers_that_are_no_objects_are_rejected() -> None:
    """`7` is valid JSON and no request."""
    assert rejected(7) == ("line", "a number, not a JSON object")


@pytest.mark.parametrize("row", [{"prompt": "a", "timestamp": None}, {"prompt": "a", "time": ""}])
def test_a_blank_time_is_no_time(row: object) -> None:
    """The request is kept without an arrival."""
    assert one(row).arrival_s is None


def test_rows_without_a_time_come_last_and_are_counted() -> None:
    """Their order among themselves stays."""
    trace = read(jsonl({"prompt": "a"}, {"prompt": "b", "time": 9}, {"prompt": "c"}))

    assert [request.prompt for request in trace.requests] == ["b", "a", "c"]
    assert any("2 of 3 rows have no time" in warning for warning in trace.report.warnings)


def test_offsets_among_moments_are_rejected() -> None:
    """They cannot be put on one axis: the scale with more rows holds."""
    rows = [{"prompt": "a", "time": at} for at in (1_700_000_000, 1_700_000_009, 5)]
    trace = read(jsonl(*rows))

    assert [reject.line for reject in trace.report.rejects] == [3]
    assert trace.requests[-1].arrival_s == 9


@pytest.mark.parametrize(
    "column, unit, rate", [("arrival_ms", "ms", 2.0), ("arrival_s", "s", 0.002)]
)
def test_the_name_of_a_column_states_the_unit(column: str, unit: str, rate: float) -> None:
    """No assumption, no warning."""
    trace = read(jsonl(*({"prompt": "a", column: at} for at in (0, 500, 1000))))
    last_s = trace.requests[-1].arrival_s or 0

    assert trace.report.time_unit == unit
    assert trace.report.warnings == ()
    assert 2 / last_s == pytest.approx(rate)


def test_iso_times_count_their_zone() -> None:
    """14:00+02:00 is noon UTC; a time without a zone is taken as UTC."""
    times = ("2026-03-01T12:00:00Z", "2026-03-01T14:00:01+02:00", "2026-03-01 12:00:02.5000000")
    trace = read(jsonl(*({"prompt": "a", "time": time} for time in times)))

    assert [request.arrival_s for request in trace.requests] == [0, 1, 2.5]
    assert trace.report.time_unit == "iso 8601"


def test_too_many_bad_rows_fail_the_file() -> None:
    """The limit is part of the message; small files are left to their reader's eyes."""
    good = jsonl(*[{"prompt": "a"}] * (MIN_ROWS_FOR_SHARE // 4))
    bad = "nonsense\n" * MIN_ROWS_FOR_SHARE
    with pytest.raises(NoUsableRows, match="limit of 50%"):
        read(good + bad)

    assert read(good + bad, max_bad_share=0.9).report.rejected == MIN_ROWS_FOR_SHARE


def test_the_list_of_rejects_is_bounded_and_the_count_is_not() -> None:
    """A million bad lines do not become a million values."""
    body = jsonl({"prompt": "a"}) + "7\n" * (MAX_REJECTS + 5)
    report = read(body, max_bad_share=1).report

    assert (len(report.rejects), report.rejected) == (MAX_REJECTS, MAX_REJECTS + 5)


@pytest.mark.parametrize("body", ["", "\n\n  \n"])
def test_an_empty_file_is_refused(body: str) -> None:
    """It names what is accepted."""
    with pytest.raises(NoUsableRows, match="no text"):
        read(body)


@pytest.mark.parametrize("body", ['[\n {"prompt": "a"}\n]\n', '[{"prompt": "a"}]', '{\n"a": 1}'])
def test_one_json_document_is_refused_with_the_remedy(body: str) -> None:
    """One object per line is wanted."""
    with pytest.raises(UnreadableFile, match="one JSON object per line"):
        read(body)


def test_a_file_of_broken_objects_is_jsonl_and_refused_as_such() -> None:
    """No line parses, but every line wants to be an object."""
    with pytest.raises(NoUsableRows, match="not valid JSON"):
        read('{"prompt": "a\n{"prompt": "b\n')


@pytest.mark.parametrize(
    "magic",
    [
        b"\x1f\x8b\x08",
        b"PK\x03\x04",
        b"PAR1",
        b"%PDF-1.7",
        b"\x28\xb5\x2f\xfd",
        b"\x00\x01" * 9 + b"\x00\x00",
    ],
)
def test_binary_files_are_refused_by_what_they_are(magic: bytes) -> None:
    """Compressed, spreadsheet, Parquet, PDF, anything with NUL bytes."""
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
    monkeypatch.setattr("advisor.traffic.formats.lengths_csv.MAX_LINE_BYTES", 50)
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


def test_repeated_ids_that_are_no_names_are_not_quoted() -> None:
    """Somebody may use a question as an id."""
    rows = [{"prompt": "a", "id": name} for name in ("what is it?!", "what is it?!", "x", "x", "x")]
    (warning,) = read(jsonl(*rows)).report.warnings

    assert warning.startswith("an id appears twice and 1 more ids repeat")


def test_a_warning_names_the_first_lines_only() -> None:
    """Seven odd rows, five numbers."""
    (warning,) = read(jsonl(*[{"prompt": "a", "prompt_tokens": 0}] * 7)).report.warnings

    assert warning.endswith("(line 1, 2, 3, 4, 5, …)")


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


def test_a_value_that_is_too_deep_to_write_is_a_bad_field() -> None:
    """Reading and writing JSON have their own limits."""
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(BadField, match="nested"):
        dumped("tools", value)
    while value:  # taken apart here: freeing it at once would recurse as deeply
        value = value.pop()  # type: ignore[assignment]


def test_a_row_with_many_thousand_keys_is_read_once() -> None:
    """Names are kept for the refusal, but not without end."""
    row = {f"k{place}": 0 for place in range(10_001)} | {"prompt": "a"}

    assert read(jsonl(row, {"prompt": "b"})).report.accepted == 2
