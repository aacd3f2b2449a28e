"""The ranked configurations by what the goal asks for."""

import plotly.graph_objects as go

from advisor.recommender.recommendation import RankedConfig, Recommendation
from api.charts import labels
from api.charts.figure import (
    BLUE,
    GREY,
    as_json,
    interval,
    layout,
    linear_axis,
    row_axis,
    rows_height,
    short,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

TITLE = "Throughput of each configuration"
BAR_OPACITY = 0.45


def ranking_chart(body: Recommendation) -> ChartView:
    """Throughput at the goal's load, the first of the ranking on top; broken limits in grey."""
    if not body.ranked:
        return without("ranking", TITLE, "No configuration was measured at the goal's load.")
    rates = [item.throughput_tokens_per_s for item in body.ranked]
    return ChartView(
        key="ranking",
        title=TITLE,
        caption=f"Output tokens per second with {body.goal.concurrency} requests in flight; lines"
        " are intervals, grey bars break a limit of the goal. Source:"
        f" {sources(rates)}.",
        figure=as_json(_bars(body)),
        missing=None,
        columns=(
            "#",
            "configuration",
            "tokens/s",
            "gain",
            "first token p95",
            "per token p95",
            "limits",
        ),
        rows=tuple(_row(item) for item in body.ranked),
    )


def _bars(body: Recommendation) -> go.Figure:
    ranked = body.ranked
    rates = [item.throughput_tokens_per_s for item in ranked]
    places = list(range(len(ranked)))
    figure = go.Figure(
        layout=layout(
            height=rows_height(len(ranked)) - 20,
            legend=False,
            bargap=0.45,
            xaxis=linear_axis("output tokens per second", rangemode="tozero"),
            yaxis=row_axis([f"{item.rank}. {short(item.title)}" for item in ranked]),
        )
    )
    figure.add_bar(
        x=[rate.value for rate in rates],
        y=places,
        orientation="h",
        error_x=interval(rates, colour=BLUE),
        marker={"color": [veil(BLUE if item.feasible else GREY, BAR_OPACITY) for item in ranked]},
        text=[
            f"{short(item.title)}<br>{labels.spread(item.throughput_tokens_per_s, unit='tok/s')}"
            for item in ranked
        ],
        textposition="none",
        hovertemplate="%{text}<extra></extra>",
    )
    return figure


def _row(item: RankedConfig) -> tuple[str, ...]:
    tie = ", tied with a simpler one above" if item.tied_with_better else ""
    return (
        str(item.rank),
        item.title,
        labels.spread(item.throughput_tokens_per_s),
        labels.gain(item.gain) + tie,
        labels.spread(item.ttft_p95_s, scale=1e-3, unit="ms"),
        labels.spread(item.tpot_p95_s, scale=1e-3, unit="ms"),
        "met" if item.feasible else f"broken: {item.why_not or 'no reason given'}",
    )
