"""Pictures of an upload: what is drawn, what is said instead, the target's cache."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from advisor.recommender.capacity import CacheSize
from advisor.traffic.figures import TrafficSummary
from api.charts import figure
from api.charts.arrivals import concurrency_chart, diurnal_chart, rate_chart
from api.charts.drafts import positions_chart, steps_chart
from api.charts.lengths import fit_chart, joint_chart
from api.charts.reuse import difference_chart, reuse_chart
from api.charts.traffic import traffic_charts
from api.codec import json_text, read
from api.schemas import ChartView
from tests.fakes.traffic import whole_summary
from tests.fakes.values import SUMMARY

KEYS = (
    "joint_lengths",
    "fit",
    "rate",
    "diurnal",
    "concurrency",
    "reuse",
    "difference",
    "draft_positions",
    "draft_steps",
)
BARE = replace(
    SUMMARY,
    overall=replace(SUMMARY.overall, lookup=None, prefix_sharing=None),
    unmeasurable={"lookup": "no outputs", "prefix_sharing": "no text", "arrivals": "no times"},
)
Builder = Callable[[TrafficSummary], ChartView]
BUILDERS: tuple[tuple[Builder, str], ...] = (
    (joint_chart, "no counts"),
    (fit_chart, "how long requests are"),
    (rate_chart, "no times"),
    (diurnal_chart, "no times"),
    (concurrency_chart, "no durations"),
    (reuse_chart, "no text"),
    (difference_chart, "no text"),
    (positions_chart, "no outputs"),
    (steps_chart, "no outputs"),
)


def traces(chart: ChartView) -> list[Mapping[str, object]]:
    """The traces of a drawn chart."""
    assert chart.figure is not None
    found = chart.figure["data"]
    assert isinstance(found, list)
    return found


def named(chart: ChartView, name: str) -> Mapping[str, object]:
    """The trace of this name."""
    return next(trace for trace in traces(chart) if trace.get("name") == name)


def test_a_whole_summary_has_every_picture_with_caption_and_table() -> None:
    """Each has a title, a caption and a cell per column."""
    charts = traffic_charts(whole_summary())

    assert [chart.key for chart in charts] == list(KEYS)
    assert [chart.missing for chart in charts] == [None] * len(KEYS)
    assert all(chart.figure and chart.rows and chart.caption for chart in charts)
    assert all(len(row) == len(chart.columns) for chart in charts for row in chart.rows)


@pytest.mark.parametrize("build,why", BUILDERS, ids=[build.__name__ for build, _ in BUILDERS])
def test_what_the_upload_does_not_say_is_a_sentence_with_its_reason(
    build: Builder, why: str
) -> None:
    """Nothing is drawn, and nothing is zero."""
    chart = build(BARE)

    assert chart.figure is None
    assert chart.rows == ()
    assert chart.missing is not None
    assert chart.missing.startswith("Not measurable: ")
    assert why in chart.missing


def test_figures_leave_text_and_background_to_the_page() -> None:
    """No template, no font colour, transparent: readable in light and in dark."""
    for chart in traffic_charts(whole_summary()):
        assert chart.figure is not None
        layout = chart.figure["layout"]

        assert isinstance(layout, Mapping)
        assert "template" not in layout
        assert "font" not in layout
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == figure.CLEAR


def test_the_targets_cache_stands_in_the_curve_and_in_the_caption() -> None:
    """With the hit share at its size; without a target there is no such line."""
    cache = CacheSize(tokens=32 * 16, exact=True, basis="a cache of 1 GiB")
    chart = reuse_chart(whole_summary(), cache)
    without = reuse_chart(whole_summary())

    assert "holds 512 tokens (a cache of 1 GiB). With nothing else in it that serves 30.0 %" in (
        chart.caption
    )
    assert named(chart, "the target's cache")
    assert not [item for item in traces(without) if item.get("name") == "the target's cache"]


def test_the_curve_is_in_tokens_and_the_ceiling_has_its_interval() -> None:
    """A reader compares tokens with the engine's own figure."""
    chart = reuse_chart(whole_summary())

    assert named(chart, "any size, by stack distance")["x"] == [128, 512, 2048]
    assert named(chart, "unlimited cache")["y"] == [50.0, 50.0]
    assert "50.0 % (40.0 to 60.0)" in chart.caption
    assert ("32", "512", "30.0 %", "28.0 %") in chart.rows


def test_drafts_are_told_apart_by_window_and_by_length() -> None:
    """One line per window over k; by position the window that yields most."""
    steps, positions = steps_chart(whole_summary()), positions_chart(whole_summary())

    assert [item["name"] for item in traces(steps)] == [
        "n-gram of 2 to 4",
        "n-gram of 3 to 5",
        "suffix, up to 4",
    ]
    assert len(traces(positions)) == 3
    assert named(positions, "n-gram of 2 to 4, k=2")["y"] == [60.0, 30.0]


def test_empty_fields_of_the_joint_lengths_are_empty_and_not_zero() -> None:
    """Only fields with requests have a colour and a row."""
    chart = joint_chart(whole_summary())

    assert traces(chart)[0]["z"] == [[1, None, None], [None, 2, 1]]
    assert len(chart.rows) == 3


def test_a_chart_survives_the_wire() -> None:
    """JSON and back is the same value."""
    charts = traffic_charts(whole_summary(), cache=CacheSize(tokens=1000, exact=False, basis="x"))

    assert read(json_text(charts), tuple[ChartView, ...]) == charts
