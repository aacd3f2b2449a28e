"""What a caller may say about a file: names of columns, unit of times, format."""

import io
import json
from collections.abc import Mapping

import pytest

from advisor.errors import InvalidInput, UnknownName, UnreadableFile
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading import open_trace, read_trace
from advisor.traffic.trace import Trace
from tests.unit.traffic.rows import jsonl, read

NAMED = {"prompt": "q", "output_tokens": "made", "arrival_ms": "when"}
ROWS = ({"q": "one", "made": 3, "when": 0, "prompt": "x"}, {"q": "two", "made": 4, "when": 500})


def given(body: str, options: ReadOptions) -> Trace:
    return read_trace(io.BytesIO(body.encode()), filename="sample", options=options)


@pytest.mark.parametrize(
    "body",
    [
        jsonl(*ROWS),
        json.dumps(ROWS),
        json.dumps({"calls": ROWS}),
        "prompt,q,made,when\nx,one,3,0\n,two,4,500\n",
    ],
)
def test_columns_can_be_named(body: str) -> None:
    """The caller's names win over those that we know, and their unit is stated by ours."""
    trace = given(body, ReadOptions(columns=NAMED))

    assert [(item.prompt, item.output_tokens, item.arrival_s) for item in trace.requests] == [
        ("one", 3, 0.0),
        ("two", 4, 0.5),
    ]
    assert trace.report.time_unit == "ms"
    assert trace.report.columns["prompt"] == "q"


def test_a_name_may_lead_inside_of_a_record() -> None:
    """As many gateways nest their counts."""
    options = ReadOptions(columns={"prompt_tokens": "stats.tokens.in"})
    trace = given(jsonl({"stats": {"tokens": {"in": 7}}}), options)

    assert trace.requests[0].prompt_tokens == 7


def test_lengths_by_other_names_are_read_by_blocks_as_well() -> None:
    """Columns of our own names that the caller did not mean are left alone."""
    options = ReadOptions(columns={"prompt_tokens": "a", "output_tokens": "b"})
    body = "prompt_tokens,a,b\n" + "9,1,2\n" * 3
    opened = open_trace(
        io.BytesIO(body.encode()), filename="x", spool=io.BytesIO(), options=options
    )

    assert opened.facts is not None
    assert opened.facts.prompt_tokens.tolist() == [1, 1, 1]
    assert opened.report.columns == {"prompt_tokens": "a", "output_tokens": "b"}


@pytest.mark.parametrize("body", [jsonl({"a": 1}), "a,b\n1,2\n"])
def test_a_column_that_the_file_does_not_have_is_refused_with_those_it_has(body: str) -> None:
    """Before any row is read."""
    with pytest.raises(InvalidInput, match="has no c; it has: a"):
        given(body, ReadOptions(columns={"prompt": "c"}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {"nothing": "a"}},
        {"time_unit": "h"},
        {"session_lengths": "both"},
    ],
)
def test_what_no_option_knows_is_refused_with_what_it_knows(wrong: Mapping[str, object]) -> None:
    """Exact look-ups."""
    with pytest.raises(UnknownName, match="known: "):
        ReadOptions(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_bytes": 0}, {"max_bad_share": 2}])
def test_limits_that_allow_nothing_are_refused(wrong: Mapping[str, int]) -> None:
    """A share is at most the whole."""
    with pytest.raises(InvalidInput):
        ReadOptions(**wrong)  # type: ignore[arg-type]


def test_a_format_can_be_asked_for() -> None:
    """The rows are read as its rows, whatever they look like; a wrong name lists the right ones."""
    rows = jsonl({"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]})

    assert read(rows).report.format == "mooncake"
    assert given(rows, ReadOptions(format="jsonl")).report.format == "jsonl"
    assert given(rows, ReadOptions(format="mooncake")).report.block_tokens == 512
    with pytest.raises(UnknownName, match="azure"):
        given(rows, ReadOptions(format="moon"))


def test_requests_that_failed_are_counted_apart() -> None:
    """By status; they are rows of the file and none of the requests."""
    rows = [{"prompt": "a"}, {"prompt": "b", "status_code": 503}, {"prompt": "c", "error": "x"}]
    report = read(jsonl(*rows)).report

    assert (report.rows, report.accepted, dict(report.failed)) == (3, 1, {"503": 1, "error": 1})
    assert any("counted apart" in warning for warning in report.warnings)


def test_requests_of_one_record_have_ids_of_their_own() -> None:
    """A line may hold a whole export."""
    inner = [{"input": "a", "type": "GENERATION", "id": f"o{place}"} for place in range(2)]
    for item in inner:
        item["startTime"] = "2026-01-01T00:00:00Z"
    trace = read(jsonl(*[{"trace": {"id": "t"}, "observations": inner}] * 2))

    assert [item.id for item in trace.requests] == ["r1", "r1.1", "r2", "r2.1"]


def test_a_log_of_a_server_is_refused_with_the_remedy() -> None:
    """Neither JSON nor a table: its first lines say what it is."""
    line = "INFO 11-18 11:13:33 metrics.py:351] Avg prompt throughput: 0.0 tokens/s, Running: 0\n"
    with pytest.raises(UnreadableFile, match="rooftune record"):
        read(line * 30)
