"""Throughput and latency against the requests in flight, with the knee."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from advisor.measurement.saturation import Rung, Saturation
from advisor.recommender.recommendation import Recommendation
from advisor.units import MILLISECONDS_PER_S
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    BLUE,
    GREEN,
    GREY,
    MARKER_PX,
    PURPLE,
    VERMILLION,
    as_json,
    interval,
    layout,
    linear_axis,
    log_axis,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

TITLE = "Throughput and latency against the load"
PLOT_PX = 560
CURVE_POINTS = 60
ROOM = 1.3


def saturation_chart(body: Recommendation) -> ChartView:
    """The baseline's ladder with the fit, and where it bends."""
    found = body.saturation
    if found is None or not found.rungs:
        return without(
            "saturation",
            TITLE,
            "No saturation point: the study did not measure at least three loads on the baseline.",
        )
    rates = [rung.throughput_tokens_per_s for rung in found.rungs]
    return ChartView(
        key="saturation",
        title=TITLE,
        caption=f"The baseline's ladder; both axes of the lower half and the load are logarithmic."
        f" {_knee_text(found)} Latencies are percentiles without an interval. Source of the"
        f" throughput: {sources(rates)}; of the knee: {sources([found.concurrency])}.",
        figure=as_json(_figure(found)),
        missing=None,
        columns=(
            "in flight",
            "repeats",
            "tokens/s",
            "first token p50",
            "per token p50",
            "per token p95",
            "KV cache peak",
        ),
        rows=tuple(_row(rung) for rung in found.rungs),
    )


def _knee_text(found: Saturation) -> str:
    where = labels.spread(found.concurrency)
    if found.saturated:
        return f"The shaded stretch is the interval of the knee, {where} requests in flight."
    return "The knee is not inside the tested range, so none is drawn."


def _row(rung: Rung) -> tuple[str, ...]:
    usage = rung.kv_peak_usage
    return (
        str(rung.concurrency),
        str(rung.repeats),
        labels.spread(rung.throughput_tokens_per_s),
        labels.milliseconds(rung.ttft_p50_s),
        labels.milliseconds(rung.tpot_p50_s),
        labels.milliseconds(rung.tpot_p95_s),
        labels.NONE if usage is None else f"{usage:.1%}",
    )


def _figure(found: Saturation) -> go.Figure:
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    figure.update_layout(layout(height=PLOT_PX))
    loads = [rung.concurrency for rung in found.rungs]
    _curve(figure, found, loads)
    rates = [rung.throughput_tokens_per_s for rung in found.rungs]
    figure.add_scatter(
        x=loads,
        y=[rate.value for rate in rates],
        error_y=interval(rates, colour=BLUE),
        mode="markers",
        name="throughput",
        marker={"color": BLUE, "size": MARKER_PX},
        text=[labels.spread(rate, unit="tok/s") for rate in rates],
        hovertemplate="%{x} in flight<br>%{text}<extra></extra>",
        row=1,
        col=1,
    )
    _latency(figure, found.rungs)
    if found.saturated:
        _knee(figure, found)
    figure.update_xaxes(
        type="log", tickvals=loads, ticktext=[str(load) for load in loads], automargin=True
    )
    figure.update_xaxes(title={"text": "requests in flight"}, row=2, col=1)
    figure.update_yaxes(linear_axis("output tokens/s", rangemode="tozero"), row=1, col=1)
    latencies = [
        value * MILLISECONDS_PER_S
        for rung in found.rungs
        for value in (rung.ttft_p50_s, rung.tpot_p50_s, rung.tpot_p95_s)
        if value
    ]
    if latencies:
        axis = log_axis(min(latencies) / ROOM, max(latencies) * ROOM, "latency in ms")
        figure.update_yaxes(axis, row=2, col=1)
    return figure


def _curve(figure: go.Figure, found: Saturation, loads: Sequence[int]) -> None:
    """The capped affine curve scaled to its own plateau (handbook 4.2)."""
    cap = float("inf") if found.cap is None else found.cap.value
    step_s, each_s = found.step_s.value, found.step_s_per_request.value
    grid = np.geomspace(min(loads), max(loads), CURVE_POINTS)
    inside = np.minimum(grid, cap)
    shape = inside / (step_s + each_s * inside)
    top = float(shape.max())
    if not np.isfinite(top) or top <= 0:
        return
    figure.add_scatter(
        x=grid.tolist(),
        y=(shape / top * found.plateau_tokens_per_s.value).tolist(),
        mode="lines",
        name="fit",
        line={"color": GREY, "width": BAR_PX, "dash": "dash"},
        hoverinfo="skip",
        row=1,
        col=1,
    )


def _latency(figure: go.Figure, rungs: Sequence[Rung]) -> None:
    series = (
        ("first token p50", PURPLE, "square", [rung.ttft_p50_s for rung in rungs]),
        ("per token p50", GREEN, "circle", [rung.tpot_p50_s for rung in rungs]),
        ("per token p95", GREEN, "circle-open", [rung.tpot_p95_s for rung in rungs]),
    )
    for name, colour, symbol, values in series:
        known = [
            (rung.concurrency, value * MILLISECONDS_PER_S)
            for rung, value in zip(rungs, values, strict=True)
            if value is not None
        ]
        if known:
            figure.add_scatter(
                x=[load for load, _ in known],
                y=[value for _, value in known],
                mode="lines+markers",
                name=name,
                line={"color": colour, "width": BAR_PX},
                marker={"symbol": symbol, "size": MARKER_PX - 2},
                hovertemplate=f"%{{x}} in flight<br>{name} %{{y:.1f}} ms<extra></extra>",
                row=2,
                col=1,
            )


def _knee(figure: go.Figure, found: Saturation) -> None:
    knee = found.concurrency
    for row in (1, 2):
        figure.add_vrect(
            x0=knee.low,
            x1=knee.high,
            fillcolor=veil(VERMILLION),
            line_width=0,
            layer="below",
            row=row,
            col=1,
        )
        figure.add_vline(
            x=knee.value, line={"color": VERMILLION, "width": BAR_PX, "dash": "dot"}, row=row, col=1
        )
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="lines",
        name="saturation with its interval",
        line={"color": VERMILLION, "width": BAR_PX, "dash": "dot"},
    )
