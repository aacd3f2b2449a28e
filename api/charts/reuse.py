"""How much of the prompts a prefix cache serves, by its size."""

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from advisor.recommender.cache_share import share_at
from advisor.recommender.capacity import CacheSize, cache_sentence
from advisor.recommender.phrases import share_text
from advisor.traffic.figures import FirstDifference, PrefixReuse, ReusePoint, TrafficSummary
from advisor.traffic.phrases import early_sentence, percent
from api.charts import labels
from api.charts.figure import (
    BAR_PX,
    BLUE,
    GREEN,
    GREY,
    MARKER_PX,
    PLOT_PX,
    VERMILLION,
    as_json,
    layout,
    linear_axis,
    log_axis,
    sources,
    veil,
    without,
)
from api.schemas import ChartView

TITLE = "Prompt tokens served from a prefix cache, by its size"
DIFFER = "Where prompts first differ from all earlier ones"
CURVE, REPLAY = "any size, by stack distance", "replayed as vLLM evicts"
LOW_PX = 300


def reuse_chart(summary: TrafficSummary, cache: CacheSize | None = None) -> ChartView:
    """Hit share against capacity, the ceiling, a replay of the engine's LRU, the target's cache."""
    reuse = summary.reuse
    if reuse is None or not reuse.curve:
        why = summary.unmeasurable.get("reuse", summary.unmeasurable.get("prefix_sharing"))
        return without("reuse", TITLE, f"Not measurable: {why or 'no prompts were counted'}.")
    return ChartView(
        key="reuse",
        title=TITLE,
        caption=" ".join(_caption(reuse, cache)),
        figure=as_json(_figure(reuse, cache)),
        missing=None,
        columns=("KV blocks", "tokens", "hit share", "LRU replay"),
        rows=_rows(reuse),
    )


def _caption(reuse: PrefixReuse, cache: CacheSize | None) -> Iterator[str]:
    yield (
        f"An unlimited cache serves {share_text(reuse.ceiling)} of the prompt tokens. Line: stack"
        f" distances over blocks of {reuse.block_size:,} tokens (made of {reuse.origin}), in the"
        " order of arrival; squares: a replay of vLLM's free queue, least recently used first."
    )
    if cache is not None:
        share = percent(share_at(reuse.curve, cache.tokens / reuse.block_size))
        yield f"{cache_sentence(cache)} With nothing else in it that serves {share}."
    yield f"Source of the ceiling: {sources([reuse.ceiling])}."


def _rows(reuse: PrefixReuse) -> tuple[tuple[str, ...], ...]:
    curve = {point.capacity_blocks: point.hit_share for point in reuse.curve}
    replayed = {point.capacity_blocks: point.hit_share for point in reuse.lru}
    return tuple(
        (
            f"{blocks:,}",
            f"{blocks * reuse.block_size:,}",
            _shown(curve.get(blocks)),
            _shown(replayed.get(blocks)),
        )
        for blocks in sorted(curve.keys() | replayed.keys())
    )


def _shown(share: float | None) -> str:
    return "" if share is None else percent(share)


def _figure(reuse: PrefixReuse, cache: CacheSize | None) -> go.Figure:
    sizes = [point.capacity_blocks * reuse.block_size for point in (*reuse.curve, *reuse.lru)]
    sizes += [] if cache is None else [cache.tokens]
    low, high = max(1, min(sizes)), max(sizes)
    figure = go.Figure(
        layout=layout(
            height=PLOT_PX,
            xaxis=log_axis(low * 0.8, max(high * 1.25, low * 2), "tokens that the KV cache holds"),
            yaxis=linear_axis("prompt tokens served in %", range=[0, 102]),
        )
    )
    _add_ceiling(figure, reuse, (low * 0.8, max(high * 1.25, low * 2)))
    line = {"color": BLUE, "width": BAR_PX}
    _add(figure, reuse.curve, reuse.block_size, name=CURVE, mode="lines", line=line)
    if reuse.lru:
        marker = {"symbol": "square", "size": MARKER_PX, "color": VERMILLION}
        _add(figure, reuse.lru, reuse.block_size, name=REPLAY, mode="markers", marker=marker)
    if cache is not None:
        figure.add_vline(x=cache.tokens, line={"color": GREEN, "width": 2, "dash": "dot"})
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="lines",
            name="the target's cache",
            line={"color": GREEN, "width": 2, "dash": "dot"},
        )
    return figure


def _add_ceiling(figure: go.Figure, reuse: PrefixReuse, ends: tuple[float, float]) -> None:
    ceiling = reuse.ceiling
    figure.add_hrect(
        y0=ceiling.low * 100, y1=ceiling.high * 100, fillcolor=veil(GREY), line={"width": 0}
    )
    figure.add_scatter(
        x=list(ends),
        y=[ceiling.value * 100] * 2,
        mode="lines",
        name="unlimited cache",
        line={"color": GREY, "width": BAR_PX, "dash": "dash"},
        hovertemplate=f"unlimited cache<br>{share_text(ceiling)}<extra></extra>",
    )


def _add(figure: go.Figure, points: Sequence[ReusePoint], block_size: int, **more: object) -> None:
    sizes = [point.capacity_blocks * block_size for point in points]
    figure.add_scatter(
        x=sizes,
        y=[point.hit_share * 100 for point in points],
        text=[
            f"{labels.amount(float(size), 'tokens')}: {percent(point.hit_share)}"
            for size, point in zip(sizes, points, strict=True)
        ],
        hovertemplate=f"{more['name']}<br>%{{text}}<extra></extra>",
        **more,
    )


def difference_chart(summary: TrafficSummary) -> ChartView:
    """At which token prompts leave all earlier ones."""
    found = None if summary.reuse is None else summary.reuse.first_difference
    if found is None:
        why = summary.unmeasurable.get("reuse", summary.unmeasurable.get("prefix_sharing"))
        return without("difference", DIFFER, f"Not measurable: {why or 'no prompts were counted'}.")
    spans = _spans(found)
    figure = go.Figure(
        layout=layout(
            height=LOW_PX,
            legend=False,
            xaxis=linear_axis("first differing token", type="category"),
            yaxis=linear_axis("prompts", rangemode="tozero"),
        )
    )
    figure.add_bar(
        x=spans,
        y=list(found.counts),
        marker={"color": BLUE},
        hovertemplate="token %{x}<br>%{y} prompts<extra></extra>",
    )
    return ChartView(
        key="difference",
        title=DIFFER,
        caption=f"{early_sentence(found)} Counted from the prompts.",
        figure=as_json(figure),
        missing=None,
        columns=("first differing token", "prompts"),
        rows=tuple((span, f"{count:,}") for span, count in zip(spans, found.counts, strict=True)),
    )


def _spans(found: FirstDifference) -> list[str]:
    return [
        f"{low:,} to {high:,}" for low, high in zip(found.edges, found.edges[1:], strict=False)
    ][: len(found.counts)]
