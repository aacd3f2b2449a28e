"""What every picture shares: colours, layout, interval bars, the JSON that is sent."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from advisor.estimate import Estimate
from advisor.recommender.recommendation import VerdictKind
from api.charts import labels
from api.schemas import ChartView, JsonObject

# After Okabe and Ito's set for colour-blind readers: those with a contrast of 3 or more on a white
# and on a dark page alike (tests/unit/test_charts.py), its blue a shade lighter for that.
BLUE = "#2B85CF"
VERMILLION = "#D55E00"
GREEN = "#009E73"
PURPLE = "#C46A9E"
GREY = "#7F7F7F"
BROWN = "#9A6A3A"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, BROWN, GREY)
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
VERDICT_COLOURS: Mapping[VerdictKind, str] = {
    VerdictKind.HELPS: BLUE,
    VerdictKind.HURTS: VERMILLION,
    VerdictKind.NEUTRAL: GREY,
    VerdictKind.UNKNOWN: PURPLE,
    VerdictKind.NOT_APPLICABLE: GREY,
}
VERDICT_SYMBOLS: Mapping[VerdictKind, str] = {
    VerdictKind.HELPS: "circle",
    VerdictKind.HURTS: "square",
    VerdictKind.NEUTRAL: "diamond",
    VerdictKind.UNKNOWN: "triangle-up",
    VerdictKind.NOT_APPLICABLE: "x",
}
CLEAR = "rgba(0,0,0,0)"
MARKER_PX = 10
BAR_PX = 1.5
ROW_PX = 40
FRAME_PX = 120
PLOT_PX = 420
TITLE_CHARS = 46
BASES_SHOWN = 3
FEW_DECADES = 300.0


def veil(colour: str, opacity: float = 0.16) -> str:
    """A colour for areas: lines and text below stay readable."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def plain(text: str) -> str:
    """Somebody else's text: plotly would read tags in it."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return " ".join(escaped.split())


def short(title: str, limit: int = TITLE_CHARS) -> str:
    """A title that leaves room for the picture."""
    return plain(title if len(title) <= limit else f"{title[: limit - 1]}…")


def layout(*, height: int, legend: bool = True, **more: object) -> go.Layout:
    """A layout without colours of its own, so that the page's are used."""
    return go.Layout(
        template=go.layout.Template(),
        height=height,
        showlegend=legend,
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
        hoverlabel={"align": "left"},
        **more,
    )


def log_axis(low: float, high: float, title: str) -> dict[str, object]:
    """A logarithmic axis from `low` to `high` with whole labels at 1, 2 and 5 of each decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high / low < FEW_DECADES else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": inside,
        "ticktext": [labels.amount(tick) for tick in inside],
        "title": {"text": title},
        "automargin": True,
        "zeroline": False,
    }


def linear_axis(title: str, **more: object) -> dict[str, object]:
    """A linear axis that leaves room for its labels."""
    return {"title": {"text": title}, "automargin": True, "zeroline": False, **more}


def row_axis(names: Sequence[str]) -> dict[str, object]:
    """One line per name, the first on top; numbers, for two rows may have one name."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.4, -0.6],
        "automargin": True,
        "zeroline": False,
        "showgrid": False,
    }


def rows_height(rows: int) -> int:
    """Pixels of a picture with one line per row."""
    return FRAME_PX + ROW_PX * rows


def interval(values: Sequence[Estimate], *, scale: float = 1.0, colour: str) -> dict[str, object]:
    """Interval bars of estimates; values are divided by `scale`."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [(item.high - item.value) / scale for item in values],
        "arrayminus": [(item.value - item.low) / scale for item in values],
        "color": colour,
        "thickness": BAR_PX,
        "width": 4,
    }


def as_json(figure: go.Figure) -> JsonObject:
    """The figure as JSON values; without a template the page's own is used."""
    held: dict[str, dict[str, object]] = json.loads(figure.to_json(engine="json"))
    held["layout"].pop("template", None)
    return {"data": held["data"], "layout": held["layout"]}


def sources(values: Iterable[Estimate | None]) -> str:
    """Where figures come from: each source with how its intervals were made."""
    found: dict[str, list[str]] = {}
    for item in values:
        if item is not None:
            bases = found.setdefault(item.source.value, [])
            if item.basis not in bases:
                bases.append(item.basis)
    return "; ".join(f"{source} ({_listed(bases)})" for source, bases in found.items())


def _listed(bases: Sequence[str]) -> str:
    rest = len(bases) - BASES_SHOWN
    tail = f", and {rest} more" if rest > 0 else ""
    return ", ".join(bases[:BASES_SHOWN]) + tail


def without(key: str, title: str, missing: str) -> ChartView:
    """A sentence in place of a picture: nothing is drawn from what was not measured."""
    return ChartView(
        key=key, title=title, caption="", figure=None, missing=missing, columns=(), rows=()
    )
