"""What the command line prints of an upload."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from advisor.traffic.figures import TrafficSummary
from advisor.traffic.trace import Reject
from api.cli.report_text import print_report
from api.cli.traffic_text import print_summary, sparkline
from tests.fakes.traffic import WHOLE_REPORT, whole_summary
from tests.fakes.values import SUMMARY

WIDTH = 100


def paper() -> Console:
    """A console that keeps what is printed."""
    return Console(file=io.StringIO(), width=WIDTH, highlight=False)


def printed(console: Console) -> str:
    """What was printed."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summary_text(summary: TrafficSummary, *, kv_bytes_per_token: int | None = None) -> str:
    """A summary as it is printed."""
    out = paper()
    print_summary(out, summary, kv_bytes_per_token=kv_bytes_per_token)
    return printed(out)


def test_a_report_says_how_the_file_was_read_and_how_to_read_it_otherwise() -> None:
    """Format, compression, failed requests, columns, unit and readings with their options."""
    out = paper()
    print_report(out, WHOLE_REPORT)
    text = printed(out)

    assert "OpenAI chat log (openai-chat), utf-8, gzip" in text
    assert "12: 4 accepted, 3 rejected, 5 failed" in text
    assert "4 with 408, 1 with 500" in text
    assert "line 3: messages: is not a list" in text
    assert "arrival_s=created" in text
    assert "ms (--time-unit overrides)" in text
    assert "session_lengths: cumulative (--session-lengths overrides)" in text


def test_many_rejects_are_cut_and_counted_by_reason() -> None:
    """The first ten, the rest by number, the most frequent reason."""
    rejects = tuple(Reject(line=at, field="messages", reason="is not a list") for at in range(50))
    out = paper()
    print_report(out, replace(WHOLE_REPORT, rejected=400, rejects=rejects))
    text = printed(out)

    assert "line 9: messages" in text
    assert "line 10: messages" not in text
    assert "and 390 more (--json has all up to 1,000)" in text


@pytest.mark.parametrize(
    "said",
    [
        "4 requests, 4 with text, 2 sessions",
        "1 counts reported by the file, 3 by the tokenizer",
        "rank correlation +0.50",
        "1.2 in 1 s, 2.5 in 10 s (1 is Poisson)",
        "2 requests in 1 s from 20.00 s",
        "mean 1.5, p95 2, peak 2",
        "offer tools: 1 (25.0 %)",
        "en: 3 (75.0 %)",
        "more than once",
        "50.0 % (40.0 to 60.0) of the prompt tokens",
        "28.0 %",
        "move what changes to the end",
        "n-gram of 2 to 4, k=4",
        "suffix, k=4",
        "Long prompts with short answers",
        "max_model_len 4,096",
    ],
)
def test_a_whole_summary_tells(said: str) -> None:
    """Every part has its line."""
    assert said in " ".join(summary_text(whole_summary()).split())


def test_nothing_is_wider_than_a_terminal() -> None:
    """A hundred columns, whatever the upload says."""
    lines = summary_text(whole_summary(), kv_bytes_per_token=23_040).splitlines()

    assert max(len(line) for line in lines) <= WIDTH


def test_the_size_of_a_cache_is_in_bytes_where_the_model_is_known() -> None:
    """Tokens alone mean little to somebody who buys memory."""
    assert "45.00 MiB" in summary_text(whole_summary(), kv_bytes_per_token=23_040)
    assert "MiB" not in summary_text(whole_summary())


def test_what_is_not_measurable_has_its_reason_once() -> None:
    """Figures that lack the same thing share a line."""
    why = "the upload holds lengths only, and this needs text"
    bare = replace(
        SUMMARY,
        arrivals=None,
        overall=replace(SUMMARY.overall, lookup=None, prefix_sharing=None),
        unmeasurable={"lookup": why, "arrivals": "no times", "rate": "x", "diurnal": "x"},
    )
    text = " ".join(summary_text(bare).split())

    assert "unknown rate, diurnal: x" in text
    assert "Arrivals unknown no times" in text
    assert text.count(why) == 1


def test_a_label_is_text_and_no_markup() -> None:
    """A file's own words cannot colour the terminal."""
    label = "[bold]x[/bold]"
    held = replace(SUMMARY.overall, label=label)
    text = summary_text(replace(SUMMARY, classes=(held, held)))

    assert label in text


def test_a_sparkline_folds_long_series_and_survives_silence() -> None:
    """At most sixty characters; a flat line where nothing happened."""
    assert sparkline([0.0, 1.0]) == "▁█"
    assert len(sparkline(list(range(1000)))) <= 60
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""
