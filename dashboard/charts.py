"""Pictures; the colours of text and grid come from Streamlit's theme."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from advisor.traffic.figures import Quantiles
from api.client import ChartView
from dashboard.listing import table
from dashboard.wording import plain

ROW_PX = 44
FRAME_PX = 110


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


def show_chart(chart: ChartView, *, tabled: bool = True) -> None:
    """A picture that the service made and its caption; `tabled` adds its figures as a table."""
    if chart.figure is None:
        st.info(plain(chart.missing or "There is nothing to draw."))
        return
    st.plotly_chart(
        dict(chart.figure),
        config={"displayModeBar": False},
        key=f"chart_{chart.key}",
        alt=f"{chart.title}. {chart.caption}",
    )
    st.caption(plain(chart.caption))
    if not tabled:
        return
    with st.expander("The same figures as a table"):
        table([dict(zip(chart.columns, row, strict=True)) for row in chart.rows])


def _draw(trace: go.Box, labels: Sequence[str], unit: str) -> None:
    figure = go.Figure(trace)
    figure.update_layout(
        height=FRAME_PX + ROW_PX * len(labels),
        showlegend=False,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        xaxis={"title": unit, "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "automargin": True, "type": "category"},
    )
    st.plotly_chart(figure, config={"displayModeBar": False})
