"""What each technique does: gains with intervals, at each load and for each request class."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from advisor.estimate import Estimate
from advisor.measurement.protocol.pairs import NEUTRAL_BAND
from advisor.recommender.recommendation import Effect, Recommendation, Verdict, VerdictKind
from advisor.units import percent_text
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    GREY,
    MARKER_PX,
    SERIES,
    SYMBOLS,
    VERDICT_COLOURS,
    VERDICT_SYMBOLS,
    as_json,
    interval,
    layout,
    plain,
    row_axis,
    rows_height,
    short,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

GAINS = "Gain of each technique, with its interval"
BY_CLASS = "Gain of each technique by request class"
TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 20.0)
MOST_TICKS = 9
LEAST_RATIO = 0.02
PREDICTED_BELOW = 0.22


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the picture."""

    label: str
    kind: VerdictKind
    measured: Estimate | None
    predicted: Estimate | None


def gains_chart(body: Recommendation) -> ChartView:
    """A forest: one line per technique and load, sorted as the verdicts are."""
    effects = [(verdict, effect) for verdict in body.verdicts for effect in verdict.effects]
    rows = [
        Row(
            label=f"{short(verdict.title)}, {effect.concurrency} in flight",
            kind=effect.kind,
            measured=effect.measured,
            predicted=effect.predicted,
        )
        for verdict, effect in effects
    ]
    drawn = [row for row in rows if row.measured is not None or row.predicted is not None]
    if not drawn:
        return without("gains", GAINS, "No technique has a measured or a predicted gain.")
    absent = [row.label for row in rows if row not in drawn]
    tail = f" Without a figure: {'; '.join(absent)}; the table says why." if absent else ""
    figures = [item for row in drawn for item in (row.measured, row.predicted)]
    return ChartView(
        key="gains",
        title=GAINS,
        caption="Change of the goal's figure by having the technique, on a logarithmic scale; right"
        f" of 0 % is better. The shaded band is the neutral one (±{NEUTRAL_BAND:.0%}). Lines are"
        f" intervals. Source: {sources(figures)}.{tail}",
        figure=as_json(_forest(drawn)),
        missing=None,
        columns=("technique", "in flight", "verdict", "measured", "predicted", "from"),
        rows=tuple(_effect(verdict, effect) for verdict, effect in effects),
    )


def _effect(verdict: Verdict, effect: Effect) -> tuple[str, ...]:
    missing = f"{labels.NONE}: {effect.reason or 'no reason given'}"
    return (
        verdict.title,
        str(effect.concurrency),
        effect.kind.value,
        missing if effect.measured is None else labels.gain(effect.measured),
        "not predicted" if effect.predicted is None else labels.gain(effect.predicted),
        labels.origin(effect.measured or effect.predicted),
    )


def class_chart(body: Recommendation) -> ChartView:
    """Gain of the time per output token by class, where requests have classes."""
    found = list(_class_gains(body))
    if not found:
        return without(
            "classes",
            BY_CLASS,
            "No gain by request class: the traffic has no classes, or none had enough requests.",
        )
    names = list(dict.fromkeys(name for name, _, _ in found))
    rows = [
        Row(
            label=f"{plain(label)}: {name}",
            kind=VerdictKind.UNKNOWN,
            measured=gain,
            predicted=None,
        )
        for name, label, gain in sorted(found, key=lambda item: item[1])
    ]
    marks = {name: place for place, name in enumerate(names)}
    figure = _frame(rows, legend=False)
    for name in names:
        _points(
            figure,
            [(place, row) for place, row in enumerate(rows) if row.label.endswith(f": {name}")],
            name=name,
            colour=SERIES[marks[name] % len(SERIES)],
            symbol=SYMBOLS[marks[name] % len(SYMBOLS)],
        )
    return ChartView(
        key="classes",
        title=BY_CLASS,
        caption="How much faster the output tokens of one request follow each other; right of 0 %"
        " is faster. Lines are intervals. Source:"
        f" {sources(gain for _, _, gain in found)}.",
        figure=as_json(figure),
        missing=None,
        columns=("class", "technique", "gain", "from"),
        rows=tuple(
            (label, name, labels.gain(gain), labels.origin(gain)) for name, label, gain in found
        ),
    )


def _class_gains(body: Recommendation) -> Iterator[tuple[str, str, Estimate]]:
    """Technique with its load, class, gain."""
    for verdict in body.verdicts:
        for effect in verdict.effects:
            for label, gain in effect.by_class.items():
                yield f"{short(verdict.title)}, {effect.concurrency} in flight", label, gain


def _forest(rows: Sequence[Row]) -> go.Figure:
    figure = _frame(rows)
    for kind in VerdictKind:
        _points(
            figure,
            [(place, row) for place, row in enumerate(rows) if row.kind is kind],
            name=kind.value,
            colour=VERDICT_COLOURS[kind],
            symbol=VERDICT_SYMBOLS[kind],
        )
    guessed = [
        (place + PREDICTED_BELOW, row, row.predicted)
        for place, row in enumerate(rows)
        if row.predicted is not None and row.predicted.value > 0
    ]
    if guessed:
        values = [_positive(item) for _, _, item in guessed]
        figure.add_scatter(
            x=[item.value for item in values],
            y=[place for place, _, _ in guessed],
            error_x=interval(values, colour=GREY),
            mode="markers",
            name="predicted before any probe",
            marker={
                "color": GREY,
                "symbol": "circle-open",
                "size": MARKER_PX - 2,
                "line": {"width": BAR_PX},
            },
            text=[f"{row.label}<br>predicted {labels.gain(item)}" for _, row, item in guessed],
            hovertemplate="%{text}<extra></extra>",
        )
    return figure


def _points(
    figure: go.Figure, rows: Sequence[tuple[int, Row]], *, name: str, colour: str, symbol: str
) -> None:
    found = [
        (place, row, row.measured)
        for place, row in rows
        if row.measured is not None and row.measured.value > 0
    ]
    if not found:
        return
    values = [_positive(item) for _, _, item in found]
    figure.add_scatter(
        x=[item.value for item in values],
        y=[place for place, _, _ in found],
        error_x=interval(values, colour=colour),
        mode="markers",
        name=name,
        marker={"color": colour, "symbol": symbol, "size": MARKER_PX},
        text=[f"{row.label}<br>{labels.gain(item)}" for _, row, item in found],
        hovertemplate="%{text}<extra></extra>",
    )


def _frame(rows: Sequence[Row], *, legend: bool = True) -> go.Figure:
    """Axes, the line of no effect, the neutral band."""
    ends = [
        end
        for row in rows
        for item in (row.measured, row.predicted)
        if item is not None and item.value > 0
        for end in (_positive(item).low, item.high)
    ]
    low = min([*ends, 1 - 2 * NEUTRAL_BAND]) / 1.05
    high = max([*ends, 1 + 2 * NEUTRAL_BAND]) * 1.05
    ticks = _ticks(low, high)
    axis: Mapping[str, object] = {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": ["0 %" if tick == 1 else _percent(tick) for tick in ticks],
        "title": {"text": "gain (change in %)"},
        "zeroline": False,
        "automargin": True,
    }
    figure = go.Figure(
        layout=layout(
            height=rows_height(len(rows)),
            xaxis=axis,
            legend=legend,
            yaxis=row_axis([row.label for row in rows]),
        )
    )
    figure.add_vrect(
        x0=1 - NEUTRAL_BAND, x1=1 + NEUTRAL_BAND, fillcolor=veil(GREY), line_width=0, layer="below"
    )
    figure.add_vline(x=1, line={"color": GREY, "width": BAR_PX, "dash": "dash"})
    return figure


def _positive(item: Estimate) -> Estimate:
    """The estimate with a lower end that a logarithmic axis can show."""
    return Estimate(
        value=item.value,
        low=min(item.value, max(item.low, LEAST_RATIO)),
        high=item.high,
        source=item.source,
        basis=item.basis,
    )


def _ticks(low: float, high: float) -> list[float]:
    """Ratios inside the range, with 1, far enough apart for their labels."""
    inside = [tick for tick in TICKS if low <= tick <= high]
    apart = math.log(high / low) / MOST_TICKS
    chosen = [1.0]
    for tick in sorted(inside, key=lambda tick: abs(math.log(tick))):
        if all(abs(math.log(tick / other)) >= apart for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _percent(ratio: float) -> str:
    return percent_text(ratio).replace(".0 ", " ").replace("-", "−")  # noqa: RUF001  (a minus)
