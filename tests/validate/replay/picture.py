"""The use of the KV cache over time, replayed beside recorded: one SVG, a panel for each run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

RECORDED = "#7F7F7F"
REPLAYED = "#2B85CF"
WIDE, HIGH, LEFT, TOP, GAP = 720, 150, 60, 40, 60
TICKS = 5


class Use(Protocol):
    """The use of a cache over time, in percent of its blocks."""

    @property
    def tick_s(self) -> Floats: ...

    @property
    def kv_percent(self) -> Floats: ...


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Compared(Protocol):
    """A run with both curves; a recorded one of zeros was not recorded."""

    @property
    def run(self) -> Named: ...

    @property
    def measured(self) -> Use: ...

    @property
    def centre(self) -> Use: ...


def cache_svg(found: Sequence[Compared]) -> str:
    """Seconds across, percent of the pool up; recorded grey, replayed blue."""
    height = TOP + len(found) * (HIGH + GAP)
    body = "\n".join(line for place, item in enumerate(found) for line in _panel(place, item))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 40} {height}"'
        ' font-family="sans-serif" font-size="11">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def draw_cache(found: Sequence[Compared], path: Path) -> None:
    """Writes the picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(cache_svg(found), encoding="utf-8")


def _panel(place: int, item: Compared) -> Iterator[str]:
    top = TOP + place * (HIGH + GAP)
    recorded = bool(item.measured.kv_percent.any())
    longest = float(item.measured.tick_s.max())
    highest = 100.0 if recorded else 10 * np.ceil(item.centre.kv_percent.max() / 10 + 0.1)
    said = " (recorded grey, simulated blue)" if recorded else " (simulated; not recorded)"
    yield _text(LEFT, top - 8, f"{item.run.name}: KV cache in use, %{said}")
    yield f'<rect x="{LEFT}" y="{top}" width="{WIDE}" height="{HIGH}" fill="none" stroke="#BBB"/>'
    for tick in range(TICKS + 1):
        share = tick / TICKS
        yield _text(LEFT - 8, top + HIGH * (1 - share) + 4, f"{share * highest:.0f}", end=True)
        yield _text(LEFT + WIDE * share, top + HIGH + 14, f"{share * longest:.0f} s")
    for colour, use in ((RECORDED, item.measured), (REPLAYED, item.centre)):
        if use.kv_percent.any():
            across = LEFT + WIDE * use.tick_s / longest
            up = top + HIGH * (1 - np.minimum(use.kv_percent / highest, 1.0))
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
            yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: float, y: float, text: str, *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'
