"""How often to repeat, and what repeats under several starts say."""

import math

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.protocol.repeats import Done, GoOn, OutOfBudget, decide, pooled


def asked(
    starts: list[list[float]], *, precision: float = 0.05, spent_s: float = 0.0
) -> Done | GoOn | OutOfBudget:
    """Repeats of 10 s in a budget of 100 s."""
    return decide(starts, precision=precision, spent_s=spent_s, budget_s=100, last_s=10)


def test_repeats_go_on_until_the_interval_is_narrow() -> None:
    """Two values are never enough; three that agree are, three that differ are not."""
    assert asked([]) == GoOn(found=None, more=3)
    assert isinstance(asked([[10.0, 10.0]]), GoOn)
    assert isinstance(asked([[10.0, 10.1, 9.9]]), Done)
    wide = asked([[10.0, 12.0, 9.0]])
    assert isinstance(wide, GoOn)
    assert wide.more > 10


def test_the_budget_ends_the_repeats() -> None:
    """With what was found by then; a repeat that would end too late is not begun."""
    over = asked([[10.0, 12.0, 9.0]], spent_s=91)

    assert isinstance(over, OutOfBudget)
    assert over.found is not None
    assert asked([], spent_s=95) == OutOfBudget(found=None)
    assert isinstance(asked([[10.0, 12.0, 9.0]], spent_s=89), GoOn)


def test_repeats_of_one_start_do_not_narrow_what_starts_spread() -> None:
    """A thousand equal repeats: the 2 % by which starts differ stay, and are said to be assumed."""
    found = pooled([[10.0] * 1000])

    assert math.log(found.high / found.low) > 0.08
    assert "assumed" in found.basis
    assert "assumed" not in pooled([[10.0], [10.1], [9.9]]).basis


def test_intervals_over_starts_hold_the_truth() -> None:
    """Starts that differ by 1, 3 and 8 %, four of them with three repeats each."""
    rng = np.random.default_rng(21)
    for spread in (0.01, 0.03, 0.08):
        held = 0
        for _ in range(300):
            starts = np.exp(spread * rng.standard_normal((4, 1)))
            values = starts * np.exp(0.02 * rng.standard_normal((4, 3)))
            found = pooled(values.tolist())
            held += found.low <= 1 <= found.high

        assert held / 300 >= 0.92


def test_intervals_of_one_or_two_starts_hold_the_truth() -> None:
    """Where starts differ as the handbook has it."""
    rng = np.random.default_rng(22)
    for count in (1, 2):
        held = 0
        for _ in range(300):
            starts = np.exp(0.02 * rng.standard_normal((count, 1)))
            found = pooled((starts * np.exp(0.01 * rng.standard_normal((count, 4)))).tolist())
            held += found.low <= 1 <= found.high

        assert held / 300 >= 0.92


def test_nothing_was_measured() -> None:
    """No mean of nothing, no precision of nothing."""
    with pytest.raises(InvalidInput):
        pooled([[]])
    with pytest.raises(InvalidInput):
        asked([[1.0]], precision=0.0)
    assert "no repeat within a start" in pooled([[1.0]]).basis
