"""What pairs of loads say together: which count, what may be told, for whom more is better."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.estimate import Source
from advisor.measurement.comparison import (
    THROUGHPUT,
    Compared,
    PairedLoad,
    compared_levels,
    worst_change,
)
from advisor.measurement.latency import quantiles
from advisor.measurement.protocol.pairs import Arm, Change
from advisor.measurement.records import LoadPoint, OpenLoop
from tests.fakes.values import load_point

OUTSIDE = Source.MEASURED_OUTSIDE


def load(arm: Arm, pair: int, *, speed: float, level: float = 8.0, **changes: Any) -> PairedLoad:
    """A load of that many tokens/s, whose times are the inverse of it."""
    times = quantiles([1 / speed] * 4)
    point = replace(
        load_point(int(level), pair, speed), ttft_s=times, tpot_s=times, e2e_s=times, flaws=()
    )
    return PairedLoad(arm=arm, pair=pair, level=level, point=replace(point, **changes))


def pairs(
    ratio: float, *, count: int = 6, noise: float = 0.01, level: float = 8.0, seed: int = 1
) -> list[PairedLoad]:
    """Pairs in which B is `ratio` times as fast as A."""
    rng = np.random.default_rng(seed)
    found = []
    for pair in range(1, count + 1):
        first, second = np.exp(noise * rng.standard_normal(2))
        found.append(load(Arm.A, pair, speed=100 * first, level=level))
        found.append(load(Arm.B, pair, speed=100 * ratio * second, level=level))
    return found


def compared(loads: Sequence[PairedLoad], *, caching_differs: bool = False) -> tuple[Compared, ...]:
    return compared_levels(loads, source=OUTSIDE, caching_differs=caching_differs)


@pytest.mark.parametrize(
    "ratio, change", [(1.3, Change.HELPS), (0.8, Change.HURTS), (1.0, Change.NEUTRAL)]
)
def test_more_tokens_and_less_time_are_both_better(ratio: float, change: Change) -> None:
    """The planted ratio comes out in every figure, with the source of who measured it."""
    (found,) = compared(pairs(ratio))

    assert (found.made, found.pairs) == (6, 6)
    assert set(found.figures) == {THROUGHPUT, "ttft_s p50", "tpot_s p50", "e2e_s p50"}
    for item in found.figures.values():
        assert item.gain.value == pytest.approx(ratio, rel=0.02)
        assert item.gain.low <= ratio * 1.01
        assert item.gain.source is OUTSIDE
        assert item.change is change
        assert item.detectable > 0.015


def test_half_a_pair_and_an_unusable_load_do_not_count() -> None:
    """What was said of the load is kept, and the other pairs decide."""
    loads = pairs(1.3, count=4)
    loads[1] = replace(
        loads[1], point=replace(loads[1].point, usable=False, flaws=("disturbed by neighbours",))
    )
    (found,) = compared([*loads, load(Arm.A, 5, speed=100)])

    assert (found.made, found.pairs) == (4, 3)
    assert found.flaws == ("disturbed by neighbours",)
    assert found.figures[THROUGHPUT].pairs == 3


def test_a_remark_does_not_throw_a_pair_away() -> None:
    """A usable load may have something said of it."""
    loads = pairs(1.3, count=3)
    loads[0] = replace(loads[0], point=replace(loads[0].point, flaws=("fewer requests",)))
    (found,) = compared(loads)

    assert found.pairs == 3
    assert found.flaws == ("fewer requests",)


def test_other_requests_and_a_warm_cache_are_no_pair() -> None:
    """Case S-10: a second run whose prompts were cached shows the cache, not the change."""
    other = pairs(1.3, count=3)
    other[1] = replace(other[1], point=replace(other[1].point, subset_digest="another"))

    def cached(point: LoadPoint, hits: int) -> LoadPoint:
        counters = replace(
            point.counters, prefix_queries=1000, prefix_hits=hits, preemptions=0, known=True
        )
        return replace(point, counters=counters)

    warm = [
        replace(item, point=cached(item.point, 900 if item.arm is Arm.B else 0))
        for item in pairs(1.3, count=3)
    ]
    (differing,), (warmed,), (by_right,) = (
        compared(other),
        compared(warm),
        compared(warm, caching_differs=True),
    )

    assert differing.pairs == 2
    assert "different requests" in differing.flaws[0]
    assert (warmed.pairs, warmed.figures) == (0, {})
    assert "warm prefix cache" in warmed.flaws[0]
    assert by_right.pairs == 3


def test_an_open_loop_has_the_rate_that_it_was_asked_for() -> None:
    """Its throughput is the client's doing and is not compared."""
    loop = OpenLoop(arrivals="poisson", rate_per_s=2.0, cv=None, speed=None)
    loads = [
        replace(item, point=replace(item.point, open_loop=loop)) for item in pairs(1.3, count=3)
    ]
    (found,) = compared(loads)

    assert THROUGHPUT not in found.figures
    assert found.figures["e2e_s p50"].pairs == 3


def test_many_figures_looked_at_together_are_told_more_carefully() -> None:
    """One figure at the border is told alone, among thirty levels without a change it is not."""
    border = pairs(0.95, count=4, noise=0.008, seed=5)
    (alone,) = compared(border)
    rest = [
        item
        for level in range(10, 40)
        for item in pairs(1.0, count=4, noise=0.03, level=float(level), seed=level)
    ]
    among = next(item for item in compared([*border, *rest]) if item.level == 8.0)

    assert alone.figures[THROUGHPUT].change is Change.HURTS
    assert among.figures[THROUGHPUT].change is Change.UNKNOWN
    assert among.figures[THROUGHPUT].gain == alone.figures[THROUGHPUT].gain


def test_a_gate_goes_by_what_hurts() -> None:
    """One level that hurts decides, whatever else helps; nothing compared decides nothing."""
    mixed = compared([*pairs(1.3), *pairs(0.7, level=16.0)])

    assert worst_change(mixed) is Change.HURTS
    assert worst_change(mixed[:1]) is Change.HELPS
    assert worst_change(compared(pairs(1.3, count=1))) is Change.UNKNOWN
