"""Requests that do not fit the engine's context."""

import csv
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.fitting import split_fitting


def test_what_does_not_fit_is_told_by_its_share(shared: Path) -> None:
    """Case T-18: half of the requests with 74.7 % of the prompt tokens; 9,050 would serve all."""
    with (shared / "cases" / "t18_too_long.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    found = split_fitting(
        [int(row["input_tokens"]) for row in rows],
        [int(row["output_tokens"]) for row in rows],
        max_model_len=4096,
    )

    assert (found.fitting, found.not_fitting) == ((0, 1), (2, 3))
    assert found.requests_share == 0.5
    assert found.prompt_tokens_share == pytest.approx(13_000 / 17_412)
    assert found.needed_max_model_len == 9050
    assert found.told is not None
    assert "50.0% of the requests with 74.7% of the prompt tokens" in found.told


def test_a_request_of_unknown_length_is_sent() -> None:
    """The engine has the last word; no share is made up for it."""
    found = split_fitting([None, 10, 20], [1, 5, 90], max_model_len=100)

    assert (found.fitting, found.not_fitting, found.unknown) == ((0, 1), (2,), 1)
    assert found.requests_share == 0.5


def test_where_all_fit_nothing_is_said() -> None:
    """An output of no token still needs the room of one (case T-19)."""
    found = split_fitting([99, 100], [0, 0], max_model_len=100)
    roomy = split_fitting([99, 100], [0, 0], max_model_len=101)

    assert found.not_fitting == (1,)
    assert (roomy.not_fitting, roomy.told, roomy.requests_share) == ((), None, 0.0)


def test_every_prompt_needs_its_output() -> None:
    """Two columns of one length."""
    with pytest.raises(InvalidInput, match="wanted_tokens"):
        split_fitting([1], [], max_model_len=10)
