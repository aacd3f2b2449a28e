"""Pictures of figures with their intervals; colours come from Streamlit's theme."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from advisor.estimate import Estimate
from advisor.recommender.recommendation import RankedConfig
from advisor.traffic.trace import Quantiles

ROW_PX = 44
FRAME_PX = 110
TITLE_CHARS = 48


def lengths_chart(lengths: Mapping[str, Quantiles], unit: str) -> None:
    """One box per row: 5th to 95th percentile, the box from the 25th to the 75th, the median."""
    labels = list(lengths)
    found = list(lengths.values())
    box = go.Box(
        y=labels,
        orientation="h",
        lowerfence=[item.p5 for item in found],
        q1=[item.p25 for item in found],
        median=[item.p50 for item in found],
        q3=[item.p75 for item in found],
        upperfence=[item.p95 for item in found],
        mean=[item.mean for item in found],
    )
    _draw(box, labels, unit)


def ranking_chart(ranked: Sequence[RankedConfig]) -> None:
    """Measured throughput per configuration with its interval, the first of the ranking on top."""
    labels = [f"{item.rank}. {_short(item.title)}" for item in ranked]
    _draw(
        _bars([item.throughput_tokens_per_s for item in ranked], labels),
        labels,
        "output tokens per second",
    )


def _bars(values: Sequence[Estimate], labels: Sequence[str]) -> go.Bar:
    return go.Bar(
        y=list(labels),
        x=[item.value for item in values],
        orientation="h",
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [item.high - item.value for item in values],
            "arrayminus": [item.value - item.low for item in values],
        },
    )


def _draw(trace: go.Bar | go.Box, labels: Sequence[str], unit: str) -> None:
    figure = go.Figure(trace)
    figure.update_layout(
        height=FRAME_PX + ROW_PX * len(labels),
        showlegend=False,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        xaxis={"title": unit, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "type": "category"},
    )
    st.plotly_chart(figure, config={"displayModeBar": False})


def _short(title: str) -> str:
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"
