"""What was predicted beside what was measured."""

import plotly.graph_objects as go

from advisor.recommender.recommendation import Prediction, Recommendation
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    GREY,
    MARKER_PX,
    PLOT_PX,
    SERIES,
    SYMBOLS,
    as_json,
    interval,
    layout,
    log_axis,
    plain,
    short,
    sources,
    without,
)
from api.schemas import ChartView

TITLE = "Predicted against measured throughput"
ROOM = 1.25


def predictions_chart(body: Recommendation) -> ChartView:
    """Both intervals of every prediction, and the diagonal on which a perfect one lies."""
    found = [
        item for item in body.predictions if item.predicted.value > 0 and item.measured.value > 0
    ]
    if not found:
        return without(
            "predictions", TITLE, "No prediction has a measurement beside it in this study."
        )
    inside = sum(item.predicted.low <= item.measured.value <= item.predicted.high for item in found)
    return ChartView(
        key="predictions",
        title=TITLE,
        caption=f"Output tokens per second, both axes logarithmic; on the diagonal a prediction is"
        f" exact. {inside} of {len(found)} measured values lie inside the predicted interval."
        f" Source: predicted by {sources(item.predicted for item in found)}; measured:"
        f" {sources(item.measured for item in found)}.",
        figure=as_json(_figure(found)),
        missing=None,
        columns=("configuration", "in flight", "predicted", "measured", "predicted from"),
        rows=tuple(
            (
                item.title,
                str(item.concurrency),
                labels.spread(item.predicted),
                labels.spread(item.measured),
                labels.origin(item.predicted),
            )
            for item in found
        ),
    )


def _figure(found: list[Prediction]) -> go.Figure:
    ends = [
        end
        for item in found
        for part in (item.predicted, item.measured)
        for end in (part.value, part.high, *([part.low] if part.low > 0 else []))
    ]
    low, high = min(ends) / ROOM, max(ends) * ROOM
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX + 60,
            xaxis=log_axis(low, high, "predicted tokens/s"),
            yaxis=log_axis(low, high, "measured tokens/s"),
        )
    )
    figure.add_scatter(
        x=[low, high],
        y=[low, high],
        mode="lines",
        name="exact",
        line={"color": GREY, "width": BAR_PX, "dash": "dash"},
        hoverinfo="skip",
    )
    titles = list(dict.fromkeys(item.title for item in found))
    for place, title in enumerate(titles):
        items = [item for item in found if item.title == title]
        colour = SERIES[place % len(SERIES)]
        figure.add_scatter(
            x=[item.predicted.value for item in items],
            y=[item.measured.value for item in items],
            error_x=interval([item.predicted for item in items], colour=colour),
            error_y=interval([item.measured for item in items], colour=colour),
            mode="markers",
            name=short(title),
            marker={
                "color": colour,
                "symbol": SYMBOLS[(place + place // len(SERIES)) % len(SYMBOLS)],
                "size": MARKER_PX,
            },
            text=[_hover(item) for item in items],
            hovertemplate="%{text}<extra></extra>",
        )
    return figure


def _hover(item: Prediction) -> str:
    return (
        f"{plain(item.title)}, {item.concurrency} in flight"
        f"<br>predicted {labels.spread(item.predicted)}<br>measured {labels.spread(item.measured)}"
    )
