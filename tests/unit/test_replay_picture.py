"""The picture of a replay says what was recorded and what was not."""

from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from tests.validate.replay.picture import cache_svg


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    tick_s: NDArray[np.float64]
    kv_percent: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    run: Named
    measured: Use
    centre: Use


TICKS = np.arange(1.0, 5.0)


def _compared(name: str, percent: list[float]) -> Compared:
    return Compared(
        run=Named(name=name),
        measured=Use(tick_s=TICKS, kv_percent=np.array(percent)),
        centre=Use(tick_s=TICKS, kv_percent=np.array([10.0, 50.0, 90.0, 20.0])),
    )


def test_a_run_that_recorded_nothing_has_one_curve_and_says_so() -> None:
    drawn = cache_svg([_compared("A<B", [9.0, 51.0, 88.0, 22.0]), _compared("C", [0.0] * 4)])
    root = ET.fromstring(drawn)  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == 3
    titles = [
        text.text or "" for text in root.findall(f"{space}text") if "cache" in (text.text or "")
    ]
    assert [("not recorded" in title) for title in titles] == [False, True]
    assert titles[0].startswith("A<B")
