"""Send times of an open loop."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.measurement.arrivals import arrival_offsets, recorded_loop
from advisor.measurement.records import OpenLoop

rates = st.floats(0.01, 1000.0)
random_kinds = st.sampled_from(
    [("poisson", None), ("gamma", 0.25), ("gamma", 2.5), ("constant", None)]
)


def test_a_replay_at_twice_the_pace_halves_the_gaps(shared: Path) -> None:
    """Case T-07: 0, 1 and 3 s, and the first request at once."""
    rows = (shared / "cases" / "t07_epoch_speed.jsonl").read_text().splitlines()
    times = [float(json.loads(row)["timestamp"]) for row in rows]
    loop = recorded_loop(times, speed=2.0)

    assert arrival_offsets(loop, 3, seed=0, recorded_s=times) == (0.0, 1.0, 3.0)
    assert loop.rate_per_s == pytest.approx(2 / 3)


@given(random_kinds, rates, st.integers(1, 50), st.integers(0, 99))
def test_equal_seeds_give_equal_times(
    kind: tuple[str, float | None], rate: float, count: int, seed: int
) -> None:
    """The first goes at once, and none before the one before it."""
    loop = OpenLoop(arrivals=kind[0], rate_per_s=rate, cv=kind[1])
    offsets = arrival_offsets(loop, count, seed=seed)

    assert offsets == arrival_offsets(loop, count, seed=seed)
    assert offsets[0] == 0.0
    assert list(offsets) == sorted(offsets)
    assert len(offsets) == count


@given(random_kinds, rates, st.integers(2, 50), st.floats(0.1, 10.0))
def test_another_rate_only_stretches_the_same_gaps(
    kind: tuple[str, float | None], rate: float, count: int, factor: float
) -> None:
    """Loads at two rates are compared on the same luck."""
    slow = OpenLoop(arrivals=kind[0], rate_per_s=rate, cv=kind[1])
    fast = OpenLoop(arrivals=kind[0], rate_per_s=rate * factor, cv=kind[1])
    stretched = np.array(arrival_offsets(fast, count, seed=3)) * factor

    assert stretched == pytest.approx(arrival_offsets(slow, count, seed=3))


@pytest.mark.parametrize("kind, cv", [("poisson", 1.0), ("gamma", 0.5), ("gamma", 3.0)])
def test_gaps_have_the_mean_and_the_variation_that_was_asked(kind: str, cv: float) -> None:
    """40,000 gaps at 20 requests per second."""
    loop = OpenLoop(arrivals=kind, rate_per_s=20.0, cv=None if kind == "poisson" else cv)
    gaps = np.diff(arrival_offsets(loop, 40_001, seed=5))

    assert gaps.mean() == pytest.approx(0.05, rel=4 * cv / 200)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


@pytest.mark.parametrize(
    "values, recorded",
    [
        ({"arrivals": "poisson", "rate_per_s": 0.0}, None),
        ({"arrivals": "gamma", "rate_per_s": 1.0}, None),
        ({"arrivals": "weekly", "rate_per_s": 1.0}, None),
        ({"arrivals": "recorded", "rate_per_s": 1.0}, None),
        ({"arrivals": "recorded", "rate_per_s": 1.0}, [0.0, None]),
        ({"arrivals": "recorded", "rate_per_s": 1.0}, [1.0, 0.0]),
        ({"arrivals": "recorded", "rate_per_s": 1.0, "speed": 0.0}, [0.0, 1.0]),
    ],
)
def test_arrivals_that_cannot_be_are_refused(
    values: dict[str, object], recorded: list[float | None] | None
) -> None:
    """An unknown kind, no rate, no times."""
    with pytest.raises(InvalidInput):
        arrival_offsets(OpenLoop(**values), 2, seed=0, recorded_s=recorded)  # type: ignore[arg-type]


def test_times_that_are_all_one_have_no_rate() -> None:
    """Nothing can be scaled."""
    with pytest.raises(InvalidInput, match="at once"):
        recorded_loop([5.0, 5.0])
