"""This workload's prefill and decode on the device's roofline."""

import math

import plotly.graph_objects as go

from advisor.estimate import Estimate
from advisor.recommender.recommendation import Recommendation
from advisor.roofline.picture import RooflinePoint
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    GREY,
    MARKER_PX,
    PLOT_PX,
    SERIES,
    SYMBOLS,
    as_json,
    layout,
    log_axis,
    plain,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

TITLE = "Prefill and decode on the roofline"
ROOM = 4.0


def roofline_chart(body: Recommendation) -> ChartView:
    """The roof of the served dtype with its interval; points under it where a time was measured."""
    if not body.roofline:
        return without(
            "roofline",
            TITLE,
            "No point on the roofline: the study could not place this model's prefill and decode.",
        )
    dtype, rate = served_rate(body)
    if rate is None:
        return without(
            "roofline", TITLE, f"No roof: no matrix rate of this device is known for {dtype}."
        )
    bandwidth = body.device.bandwidth_bytes_per_s
    return ChartView(
        key="roofline",
        title=TITLE,
        caption=f"Arithmetic in {plain(dtype)} per byte read, both axes logarithmic. Filled points"
        " are measured times; hollow ones were not measured and sit on the roof above them. The"
        f" shaded stretch is the interval of the roof. Source of the roof: {sources([bandwidth])}"
        f" for bandwidth, {sources([rate])} for arithmetic.",
        figure=as_json(_figure(body, rate, dtype)),
        missing=None,
        columns=("phase", "in flight", "intensity", "achieved", "roof above it", "share of roof"),
        rows=tuple(_row(point) for point in body.roofline),
    )


def served_rate(body: Recommendation) -> tuple[str, Estimate | None]:
    """The dtype that the baseline was served in, and the device's matrix rate for it."""
    rates = body.device.matrix_rate_flops_per_s
    known = (body.engine.dtype, body.baseline.levers.dtype)
    named = [name.removeprefix("torch.") for name in known if name not in {None, "auto"} and name]
    dtype = named[0] if named else "bfloat16"
    return dtype, rates.get(dtype)


def _row(point: RooflinePoint) -> tuple[str, ...]:
    achieved = point.achieved_flops_per_s
    return (
        point.phase,
        str(point.concurrency),
        labels.amount(point.intensity_flops_per_byte, "FLOP/B"),
        labels.amount(achieved, "FLOP/s"),
        labels.amount(point.attainable_flops_per_s, "FLOP/s"),
        labels.NONE if achieved is None else f"{achieved / point.attainable_flops_per_s:.0%}",
    )


def _figure(body: Recommendation, rate: Estimate, dtype: str) -> go.Figure:
    bandwidth = body.device.bandwidth_bytes_per_s
    ridge = rate.value / bandwidth.value
    places = [point.intensity_flops_per_byte for point in body.roofline]
    low, high = min([*places, ridge]) / ROOM, max([*places, ridge]) * ROOM
    heights = [
        value
        for point in body.roofline
        for value in (point.attainable_flops_per_s, point.achieved_flops_per_s)
        if value is not None and value > 0
    ]
    bottom = min([*heights, rate.value]) / ROOM
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=log_axis(low, high, "arithmetic intensity in FLOP per byte"),
            yaxis=log_axis(bottom, rate.high * 2, "FLOP/s"),
        )
    )
    _roof(figure, (bandwidth, rate), (low, high), dtype)
    phases = list(dict.fromkeys(point.phase for point in body.roofline))
    for place, phase in enumerate(phases):
        points = [point for point in body.roofline if point.phase == phase]
        _points(figure, points, colour=SERIES[(place + 1) % len(SERIES)], symbol=SYMBOLS[place])
    return figure


def _roof(
    figure: go.Figure, peaks: tuple[Estimate, Estimate], ends: tuple[float, float], dtype: str
) -> None:
    bandwidth, rate = peaks

    def line(slope: float, top: float) -> tuple[list[float], list[float]]:
        x = [ends[0], min(max(top / slope, ends[0]), ends[1]), ends[1]]
        return x, [min(slope * value, top) for value in x]

    upper, lower = line(bandwidth.high, rate.high), line(bandwidth.low, rate.low)
    figure.add_scatter(
        x=[*upper[0], *reversed(lower[0])],
        y=[*upper[1], *reversed(lower[1])],
        fill="toself",
        fillcolor=veil(GREY),
        line={"width": 0},
        mode="lines",
        name="interval of the roof",
        hoverinfo="skip",
        showlegend=False,
    )
    x, y = line(bandwidth.value, rate.value)
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        name=f"roof ({plain(dtype)})",
        line={"color": GREY, "width": 2},
        hovertemplate="%{x:.3s} FLOP/B<br>%{y:.3s}FLOP/s<extra>roof</extra>",
    )
    figure.add_vline(x=x[1], line={"color": GREY, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=math.log10(x[1]),
        y=0.02,
        yref="paper",
        text=f"ridge {x[1]:.3g} FLOP/B",
        showarrow=False,
        xanchor="left",
        xshift=4,
    )


def _points(figure: go.Figure, points: list[RooflinePoint], *, colour: str, symbol: str) -> None:
    measured = [point for point in points if point.achieved_flops_per_s is not None]
    hollow = [point for point in points if point.achieved_flops_per_s is None]
    for found, name, mark in (
        (measured, points[0].phase, symbol),
        (hollow, f"{points[0].phase}, not measured", f"{symbol}-open"),
    ):
        if found:
            figure.add_scatter(
                x=[point.intensity_flops_per_byte for point in found],
                y=[point.achieved_flops_per_s or point.attainable_flops_per_s for point in found],
                mode="markers+text",
                name=plain(name),
                text=[str(point.concurrency) for point in found],
                textposition="bottom center",
                marker={
                    "color": colour,
                    "symbol": mark,
                    "size": MARKER_PX,
                    "line": {"width": BAR_PX, "color": colour},
                },
                customdata=[_hover(point) for point in found],
                hovertemplate="%{customdata}<extra></extra>",
            )


def _hover(point: RooflinePoint) -> str:
    roof = labels.amount(point.attainable_flops_per_s, "FLOP/s")
    achieved = labels.amount(point.achieved_flops_per_s, "FLOP/s")
    return (
        f"{plain(point.phase)}, {point.concurrency} in flight<br>"
        f"{labels.amount(point.intensity_flops_per_byte, 'FLOP/B')}<br>{achieved}, roof {roof}"
    )
