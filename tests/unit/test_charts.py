"""Pictures of a recommendation: what is drawn, what is said instead, colours that can be seen."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from advisor.recommender.recommendation import Recommendation, VerdictKind
from api.charts import figure
from api.charts.acceptance import acceptance_chart
from api.charts.gains import class_chart, gains_chart
from api.charts.gallery import charts_of
from api.charts.memory import memory_chart
from api.charts.predictions import predictions_chart
from api.charts.ranking import ranking_chart
from api.charts.roofline import roofline_chart
from api.charts.saturation import saturation_chart
from api.codec import json_text, read
from api.schemas import ChartView
from tests.fakes import pictures
from tests.fakes.pictures import wide_body

WHITE, NIGHT = "#ffffff", "#0e1117"  # the pages of the report and of Streamlit's themes
LEAST_CONTRAST = 3.0  # WCAG 2.1, 1.4.11: graphical objects
KEYS = (
    "ranking",
    "gains",
    "saturation",
    "acceptance",
    "classes",
    "roofline",
    "memory",
    "predictions",
)
# A picture and a study that lacks what it shows.
EMPTY: tuple[tuple[Callable[[Recommendation], ChartView], Recommendation], ...] = (
    (ranking_chart, replace(wide_body(), ranked=())),
    (gains_chart, replace(wide_body(), verdicts=())),
    (class_chart, replace(wide_body(), verdicts=())),
    (acceptance_chart, replace(wide_body(), verdicts=())),
    (saturation_chart, replace(wide_body(), saturation=None)),
    (roofline_chart, replace(wide_body(), roofline=())),
    (predictions_chart, replace(wide_body(), predictions=())),
    (memory_chart, replace(wide_body(), memory=replace(pictures.memory(), kv_cache_bytes=None))),
)


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour (WCAG 2.1)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast ratio, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def traces(chart: ChartView) -> list[Mapping[str, object]]:
    """The traces of a drawn chart."""
    assert chart.figure is not None
    found = chart.figure["data"]
    assert isinstance(found, list)
    return found


def named(chart: ChartView, name: str) -> Mapping[str, object]:
    """The trace of this name."""
    return next(trace for trace in traces(chart) if trace.get("name") == name)


def numbers(value: object) -> list[float]:
    """The values of a trace's column."""
    assert isinstance(value, list)
    return [float(item) for item in value]


def texts(value: object) -> Iterator[str]:
    """Every text inside a figure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


@pytest.mark.parametrize("page", [WHITE, NIGHT])
@pytest.mark.parametrize(
    "colour", sorted({*figure.SERIES, *figure.VERDICT_COLOURS.values()}), ids=str
)
def test_every_colour_can_be_seen_on_a_white_and_on_a_dark_page(colour: str, page: str) -> None:
    """Lines and points have the contrast that graphical objects need."""
    assert contrast(colour, page) >= LEAST_CONTRAST


def test_a_full_recommendation_has_every_picture_with_caption_source_and_table() -> None:
    """Each caption names its source, each table has a cell per column."""
    charts = charts_of(wide_body())

    assert [chart.key for chart in charts] == list(KEYS)
    assert [chart.missing for chart in charts] == [None] * len(KEYS)
    assert all(chart.figure and chart.rows and chart.caption for chart in charts)
    assert all(len(row) == len(chart.columns) for chart in charts for row in chart.rows)
    assert all("ource" in chart.caption for chart in charts if chart.key != "memory")


@pytest.mark.parametrize("build,body", EMPTY, ids=[build.__name__ for build, _ in EMPTY])
def test_what_was_not_measured_is_a_sentence_and_no_picture(
    build: Callable[[Recommendation], ChartView], body: Recommendation
) -> None:
    """Nothing is drawn, and the reader learns why."""
    chart = build(body)

    assert chart.figure is None
    assert chart.rows == ()
    assert chart.missing is not None
    assert chart.missing.startswith("No ")
    assert chart.missing.endswith(".")


def test_figures_leave_text_and_background_to_the_page() -> None:
    """No template, no font colour, transparent: the page's theme decides, also when it is dark."""
    for chart in charts_of(wide_body()):
        assert chart.figure is not None
        layout = chart.figure["layout"]

        assert isinstance(layout, Mapping)
        assert "template" not in layout
        assert "font" not in layout
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == figure.CLEAR


def test_a_chart_survives_the_wire() -> None:
    """JSON and back is the same value."""
    charts = charts_of(wide_body())

    assert read(json_text(charts), tuple[ChartView, ...]) == charts


def test_the_forest_shows_each_gain_with_its_interval_in_its_verdicts_colour() -> None:
    """What hurts is marked apart from what helps; a gain that was not measured has no point."""
    chart = gains_chart(wide_body())
    hurts = named(chart, "hurts")
    error = hurts["error_x"]

    assert numbers(hurts["x"]) == [0.84]
    assert isinstance(error, Mapping)
    assert numbers(error["array"]) == pytest.approx([0.06])
    assert numbers(error["arrayminus"]) == pytest.approx([0.05])
    assert error["color"] == figure.VERDICT_COLOURS[VerdictKind.HURTS]
    assert len(numbers(named(chart, "helps")["x"])) == 3
    assert not [trace for trace in traces(chart) if trace.get("name") == "unknown"]
    assert "N-gram speculative decoding (k=2)" in chart.caption
    assert any("the engine ran out of memory" in cell for row in chart.rows for cell in row)


def test_an_unmeasured_point_of_the_roofline_is_hollow() -> None:
    """It sits on the roof; measured ones are filled and keep their own height."""
    chart = roofline_chart(wide_body())
    hollow, filled = named(chart, "prefill, not measured"), named(chart, "decode")

    assert isinstance(hollow["marker"], Mapping)
    assert isinstance(filled["marker"], Mapping)
    assert str(hollow["marker"]["symbol"]).endswith("-open")
    assert not str(filled["marker"]["symbol"]).endswith("-open")
    assert numbers(filled["y"]) == [7e9, 26e9, 61e9]
    assert chart.rows[-1][3] == "not measured"


def test_the_roof_is_that_of_the_served_number_format() -> None:
    """The engine's word counts before the lever; without a rate for it there is no roof."""
    body = wide_body()
    served = replace(body, engine=replace(body.engine, dtype="torch.bfloat16"))
    unknown = replace(body, engine=replace(body.engine, dtype="torch.float8_e4m3fn"))

    assert max(numbers(named(roofline_chart(served), "roof (bfloat16)")["y"])) == 60e9
    assert max(numbers(named(roofline_chart(body), "roof (float32)")["y"])) == 100e9
    assert "float8_e4m3fn" in (roofline_chart(unknown).missing or "")


def test_the_knee_is_drawn_only_inside_the_tested_range() -> None:
    """A ladder that still rises has no knee to show."""
    body = wide_body()
    rising = replace(body, saturation=pictures.saturation(saturated=False))
    knee = {trace.get("name") for trace in traces(saturation_chart(body))}
    none = {trace.get("name") for trace in traces(saturation_chart(rising))}

    assert knee - none == {"saturation with its interval"}
    assert "14.2 (11.6 to 17.9)" in saturation_chart(body).caption
    assert "none is drawn" in saturation_chart(rising).caption


def test_the_fitted_curve_reaches_the_stated_plateau() -> None:
    """And passes the planted rungs."""
    chart = saturation_chart(wide_body())
    fit = named(chart, "fit")
    by_load = dict(zip(numbers(fit["x"]), numbers(fit["y"]), strict=True))

    assert max(by_load.values()) == pytest.approx(pictures.rate_at(pictures.CAP))
    assert by_load[min(by_load)] == pytest.approx(pictures.rate_at(1), rel=0.01)


def test_the_parts_of_the_memory_add_up_to_the_device() -> None:
    """With and without the engine's own headroom and peak."""
    full = pictures.memory()
    for memory in (
        full,
        replace(full, headroom_bytes=None),
        replace(full, kv_peak_usage=None),
    ):
        bars = traces(memory_chart(replace(wide_body(), memory=memory)))[0]
        sizes = numbers(bars["x"])

        assert sizes[0] == pytest.approx(8.0)
        assert sum(sizes[1:]) == pytest.approx(8.0)


def test_predictions_count_those_inside_their_interval() -> None:
    """The caption says how many measured values the predicted intervals hold."""
    chart = predictions_chart(wide_body())

    assert "4 of 5 measured values lie inside" in chart.caption
    assert len(chart.rows) == 5


def test_nothing_drafted_is_said_and_not_drawn_as_zero() -> None:
    """The reason of the figures is the sentence."""
    body = wide_body()
    idle = replace(pictures.acceptance(), per_position=None, reason="nothing was drafted")
    verdicts = tuple(
        replace(item, acceptance={"all": idle}) if item.acceptance else item
        for item in body.verdicts
    )
    chart = acceptance_chart(replace(body, verdicts=verdicts))

    assert chart.figure is None
    assert chart.missing == "No acceptance to show (nothing was drafted)."


def test_a_class_label_is_text_in_every_figure() -> None:
    """plotly reads tags in its texts; a file's own words are none."""
    body = wide_body()
    label = "<a href='x'>copy</a>"
    verdicts = tuple(
        replace(
            item,
            effects=tuple(
                replace(effect, by_class={label: effect.by_class["copy"]})
                for effect in item.effects
                if effect.by_class
            ),
        )
        for item in body.verdicts
    )
    chart = class_chart(replace(body, verdicts=verdicts))
    found = list(texts(chart.figure))

    assert chart.rows[0][0] == label
    assert not [text for text in found if "<a" in text]
    assert [text for text in found if "&lt;a href='x'&gt;copy" in text]


def test_a_gain_whose_interval_reaches_zero_stays_on_the_logarithmic_axis() -> None:
    """The drawn end is clipped, the table keeps the true one."""
    body = wide_body()
    wide = pictures.span(0.5, -0.4, 1.4)
    verdicts = (pictures.verdict("x", "Wide", pictures.effect(16, VerdictKind.UNKNOWN, gain=wide)),)
    chart = gains_chart(replace(body, verdicts=verdicts))
    error = named(chart, "unknown")["error_x"]

    assert isinstance(error, Mapping)
    assert 0 < numbers(error["arrayminus"])[0] < 0.5
    assert "-140.0 %" in chart.rows[0][3]
    assert json.dumps(chart.figure, allow_nan=False)
