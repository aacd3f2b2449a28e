"""Reading uploads: formats, encodings, and what is said about rows that cannot be taken."""

import json

import pytest

from advisor.errors import NoUsableRows
from advisor.traffic.formats.fields import BadField
from advisor.traffic.formats.row import dumped
from advisor.traffic.reading.reader import MAX_REJECTS, MIN_ROWS_FOR_SHARE
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
    [None, {"choices": []}, {"choices": [7]}, {"choices": [{}]}, {"body": "text"}, {"error": None}],
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


def test_a_file_of_broken_objects_is_jsonl_and_refused_as_such() -> None:
    """No line parses, but every line wants to be an object."""
    with pytest.raises(NoUsableRows, match="not valid JSON"):
        read('{"prompt": "a\n{"prompt": "b\n')


def test_repeated_ids_that_are_no_names_are_not_quoted() -> None:
    """Somebody may use a question as an id."""
    rows = [{"prompt": "a", "id": name} for name in ("what is it?!", "what is it?!", "x", "x", "x")]
    (warning,) = read(jsonl(*rows)).report.warnings

    assert warning.startswith("an id appears twice and 1 more ids repeat")


def test_a_warning_names_the_first_lines_only() -> None:
    """Seven odd rows, five numbers."""
    (warning,) = read(jsonl(*[{"prompt": "a", "prompt_tokens": 0}] * 7)).report.warnings

    assert warning.endswith("(line 1, 2, 3, 4, 5, …)")


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
