"""How long prompts and outputs are together, and what a length limit serves."""

import plotly.graph_objects as go

from advisor.traffic.figures import Fit, JointLengths, TrafficSummary
from advisor.traffic.phrases import percent
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    BLUE,
    MARKER_PX,
    PLOT_PX,
    SYMBOLS,
    VERMILLION,
    as_json,
    layout,
    linear_axis,
    log_axis,
    veil,
    without,
)
from api.schemas import ChartView

JOINT = "Prompt and output lengths together"
FIT = "What a length limit serves"
MOST_TICKS = 12


def joint_chart(summary: TrafficSummary) -> ChartView:
    """Requests by prompt and output length; the darker, the more."""
    joint = None if summary.profile is None else summary.profile.joint_lengths
    if joint is None:
        why = summary.unmeasurable.get("joint_lengths", "prompts or outputs have no counts")
        return without("joint_lengths", JOINT, f"Not measurable: {why}.")
    total = sum(sum(row) for row in joint.counts)
    tail = (
        ""
        if joint.correlation is None
        else f" Rank correlation {joint.correlation:+.2f} (Spearman)."
    )
    return ChartView(
        key="joint_lengths",
        title=JOINT,
        caption=f"{total:,} requests by the tokens of prompt and output, counted from the upload;"
        f" a darker field holds more requests.{tail}",
        figure=as_json(_joint_figure(joint)),
        missing=None,
        columns=("prompt from", "output from", "requests"),
        rows=tuple(
            (_edge(joint.prompt_edges[i]), _edge(joint.output_edges[j]), f"{count:,}")
            for i, row in enumerate(joint.counts)
            for j, count in enumerate(row)
            if count
        ),
    )


def _joint_figure(joint: JointLengths) -> go.Figure:
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            legend=False,
            xaxis=linear_axis("prompt tokens", showgrid=False, **_edges(joint.prompt_edges)),
            yaxis=linear_axis("output tokens", showgrid=False, **_edges(joint.output_edges)),
        )
    )
    columns = [list(column) for column in zip(*joint.counts, strict=True)]
    figure.add_heatmap(
        x=list(range(len(joint.prompt_edges))),
        y=list(range(len(joint.output_edges))),
        z=[[count or None for count in row] for row in columns],
        customdata=[
            [
                f"{_span(joint.prompt_edges, i)} prompt, {_span(joint.output_edges, j)} output"
                for i in range(len(joint.prompt_edges) - 1)
            ]
            for j in range(len(joint.output_edges) - 1)
        ],
        colorscale=[[0.0, veil(BLUE, 0.12)], [1.0, BLUE]],
        zmin=0,
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": "requests"}, "thickness": 12},
        hovertemplate="%{customdata}<br>%{z} requests<extra></extra>",
    )
    return figure


def _edges(edges: tuple[float, ...]) -> dict[str, object]:
    """Ticks at the edges of the bins, not too many."""
    step = max(1, -(-len(edges) // MOST_TICKS))
    places = list(range(0, len(edges), step))
    return {"tickvals": places, "ticktext": [_edge(edges[place]) for place in places]}


def _edge(edge: float) -> str:
    return f"{edge:,.0f}"


def _span(edges: tuple[float, ...], place: int) -> str:
    return f"{_edge(edges[place])} to {_edge(edges[place + 1])}"


def fit_chart(summary: TrafficSummary) -> ChartView:
    """Share of requests and of prompt tokens within each limit."""
    fits = sorted(summary.fits, key=lambda fit: fit.max_model_len)
    if not fits:
        why = summary.unmeasurable.get("fits", "the upload does not say how long requests are")
        return without("fit", FIT, f"Not measurable: {why}.")
    return ChartView(
        key="fit",
        title=FIT,
        caption="Share of requests, and of their prompt tokens, that a server with this"
        " max_model_len takes; an unknown output counts with its max_tokens, else as one token."
        f" {fits[-1].needed_max_model_len:,} tokens would serve all. Counted from the upload.",
        figure=as_json(_fit_figure(fits)),
        missing=None,
        columns=(
            "max_model_len",
            "requests served",
            "too long by the prompt alone",
            "tokens served",
        ),
        rows=tuple(
            (
                f"{fit.max_model_len:,}",
                f"{fit.fitting:,} of {fit.requests:,}",
                f"{fit.prompt_too_long:,}",
                percent(_token_share(fit)),
            )
            for fit in fits
        ),
    )


def _token_share(fit: Fit) -> float:
    return fit.prompt_tokens_fitting / fit.prompt_tokens if fit.prompt_tokens else 1.0


def _fit_figure(fits: list[Fit]) -> go.Figure:
    limits = [fit.max_model_len for fit in fits]
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=log_axis(limits[0] * 0.9, max(limits[-1] * 1.1, limits[0] * 2), "max_model_len"),
            yaxis=linear_axis("served in %", range=[0, 102]),
        )
    )
    for name, shares, colour, place in (
        (
            "requests",
            [fit.fitting / fit.requests if fit.requests else 1.0 for fit in fits],
            BLUE,
            0,
        ),
        ("prompt tokens", [_token_share(fit) for fit in fits], VERMILLION, 1),
    ):
        figure.add_scatter(
            x=limits,
            y=[share * 100 for share in shares],
            mode="lines+markers",
            name=name,
            line={"color": colour, "width": BAR_PX},
            marker={"symbol": SYMBOLS[place], "size": MARKER_PX},
            text=[
                f"{labels.amount(float(limit))}: {percent(share)}"
                for limit, share in zip(limits, shares, strict=True)
            ],
            hovertemplate=f"{name}<br>%{{text}}<extra></extra>",
        )
    return figure
