"""How often draft tokens are accepted, by their position."""

from collections.abc import Iterator

import plotly.graph_objects as go

from advisor.measurement.records import AcceptanceFigures
from advisor.recommender.recommendation import Recommendation
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    MARKER_PX,
    PLOT_PX,
    SERIES,
    SYMBOLS,
    as_json,
    interval,
    layout,
    linear_axis,
    plain,
    short,
    sources,
    without,
)
from api.schemas import ChartView

TITLE = "Accepted draft tokens by position"
SIDEWAYS = 0.06


def acceptance_chart(body: Recommendation) -> ChartView:
    """One line per technique and group of requests; nothing drafted is not 0 %."""
    found = list(_figures(body))
    drawn = [(name, figures) for name, figures in found if figures.per_position]
    if not drawn:
        reasons = list(dict.fromkeys(figures.reason or "no drafts" for _, figures in found))
        why = f" ({'; '.join(reasons)})" if reasons else ": no technique that drafts was measured"
        return without("acceptance", TITLE, f"No acceptance to show{why}.")
    rates = [rate for _, figures in drawn for rate in figures.per_position or ()]
    return ChartView(
        key="acceptance",
        title=TITLE,
        caption="Share of drafts whose tokens are accepted up to this position; lines are"
        f" intervals. Source: {sources(rates)}.",
        figure=as_json(_figure(drawn)),
        missing=None,
        columns=("technique", "accepted by position", "drafts", "tokens per step"),
        rows=tuple(_row(name, figures) for name, figures in found),
    )


def _figures(body: Recommendation) -> Iterator[tuple[str, AcceptanceFigures]]:
    for verdict in body.verdicts:
        for label, figures in verdict.acceptance.items():
            yield f"{verdict.title}: {label}", figures


def _row(name: str, figures: AcceptanceFigures) -> tuple[str, ...]:
    positions = figures.per_position
    per_step = figures.tokens_per_step
    return (
        name,
        f"none: {figures.reason or 'nothing was drafted'}"
        if positions is None
        else "; ".join(labels.share(rate) for rate in positions),
        f"{figures.drafts:,}",
        labels.NONE if per_step is None else f"{per_step:.2f}",
    )


def _figure(drawn: list[tuple[str, AcceptanceFigures]]) -> go.Figure:
    longest = max(len(figures.per_position or ()) for _, figures in drawn)
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=linear_axis(
                "position in the draft",
                tickvals=list(range(1, longest + 1)),
                range=[0.6, longest + 0.4],
            ),
            yaxis=linear_axis("accepted in %", range=[0, 102]),
        )
    )
    for place, (name, figures) in enumerate(drawn):
        rates = figures.per_position or ()
        colour = SERIES[place % len(SERIES)]
        shift = (place - (len(drawn) - 1) / 2) * SIDEWAYS
        figure.add_scatter(
            x=[position + shift for position in range(1, len(rates) + 1)],
            y=[rate.value * 100 for rate in rates],
            error_y=interval(rates, scale=0.01, colour=colour),
            mode="lines+markers",
            name=short(name, 60),
            line={"color": colour, "width": BAR_PX},
            marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": MARKER_PX},
            text=[labels.share(rate) for rate in rates],
            hovertemplate=f"{plain(name)}<br>%{{text}}<extra></extra>",
        )
    return figure
