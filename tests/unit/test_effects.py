"""How published comparisons are judged: bands, signs, partners."""

from dataclasses import replace

import pytest

from advisor.estimate import Estimate, Source
from tests.validate.effects.arms import Arm, Sign, between, sign
from tests.validate.effects.lab import command

ARM = Arm(
    source="a file",
    label="a load",
    technique="a format",
    goal="throughput",
    measured=0.8,
    predicted=between([1.2, 0.9, 1.4], "a test"),
)


@pytest.mark.parametrize(
    "gain, told",
    [
        (1.06, Sign.HELPS),
        (1.04, Sign.NEUTRAL),
        (1.0, Sign.NEUTRAL),
        (0.96, Sign.NEUTRAL),
        (0.94, Sign.HURTS),
    ],
)
def test_changes_within_the_band_are_neutral(gain: float, told: Sign) -> None:
    """Five per cent to either side, in ratio."""
    assert sign(gain) is told


def test_an_arm_without_a_model_counts_as_not_right() -> None:
    """Whatever was measured; it is not called a winner either."""
    unknown = replace(ARM, predicted=None)

    assert unknown.told is Sign.UNKNOWN
    assert not unknown.right
    assert not unknown.loser_called_winner


def test_a_loser_called_winner_is_counted() -> None:
    """Only one that lost and was recommended."""
    assert ARM.loser_called_winner
    assert not replace(ARM, measured=1.0).loser_called_winner
    assert not replace(ARM, predicted=between([1.0], "a test")).loser_called_winner


def test_the_ends_of_a_prediction_hold_its_centre() -> None:
    """The first gain is the centre, whatever the order of the others."""
    found = between([1.2, 1.4, 0.9], "a test")

    assert found == Estimate(value=1.2, low=0.9, high=1.4, source=Source.ROOFLINE, basis="a test")


def test_a_row_serves_what_its_command_says() -> None:
    """And the value that its run names where that differs."""
    row = {
        "serving_script": "export A_SETTING=0\nvllm serve zai/Model-FP8 -tp 8 --flag --size 512",
        "run_comment": "--size 1024",
    }
    found = command(row)

    assert found.model == "Model-FP8"
    assert dict(found.options) == {"-tp": "8", "--flag": "", "--size": "1024", "A_SETTING": "0"}
    assert "--flag" not in dict(found.without("--flag").options)
