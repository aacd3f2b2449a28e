"""When requests arrive, by the hour of the day, and how many are in flight."""

from collections.abc import Sequence

import plotly.graph_objects as go

from advisor.traffic.figures import PeakWindow, Timeline, TrafficSummary
from advisor.traffic.phrases import fano_parts, tick_sentence, window_text
from advisor.units import seconds_text
from api.charts.figure import (
    BAR_PX,
    BLUE,
    GREEN,
    SERIES,
    as_json,
    layout,
    linear_axis,
    veil,
    without,
)
from api.schemas import ChartView

RATE = "Arrivals over time"
DAY = "Arrivals by hour of the day"
FLIGHT = "Requests in flight over time"
TABLE_ROWS = 120
LOW_PX = 300
UNITS = ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
FEW = 3.0
# A stretch that is longer than this share of the picture marks nothing.
MOST_MARKED = 0.25


def rate_chart(summary: TrafficSummary) -> ChartView:
    """Requests per second in equal windows; the busiest stretches are marked."""
    profile = summary.profile
    if profile is None or profile.rate is None:
        why = summary.unmeasurable.get("rate", _no_times(summary))
        return without("rate", RATE, f"Not measurable: {why}.")
    figure = _lines(profile.rate, "requests per second", BLUE)
    scale, _ = _unit(profile.rate)
    whole_s = profile.rate.window_s * len(profile.rate.values)
    short = [peak for peak in profile.peaks if peak.window_s <= MOST_MARKED * whole_s]
    for place, peak in enumerate(short):
        _mark(figure, peak, scale, SERIES[(place + 1) % len(SERIES)])
    return ChartView(
        key="rate",
        title=RATE,
        caption=_rate_caption(summary, profile.rate),
        figure=as_json(figure),
        missing=None,
        columns=("busiest", "from", "requests", "per second"),
        rows=tuple(
            (
                window_text(peak.window_s),
                seconds_text(peak.start_s),
                f"{peak.requests:,}",
                f"{peak.rate_per_s:.3g}",
            )
            for peak in profile.peaks
        ),
    )


def _no_times(summary: TrafficSummary) -> str:
    return summary.unmeasurable.get("arrivals", "the file holds no times")


def _rate_caption(summary: TrafficSummary, rate: Timeline) -> str:
    said = [f"Requests per second in windows of {window_text(rate.window_s)}, from the times in"]
    said.append("the file; shaded: the busiest stretches.")
    profile = summary.profile
    if profile is not None and profile.burstiness is not None:
        parts = fano_parts(profile.burstiness)
        if parts:
            listed = ", ".join(f"{fano:.3g} in {window_text(at)}" for at, fano in parts)
            said.append(f"Fano factor by window: {listed} (1 is Poisson).")
        said.append(tick_sentence(profile.burstiness) or "")
    return " ".join(part for part in said if part)


def _unit(line: Timeline) -> tuple[float, str]:
    """The largest unit of which the whole has a few."""
    whole_s = line.window_s * len(line.values)
    return next(((size, name) for size, name in UNITS if whole_s >= FEW * size), UNITS[-1])


def _lines(line: Timeline, what: str, colour: str) -> go.Figure:
    scale, unit = _unit(line)
    figure = go.Figure(
        layout=layout(
            height=LOW_PX,
            legend=False,
            xaxis=linear_axis(f"{unit} after the first request", rangemode="tozero"),
            yaxis=linear_axis(what, rangemode="tozero"),
        )
    )
    figure.add_scatter(
        x=[place * line.window_s / scale for place in range(len(line.values))],
        y=list(line.values),
        mode="lines",
        name=what,
        line={"color": colour, "width": BAR_PX, "shape": "hv"},
        fill="tozeroy",
        fillcolor=veil(colour),
        hovertemplate=f"%{{x:.3g}} {unit}<br>%{{y:.3g}} {what}<extra></extra>",
    )
    return figure


def _mark(figure: go.Figure, peak: PeakWindow, scale: float, colour: str) -> None:
    figure.add_vrect(
        x0=peak.start_s / scale,
        x1=(peak.start_s + peak.window_s) / scale,
        fillcolor=veil(colour, 0.3),
        line={"width": 0},
        layer="below",
    )


def diurnal_chart(summary: TrafficSummary) -> ChartView:
    """Requests by the hour of the day."""
    hours = None if summary.profile is None else summary.profile.diurnal
    if hours is None:
        why = summary.unmeasurable.get("diurnal", _no_times(summary))
        return without("diurnal", DAY, f"Not measurable: {why}.")
    figure = go.Figure(
        layout=layout(
            height=LOW_PX,
            legend=False,
            xaxis=linear_axis("hour", dtick=3, range=[-0.6, len(hours) - 0.4]),
            yaxis=linear_axis("requests", rangemode="tozero"),
        )
    )
    figure.add_bar(
        x=list(range(len(hours))),
        y=list(hours),
        marker={"color": BLUE},
        hovertemplate="%{x} h<br>%{y} requests<extra></extra>",
    )
    return ChartView(
        key="diurnal",
        title=DAY,
        caption="Requests by hour, in UTC where the file names no zone; counted from its times.",
        figure=as_json(figure),
        missing=None,
        columns=("hour", "requests"),
        rows=tuple((str(hour), f"{count:,}") for hour, count in enumerate(hours)),
    )


def concurrency_chart(summary: TrafficSummary) -> ChartView:
    """Requests in flight from recorded durations."""
    found = None if summary.profile is None else summary.profile.concurrency
    if found is None:
        why = summary.unmeasurable.get("concurrency", "the file holds no durations")
        return without("concurrency", FLIGHT, f"Not measurable: {why}.")
    scale, unit = _unit(found.timeline)
    line = found.timeline
    return ChartView(
        key="concurrency",
        title=FLIGHT,
        caption=f"Mean {found.mean:.3g}, 95th percentile {found.p95:.3g}, peak {found.peak:,}; from"
        f" the durations that the log measured of {found.known:,} requests, in windows of"
        f" {window_text(line.window_s)}.",
        figure=as_json(_lines(line, "requests in flight", GREEN)),
        missing=None,
        columns=(f"from ({unit})", "requests in flight"),
        rows=_table(line.values, line.window_s / scale),
    )


def _table(values: Sequence[float], step: float) -> tuple[tuple[str, ...], ...]:
    """The values of a line, thinned where they are many."""
    stride = max(1, -(-len(values) // TABLE_ROWS))
    return tuple(
        (f"{place * step:.3g}", f"{values[place]:.3g}") for place in range(0, len(values), stride)
    )
