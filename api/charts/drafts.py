"""What a replay of the recorded outputs says of drafts that are looked up in text."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from advisor.recommender.phrases import span_text
from advisor.traffic.figures import LookupAcceptance, TrafficSummary
from advisor.traffic.phrases import lookup_title, percent
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
    linear_axis,
    plain,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

NGRAM = "ngram"
POSITIONS = "Drafts from text: accepted by position"
STEPS = "Drafts from text: tokens per step by draft length"
SIDEWAYS = 0.05
# Draft lengths and positions that a picture has room for; the table has all.
DRAWN_LENGTHS = (1, 2, 4, 8)
DRAWN_POSITIONS = 8


def replays(summary: TrafficSummary) -> tuple[LookupAcceptance, ...]:
    """Every replay of all requests: the sweep, else those of the summary, then the suffix one."""
    swept = summary.lookup_sweep
    if not swept and summary.overall.lookup is not None:
        swept = (summary.overall.lookup, *summary.overall.other_lookups)
    return (*swept, *(() if summary.suffix is None else (summary.suffix,)))


def positions_chart(summary: TrafficSummary) -> ChartView:
    """One line per draft length, at the lookup window that yields most."""
    found = [item for item in replays(summary) if item.per_position]
    if not found:
        return without("draft_positions", POSITIONS, _missing(summary))
    best = _best(found)
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=linear_axis("position in the draft", dtick=1),
            yaxis=linear_axis("accepted in %", range=[0, 102]),
        )
    )
    for place, item in enumerate(_drawn(best)):
        rates = item.per_position[:DRAWN_POSITIONS]
        _add(
            figure,
            place,
            lookup_title(item),
            x=list(range(1, len(rates) + 1)),
            y=[rate * 100 for rate in rates],
        )
    return ChartView(
        key="draft_positions",
        title=POSITIONS,
        caption="Share of drafts whose tokens are accepted up to this position, for each draft"
        " length the lookup that yields most; a replay of the recorded outputs, as exact as they"
        f" are (temperature 0). Over {best[0].requests:,} requests.",
        figure=as_json(figure),
        missing=None,
        columns=("lookup", "accepted by position", "drafts", "steps with a draft"),
        rows=tuple(
            (
                lookup_title(item),
                "; ".join(percent(rate) for rate in item.per_position),
                f"{item.drafts:,}",
                percent(item.coverage),
            )
            for item in found
        ),
    )


def steps_chart(summary: TrafficSummary) -> ChartView:
    """Tokens per step against the draft length, one line per lookup window."""
    found = replays(summary)
    if not found:
        return without("draft_steps", STEPS, _missing(summary))
    lines = _by_window([item for item in found if item.method == NGRAM])
    lengths = sorted({item.num_speculative_tokens for item in found if item.method == NGRAM})
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=linear_axis("draft length k", tickvals=lengths),
            yaxis=linear_axis("tokens per step (1 without drafts)"),
        )
    )
    for place, (name, items) in enumerate(lines.items()):
        shift = (place - (len(lines) - 1) / 2) * SIDEWAYS
        rates = [item.tokens_per_step for item in items]
        _add(
            figure,
            place,
            name,
            x=[item.num_speculative_tokens + shift for item in items],
            y=[rate.value for rate in rates],
            error_y=interval(rates, colour=SERIES[place % len(SERIES)]),
            text=[span_text(rate, digits=2) for rate in rates],
        )
    if summary.suffix is not None and lengths:
        _add_suffix(figure, summary.suffix, lengths)
    return ChartView(
        key="draft_steps",
        title=STEPS,
        caption="Tokens per step of a request, steps without a draft included. An engine gains this"
        " only as far as verifying a draft costs no more than a step. Source:"
        f" {sources([item.tokens_per_step for item in found])}.",
        figure=as_json(figure),
        missing=None,
        columns=("lookup", "tokens per step"),
        rows=tuple(
            (lookup_title(item), span_text(item.tokens_per_step, digits=2)) for item in found
        ),
    )


def _add_suffix(figure: go.Figure, found: LookupAcceptance, lengths: Sequence[int]) -> None:
    """A level: its drafts are as long as the match, not of one length."""
    rate = found.tokens_per_step
    figure.add_hrect(y0=rate.low, y1=rate.high, fillcolor=veil(GREY), line={"width": 0})
    figure.add_scatter(
        x=[lengths[0], lengths[-1]],
        y=[rate.value, rate.value],
        mode="lines",
        name=f"suffix, up to {found.num_speculative_tokens}",
        line={"color": GREY, "width": BAR_PX, "dash": "dash"},
        hovertemplate=f"suffix<br>{span_text(rate, digits=2)}<extra></extra>",
    )


def _drawn(best: Sequence[LookupAcceptance]) -> list[LookupAcceptance]:
    """All, or where they are more than colours a few lengths."""
    if len(best) <= len(SERIES):
        return list(best)
    return [
        item
        for item in best
        if item.method != NGRAM or item.num_speculative_tokens in DRAWN_LENGTHS
    ]


def _missing(summary: TrafficSummary) -> str:
    why = summary.unmeasurable.get("lookup", "the upload holds no recorded outputs")
    return f"Not measurable: {why}."


def _best(found: Sequence[LookupAcceptance]) -> list[LookupAcceptance]:
    """Per method and draft length the replay with most tokens per step."""
    best: dict[tuple[str, int], LookupAcceptance] = {}
    for item in found:
        key = (item.method, item.num_speculative_tokens)
        held = best.get(key)
        if held is None or item.tokens_per_step.value > held.tokens_per_step.value:
            best[key] = item
    return [best[key] for key in sorted(best)]


def _by_window(found: Sequence[LookupAcceptance]) -> Mapping[str, list[LookupAcceptance]]:
    lines: dict[str, list[LookupAcceptance]] = {}
    for item in sorted(found, key=lambda item: item.num_speculative_tokens):
        lines.setdefault(lookup_title(item).split(", k=")[0], []).append(item)
    return lines


def _add(figure: go.Figure, place: int, name: str, **more: object) -> None:
    colour = SERIES[place % len(SERIES)]
    figure.add_scatter(
        mode="lines+markers",
        name=plain(name),
        line={"color": colour, "width": BAR_PX},
        marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": MARKER_PX, "color": colour},
        hovertemplate=f"{plain(name)}<br>%{{y:.3g}}<extra></extra>",
        **more,
    )
