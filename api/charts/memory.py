"""Where the device's memory goes on the baseline."""

from dataclasses import dataclass

import plotly.graph_objects as go

from advisor.recommender.recommendation import MemoryPicture, Recommendation
from advisor.units import GIB, bytes_text
from api.charts.figure import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    PURPLE,
    as_json,
    layout,
    linear_axis,
    row_axis,
    rows_height,
    without,
)
from api.schemas import ChartView

TITLE = "Where the memory goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One stretch of the device's memory, from `begin_bytes` downwards."""

    name: str
    begin_bytes: float
    size_bytes: float
    colour: str
    source: str


def memory_chart(body: Recommendation) -> ChartView:
    """A waterfall from the whole device down to what is left."""
    memory = body.memory
    if memory.device_bytes is None:
        return without(
            "memory", TITLE, "No memory picture: the engine did not report the device's memory."
        )
    if memory.kv_cache_bytes is None:
        return without(
            "memory", TITLE, "No memory picture: the engine did not report the KV cache's size."
        )
    said = body.engine.weight_bytes is not None
    weights = "reported by the engine" if said else "all parameters in the served dtype"
    parts = _parts(memory, memory.device_bytes, memory.kv_cache_bytes, weights)
    return ChartView(
        key="memory",
        title=TITLE,
        caption="The baseline, in GiB, from the whole device on top down to what is left. Exact"
        " figures, no interval; the peak is the highest sample of all load points."
        f"{_contradiction(memory, parts)}",
        figure=as_json(_figure(parts)),
        missing=None,
        columns=("part", "size", "share of the device", "from"),
        rows=tuple(
            (
                part.name,
                bytes_text(part.size_bytes),
                f"{part.size_bytes / memory.device_bytes:.1%}",
                part.source,
            )
            for part in parts
        ),
    )


def _parts(memory: MemoryPicture, device: int, kv_cache: int, weights: str) -> list[Part]:
    said = "reported by the engine"
    sizes = [("weights", memory.weight_bytes, PURPLE, weights)]
    if memory.kv_peak_usage is None:
        sizes.append(("KV cache (peak use not reported)", kv_cache, BLUE, said))
    else:
        used = round(kv_cache * memory.kv_peak_usage)
        at_peak = "KV cache times the highest usage seen"
        sizes += [
            ("KV cache, in use at the peak", used, BLUE, at_peak),
            ("KV cache, free at the peak", kv_cache - used, GREEN, at_peak),
        ]
    left = device - sum(size for _, size, _, _ in sizes)
    if memory.headroom_bytes is None or memory.headroom_bytes > left:
        sizes.append(("not accounted for", left, GREY, "what remains"))
    else:
        other = left - memory.headroom_bytes
        sizes += [
            ("activations, runtime and the rest", other, BROWN, "what remains"),
            ("headroom", memory.headroom_bytes, GREY, said),
        ]
    parts = [Part(name="device", begin_bytes=device, size_bytes=device, colour=GREY, source=said)]
    begin = float(device)
    for name, size, colour, source in sizes:
        if size > 0:
            parts.append(
                Part(name=name, begin_bytes=begin, size_bytes=size, colour=colour, source=source)
            )
            begin -= size
    return parts


def _contradiction(memory: MemoryPicture, parts: list[Part]) -> str:
    """What the engine said of its headroom where that does not fit the rest."""
    if memory.headroom_bytes is None:
        return " The engine did not report its headroom."
    if parts[-1].name == "headroom":
        return ""
    said = bytes_text(memory.headroom_bytes)
    return f" The engine reported a headroom of {said}, which is more than the rest leaves."


def _figure(parts: list[Part]) -> go.Figure:
    places = list(range(len(parts)))
    figure = go.Figure(
        layout=layout(
            height=rows_height(len(parts)) - 20,
            legend=False,
            bargap=0.4,
            xaxis=linear_axis("GiB", range=[0, parts[0].size_bytes / GIB * 1.16]),
            yaxis=row_axis([part.name for part in parts]),
        )
    )
    figure.add_bar(
        x=[part.size_bytes / GIB for part in parts],
        base=[(part.begin_bytes - part.size_bytes) / GIB for part in parts],
        y=places,
        orientation="h",
        marker={"color": [part.colour for part in parts]},
        hovertemplate="%{text}<extra></extra>",
        text=[f"{part.name}<br>{bytes_text(part.size_bytes)}" for part in parts],
        textposition="none",
    )
    for place, part in zip(places, parts, strict=True):
        figure.add_annotation(
            x=part.begin_bytes / GIB,
            y=place,
            text=bytes_text(part.size_bytes),
            showarrow=False,
            xanchor="left",
            xshift=6,
        )
    return figure
