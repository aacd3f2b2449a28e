"""Comparisons: the order of loads, their verdicts, and how often these are wrong."""

import math

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, Source
from advisor.measurement.protocol.pairs import (
    Change,
    abba,
    change_of,
    compare,
    holm,
    pairs_needed,
)


def test_arms_take_turns_at_being_first() -> None:
    """A B B A A B: an even drift takes from both alike."""
    assert "".join(arm for pair in abba(5) for arm in pair) == "ABBAABBAAB"
    with pytest.raises(InvalidInput):
        abba(0)


def test_pairs_for_a_precision() -> None:
    """T11.4: loads that differ by 10 %, within 2 %, paired and not."""
    assert pairs_needed(deviation=0.1, correlation=0.8, half_width=0.02) == pytest.approx(
        38.4, abs=0.05
    )
    assert pairs_needed(deviation=0.1, correlation=0, half_width=0.02) == pytest.approx(
        192.1, abs=0.05
    )


def drawn(
    rng: np.random.Generator, *, noise: float, slowdown: float = 0.0, pairs: int = 5
) -> list[tuple[float, float]]:
    """Throughput of both arms of each pair."""
    first, second = np.exp(noise * rng.standard_normal((2, pairs)))
    return list(zip(first.tolist(), (second * (1 - slowdown)).tolist(), strict=True))


@pytest.mark.parametrize("noise", [0.02, 0.04, 0.08])
def test_no_change_is_rarely_told_as_one(noise: float) -> None:
    """At most 5 % each way, at any noise."""
    rng = np.random.default_rng(11)
    told = [compare(drawn(rng, noise=noise)).change for _ in range(1500)]

    assert told.count(Change.HELPS) <= 75
    assert told.count(Change.HURTS) <= 75


@pytest.mark.parametrize("noise", [0.02, 0.03])
def test_a_slowdown_of_a_tenth_is_found(noise: float) -> None:
    """By five pairs, nine times in ten, and stated as detectable."""
    rng = np.random.default_rng(12)
    found = [compare(drawn(rng, noise=noise, slowdown=0.1)) for _ in range(400)]

    assert sum(item.change is Change.HURTS for item in found) >= 360
    assert all(item.pairs == item.blocks == 5 for item in found)


def test_what_is_called_detectable_is_found_nine_times_in_ten() -> None:
    """The stated size, in the median over samples; 0.82 leaves room for how that one is drawn."""
    rng = np.random.default_rng(13)
    stated = float(
        np.median([compare(drawn(rng, noise=0.03, pairs=10)).detectable for _ in range(200)])
    )
    slower = 1 - 1 / (1 + stated)
    found = [compare(drawn(rng, noise=0.03, slowdown=slower, pairs=10)).change for _ in range(400)]

    assert found.count(Change.HURTS) / 400 >= 0.82


def test_pairs_within_a_start_do_not_narrow_what_starts_spread() -> None:
    """Three starts that differ by 4 %, ten pairs each: by pairs a change appears, by starts not."""
    rng = np.random.default_rng(14)
    false = {True: 0, False: 0}
    for _ in range(300):
        shifts = np.repeat(0.04 * rng.standard_normal(3), 10)
        noise = 0.005 * rng.standard_normal(30)
        pairs = [(1.0, math.exp(value)) for value in shifts + noise]
        starts = [place // 10 for place in range(30)]
        for blocked in (True, False):
            found = compare(pairs, blocks=starts if blocked else None)
            false[blocked] += found.change in {Change.HELPS, Change.HURTS}

    assert false[True] / 300 <= 0.1
    assert false[False] / 300 > 0.2


def test_a_smaller_latency_helps() -> None:
    """The gain is above 1 whichever way better lies."""
    pairs = [(2.0, 1.0), (2.0, 1.01), (2.0, 0.99)]

    assert compare(pairs, higher_is_better=False).gain.value == pytest.approx(2.0, rel=0.01)
    assert compare(pairs, higher_is_better=False).change is Change.HELPS
    assert compare(pairs).change is Change.HURTS


def test_arms_that_are_equal_are_neutral_without_a_chance() -> None:
    """No spread at all: a value, and nothing beyond the margin."""
    found = compare([(1.0, 1.0)] * 3)

    assert (found.change, found.chance) == (Change.NEUTRAL, 1.0)
    assert found.detectable == pytest.approx(0.015)
    assert compare([(1.0, 2.0)] * 3).chance == 0.0


@pytest.mark.parametrize(
    "low,high,change",
    [
        (1.02, 1.1, Change.HELPS),
        (0.8, 0.97, Change.HURTS),
        (0.96, 1.04, Change.NEUTRAL),
        (0.9, 1.1, Change.UNKNOWN),
    ],
)
def test_the_interval_decides(low: float, high: float, change: Change) -> None:
    """Not the value."""
    gain = Estimate(value=(low + high) / 2, low=low, high=high, source=Source.MEASURED, basis="t")

    assert change_of(gain) is change


def test_many_comparisons_need_clearer_changes() -> None:
    """Holm: of twenty with one change at the edge, alone it stands, among the others it falls."""
    edge = compare([(1.0, 1.06), (1.0, 1.05), (1.0, 1.075), (1.0, 1.04), (1.0, 1.1)])
    clear = compare([(1.0, 1.5), (1.0, 1.51), (1.0, 1.49), (1.0, 1.5), (1.0, 1.505)])
    same = compare([(1.0, 1.0), (1.0, 1.01), (1.0, 0.99)])

    assert edge.change is Change.HELPS
    assert holm([edge]) == (Change.HELPS,)
    assert holm([edge, clear, *[same] * 18])[:3] == (Change.UNKNOWN, Change.HELPS, same.change)


def test_a_comparison_needs_a_spread() -> None:
    """One pair, one block, a figure of nothing, and blocks of another number."""
    for pairs, blocks in (
        ([(1.0, 1.0)], None),
        ([(1.0, 1.0)] * 2, [1, 1]),
        ([(1.0, 0.0)] * 2, None),
        ([(1.0, 1.0)] * 2, [1]),
    ):
        with pytest.raises(InvalidInput):
            compare(pairs, blocks=blocks)
