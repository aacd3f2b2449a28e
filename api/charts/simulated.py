"""A simulated load over time and the distribution of its times; one page of HTML."""

from collections.abc import Mapping
from html import escape
from typing import TypeAlias

import numpy as np
import plotly.graph_objects as go
import plotly.io
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from advisor.simulator.predicted import Run, kv_usage
from api.charts.figure import BLUE, GREEN, PURPLE, VERMILLION, linear_axis, log_axis

Floats: TypeAlias = NDArray[np.float64]
HEIGHT_PX = 860
_MOST_POINTS = 4000
_TITLES = ("Requests in the engine", "", "KV cache in use", "", "TTFT", "TPOT")
_STEP = {"shape": "vh"}  # what a step says holds until its end


def simulated_figure(ends: Mapping[str, Run]) -> go.Figure:
    """Queue, running requests and KV usage over time, then TTFT and TPOT as distributions.

    `ends` names the runs ("fast", "centre", "slow"); the picture over time is the centre's.
    """
    figure = make_subplots(
        rows=3,
        cols=2,
        specs=[[{"colspan": 2}, None], [{"colspan": 2}, None], [{}, {}]],
        subplot_titles=[title for title in _TITLES if title],
        vertical_spacing=0.1,
    )
    _over_time(figure, ends["centre"])
    for column, times in enumerate((_first_tokens, _later_tokens), start=1):
        _distributions(figure, {name: times(one) for name, one in ends.items()}, column)
    figure.update_layout(
        height=HEIGHT_PX,
        template="plotly_white",
        margin={"l": 56, "r": 16, "t": 56, "b": 48},
        legend={"orientation": "h", "y": -0.08},
    )
    return figure


def _over_time(figure: go.Figure, one: Run) -> None:
    outcome = one.outcome
    every = max(1, len(outcome.step_end_s) // _MOST_POINTS)
    since_s = outcome.step_end_s[::every] - np.nanmin(outcome.sent_s)
    for values, name, colour, row in (
        (outcome.running, "running", BLUE, 1),
        (outcome.waiting, "waiting", VERMILLION, 1),
        (100 * kv_usage(one), "KV cache", PURPLE, 2),
    ):
        line = go.Scatter(
            x=since_s, y=values[::every], name=name, line={"color": colour, **_STEP}, mode="lines"
        )
        figure.add_trace(line, row=row, col=1)
        figure.update_xaxes(linear_axis("seconds since the first request"), row=row, col=1)
    figure.update_yaxes(linear_axis("requests"), row=1, col=1)
    figure.update_yaxes(linear_axis("% of blocks", range=[0, 102]), row=2, col=1)


def _first_tokens(one: Run) -> Floats:
    return _positive(one.outcome.ttft_s)


def _later_tokens(one: Run) -> Floats:
    return _positive(one.outcome.tpot_s(one.load.output_tokens))


def _positive(values: Floats) -> Floats:
    return np.sort(values[~np.isnan(values) & (values > 0)])


def _distributions(figure: go.Figure, ends: Mapping[str, Floats], column: int) -> None:
    """One curve for each run, on an axis that holds them all."""
    found = {name: values for name, values in ends.items() if len(values)}
    if not found:
        return
    for (name, values), colour in zip(found.items(), (BLUE, GREEN, VERMILLION), strict=False):
        every = max(1, len(values) // _MOST_POINTS)
        share = 100 * np.arange(1, len(values) + 1) / len(values)
        line = go.Scatter(
            x=values[::every],
            y=share[::every],
            name=name,
            legendgroup=name,
            showlegend=column == 1,
            line={"color": colour},
            mode="lines",
        )
        figure.add_trace(line, row=3, col=column)
    least = min(float(values[0]) for values in found.values())
    most = max(float(values[-1]) for values in found.values())
    figure.update_xaxes(log_axis(least * 0.9, most * 1.1, "seconds"), row=3, col=column)
    figure.update_yaxes(linear_axis("% of requests up to", range=[0, 102]), row=3, col=column)


def page(figure: go.Figure, title: str, lines: list[str]) -> str:
    """The figure with a heading and sentences, as one HTML file that needs no network."""
    body = plotly.io.to_html(figure, full_html=False, include_plotlyjs=True)
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font-family:sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        f"</style></head><body><h1>{escape(title)}</h1>{said}{body}</body></html>"
    )
