"""Faults that users met with traffic files (../shared/cases), each as its right result."""

import io
from pathlib import Path

import pytest

from advisor.errors import NoUsableRows
from advisor.traffic.drafting.lookup import overlap
from advisor.traffic.facts import facts_of
from advisor.traffic.figures import CountSource, TrafficSummary
from advisor.traffic.formats.options import ReadOptions
from advisor.traffic.reading import open_trace, read_trace
from advisor.traffic.sampling.sample import output_limit
from advisor.traffic.sampling.synthesis import Recipe, derived
from advisor.traffic.statistics.profile import fit
from advisor.traffic.summary import summarise
from advisor.traffic.tokens import ChatTokenizer, token_columns
from advisor.traffic.trace import Trace
from tests.fakes.tokenizer import PLAIN_TEMPLATE, TOOL_TEMPLATE, byte_tokenizer_json


@pytest.fixture
def cases(shared: Path) -> Path:
    return shared / "cases"


def load(path: Path, max_bad_share: float = 0.5) -> Trace:
    with path.open("rb") as stream:
        return read_trace(stream, filename=path.name, max_bad_share=max_bad_share)


def summary(trace: Trace, template: str | None = None) -> TrafficSummary:
    if template is None:
        return summarise(trace.requests, None, block_size=16)
    columns = token_columns(trace.requests, ChatTokenizer(byte_tokenizer_json(), template, {}))
    return summarise(trace.requests, columns, block_size=16)


def test_rows_that_only_have_messages_are_requests_with_their_whole_history(cases: Path) -> None:
    """T-01 a: the prompt of row 3 is all three messages."""
    requests = load(cases / "t01_messages_only.jsonl").requests

    assert [request.messages is not None for request in requests] == [True, True, True]
    assert (requests[2].messages or "").count('"role"') == 3
    assert "Baltic." in (requests[2].messages or "")


def test_a_file_without_a_known_column_is_refused_naming_both_sides(cases: Path) -> None:
    """T-01 b: the columns found and the ones accepted."""
    with pytest.raises(NoUsableRows) as refused:
        load(cases / "t01b_unmappable.jsonl")

    assert refused.value.found == ("foo", "bar")
    assert {"messages", "prompt", "prompt_tokens"} <= set(refused.value.accepted)


def test_lengths_of_a_session_that_nest_are_whole_prompts(cases: Path) -> None:
    """T-03: 5,120 prompt tokens, not 9,304; the reading is shown."""
    trace = load(cases / "t03_sessions_cumulative.jsonl")

    assert [request.prompt_tokens for request in trace.requests] == [1024, 1536, 2560]
    assert trace.report.readings == {"session_lengths": "cumulative"}
    assert trace.report.block_tokens == 512


def test_the_reading_of_session_lengths_can_be_overridden(cases: Path) -> None:
    """T-03: as turns, every prompt holds the turns and the answers before it."""
    with (cases / "t03_sessions_cumulative.jsonl").open("rb") as stream:
        opened = open_trace(
            stream,
            filename="t03",
            spool=io.BytesIO(),
            options=ReadOptions(session_lengths="per_turn"),
        )
        found = [request.prompt_tokens for part in opened.batches() for request in part]

    assert found == [1024, 1024 + 200 + 1536, 1024 + 200 + 1536 + 200 + 2560]
    assert opened.facts is None  # ids of blocks say more than columns of lengths
    assert opened.report.readings == {"session_lengths": "per_turn"}


def test_small_times_are_read_as_seconds_and_the_report_says_so(cases: Path) -> None:
    """T-04 a: ten gaps in 5,000 s, and a warning about milliseconds."""
    trace = load(cases / "t04_small_ms.jsonl")
    arrivals = summary(trace).arrivals

    assert arrivals is not None
    assert arrivals.rate_per_s == pytest.approx(0.002)
    assert trace.report.time_unit == "s (assumed)"
    assert any("milliseconds" in warning for warning in trace.report.warnings)


def test_the_unit_of_small_times_can_be_given(cases: Path) -> None:
    """T-04 a: milliseconds are 2 requests a second, and nothing is assumed."""
    with (cases / "t04_small_ms.jsonl").open("rb") as stream:
        trace = read_trace(stream, filename="t04", options=ReadOptions(time_unit="ms"))
    arrivals = summary(trace).arrivals

    assert arrivals is not None
    assert arrivals.rate_per_s == pytest.approx(2)
    assert (trace.report.time_unit, trace.report.warnings) == ("ms", ())


def test_mixed_epoch_units_become_one_axis_with_a_warning(cases: Path) -> None:
    """T-04 b: seconds, milli-, micro- and nanoseconds and a string, row by row."""
    trace = load(cases / "t04_mixed_epoch.jsonl")
    arrivals = summary(trace).arrivals

    assert [request.arrival_s for request in trace.requests] == [0, 1, 2, 3, 4.5]
    assert arrivals is not None
    assert arrivals.rate_per_s == pytest.approx(4 / 4.5)
    assert any("mixed units" in warning for warning in trace.report.warnings)


def test_unsorted_rows_are_sorted_stably_and_a_negative_time_is_rejected(cases: Path) -> None:
    """T-06."""
    trace = load(cases / "t06_unsorted.jsonl")
    arrivals = summary(trace).arrivals

    assert [request.arrival_s for request in trace.requests] == [0, 0, 1, 2]
    assert [request.prompt for request in trace.requests] == ["a", "a2", "b", "c"]
    assert [(reject.line, reject.field) for reject in trace.report.rejects] == [(5, "timestamp")]
    assert any("not in order" in warning for warning in trace.report.warnings)
    assert arrivals is not None
    assert arrivals.peak_simultaneous == 2


def test_a_replay_at_twice_the_speed_halves_the_gaps(cases: Path) -> None:
    """T-07: the gaps between moments are scaled, and the first request is sent at once."""
    trace = load(cases / "t07_epoch_speed.jsonl")
    faster = derived([trace.requests], Recipe(rate=2), ["t07"])

    assert [request.arrival_s for request in trace.requests] == [0, 2, 6]
    assert [request.arrival_s for request in faster] == [0, 1, 3]
    assert trace.report.started_epoch_s == 1_700_000_000


def test_tool_calls_keep_null_and_absent_content_and_count_the_tools(cases: Path) -> None:
    """T-08: the file's own messages and tools, and a longer prompt with the tools."""
    requests = load(cases / "t08_tool_calls.jsonl").requests
    tokenizer = ChatTokenizer(byte_tokenizer_json(), TOOL_TEMPLATE, {})
    rendered = [tokenizer.prompt_text(request) or "" for request in requests]

    assert '"content": null' in (requests[0].messages or "")
    assert '"role": "assistant", "tool_calls"' in (requests[1].messages or "")
    assert all("Weather for a town." in text for text in rendered)
    assert "<call>get_weatherLund</call>" in rendered[0]
    assert "<call>get_weatherUmeå</call>" in rendered[1]
    assert all("None" not in text for text in rendered)


def test_one_text_part_is_the_same_prompt_as_a_string(cases: Path) -> None:
    """T-10: two parts are joined as the engine joins them, and the report says so."""
    trace = load(cases / "t10_text_parts.jsonl")
    tokenizer = ChatTokenizer(byte_tokenizer_json(), PLAIN_TEMPLATE, {})
    first, second, third = (tokenizer.prompt_ids(request) for request in trace.requests)

    assert first == second
    assert third != first
    assert "Sum 2 \nand 3." in (tokenizer.prompt_text(trace.requests[2]) or "")
    assert any("several text parts" in warning for warning in trace.report.warnings)


@pytest.mark.parametrize("name", ["t11_bom_crlf.jsonl", "t11_utf16.jsonl"])
def test_marks_line_ends_and_wide_encodings_leave_the_text_intact(cases: Path, name: str) -> None:
    """T-11: three rows, the blank line ignored, the last line kept."""
    trace = load(cases / name)

    assert [request.prompt for request in trace.requests] == [
        "Grüße",
        "你好",
        "last line, no newline",
    ]
    assert trace.report.rejected == 0


def test_another_code_page_is_decoded_with_a_warning(cases: Path) -> None:
    """T-11: never a silent mojibake."""
    trace = load(cases / "t11_latin1.csv")

    assert [request.prompt for request in trace.requests] == ["Grüße aus Köln", "été"]
    assert any("not UTF-8" in warning for warning in trace.report.warnings)


def test_bad_lines_are_reported_one_by_one_and_the_good_ones_kept(cases: Path) -> None:
    """T-12: five rejects with line numbers and reasons, two requests."""
    report = load(cases / "t12_bad_lines.jsonl").report

    assert (report.accepted, report.rejected) == (2, 5)
    assert [reject.line for reject in report.rejects] == [2, 3, 4, 5, 6]
    assert report.rejects[-1].field == "output_tokens"
    assert "not a number" in report.rejects[-1].reason
    assert not any("cut off" in reject.reason for reject in report.rejects)


def test_repeated_ids_keep_every_request(cases: Path) -> None:
    """T-13: three requests from body.messages under ids of our own."""
    trace = load(cases / "t13_batch_dupe_ids.jsonl")

    assert len({request.id for request in trace.requests}) == 3
    assert [request.max_tokens for request in trace.requests] == [8, 8, 8]
    assert any("job-1 appears twice" in warning for warning in trace.report.warnings)


def test_zero_and_missing_usage_is_unknown_and_counted_from_the_text(cases: Path) -> None:
    """T-16: the mean output is not dragged to zero, the absurd prompt count is flagged."""
    trace = load(cases / "t16_stream_usage_zero.jsonl")
    found = summary(trace, PLAIN_TEMPLATE)

    assert [request.output_tokens for request in trace.requests] == [None, None, 2]
    assert [request.prompt_tokens for request in trace.requests] == [None, None, 9]
    assert any("fewer prompt tokens" in warning for warning in trace.report.warnings)
    assert found.count_source is CountSource.TOKENISED
    assert found.overall.output_tokens is not None
    assert found.overall.output_tokens.mean == pytest.approx((55 + 3 + 3) / 3)


def test_what_does_not_fit_is_said_in_requests_and_in_tokens(cases: Path) -> None:
    """T-18: half of the requests, 74.7 % of the prompt tokens."""
    found = fit(facts_of(load(cases / "t18_too_long.csv").requests, None), 4096)

    assert (found.requests, found.fitting, found.prompt_too_long) == (4, 2, 1)
    assert found.prompt_tokens - found.prompt_tokens_fitting == 13_000
    assert found.prompt_tokens == 17_412
    assert found.needed_max_model_len == 9050


def test_blank_outputs_are_unknown_and_zero_is_zero(cases: Path) -> None:
    """T-19: the mean is over the three known."""
    trace = load(cases / "t19_zero_output.csv")
    outputs = summary(trace).overall.output_tokens

    assert outputs is not None
    assert (outputs.mean, outputs.count, outputs.unknown) == (67, 3, 2)
    assert output_limit(trace.requests[0], None) == 1


def test_quoted_and_double_encoded_cells_are_three_rows(cases: Path) -> None:
    """T-21."""
    requests = load(cases / "t21_quoted.csv").requests

    assert len(requests) == 3
    assert requests[0].messages == ('[{"role": "user", "content": "Say \\"a, b\\"\\nthen stop"}]')
    assert "double encoded, really" in (requests[1].messages or "")
    assert requests[2].prompt == "plain prompt, with comma\nand a newline"
    assert [request.response for request in requests] == ["a, b", "ok", "fine"]


def test_lengths_alone_say_nothing_about_sharing_or_acceptance(cases: Path) -> None:
    """T-22: None with a reason, never 0 %."""
    found = summary(load(cases / "t22_lengths_only.csv"), PLAIN_TEMPLATE)

    assert found.overall.prefix_sharing is None
    assert found.overall.lookup is None
    assert "lengths only" in found.unmeasurable["prefix_sharing"]
    assert "lengths only" in found.unmeasurable["lookup"]
    assert found.overall.prompt_tokens is not None
    assert found.overall.prompt_tokens.mean == pytest.approx(1197.5)


def test_recorded_outputs_cap_a_replay_without_a_limit(cases: Path) -> None:
    """T-23: four recorded tokens, so at most four are asked for."""
    requests = load(cases / "t23_no_max_tokens.jsonl").requests

    assert [output_limit(request, None) for request in requests] == [4, 4]


@pytest.mark.parametrize("name, share", [("e03_copy.jsonl", 24 / 27), ("e03_prose.jsonl", 0)])
def test_copying_outputs_overlap_their_prompt_and_prose_does_not(
    cases: Path, name: str, share: float
) -> None:
    """E-03: share of output 3-grams that occur in the prompt."""
    (request,) = load(cases / name).requests

    assert overlap((request.prompt or "").split(), (request.response or "").split()) == share
