"""Schedules of draft lengths, as vLLM takes them."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.roofline.speculation import (
    DraftSchedule,
    MeasuredDrafter,
    Speculating,
    checked_ranges,
    draft_schedule,
    geometric,
)
from advisor.roofline.step.steptime import AffineStep
from tests.unit.roofline.speculation.test_gain import share

DENSE = Speculating(
    steps=(AffineStep(fixed_s=7e-3, token_s=2e-5),),
    acceptance=geometric(share(0.75), 8),
    drafter=MeasuredDrafter(name="ngram_gpu"),
)


def test_drafts_get_shorter_with_the_batch_and_end_at_zero() -> None:
    """Long drafts alone, none where every one loses, all batches covered."""
    dear = replace(DENSE, drafter=MeasuredDrafter(name="eagle", pass_s=3e-4, request_s=1e-5))
    found = draft_schedule(dear, 100, max_num_seqs=1024)
    lengths = [tokens for _, _, tokens in found.ranges]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 1
    assert lengths[-1] == 0
    assert (found.ranges[0][0], found.ranges[-1][1]) == (1, 1024)
    zero_from = found.ranges[-1][0]
    losing = dear.break_even_batch(100, 1)
    assert losing is not None
    assert zero_from == pytest.approx(losing, rel=0.05)
    settings = found.settings()
    assert settings["num_speculative_tokens"] == lengths[0]
    assert settings["num_speculative_tokens_per_batch_size"] == [list(r) for r in found.ranges]


def test_lengths_are_near_the_best_everywhere() -> None:
    """Within the tolerance, also between the points of the grid."""
    found = draft_schedule(DENSE, 100, max_num_seqs=300, tolerance=0.02)
    for batch in range(1, 301, 7):
        best = DENSE.best_draft_tokens(batch, 100)
        most = DENSE.gain_at(batch, 100, best)
        assert DENSE.gain_at(batch, 100, found.draft_tokens(batch)) >= most * 0.979


def test_one_length_needs_no_schedule() -> None:
    """Where the batch does not matter the plain number is enough; where nothing pays, nothing."""
    constant = replace(DENSE, steps=(AffineStep(fixed_s=1.0),))
    assert draft_schedule(constant, 10, max_num_seqs=64).settings() == {"num_speculative_tokens": 8}
    dear = replace(DENSE, drafter=MeasuredDrafter(name="eagle", round_s=1.0))
    nothing = draft_schedule(dear, 10, max_num_seqs=64)
    assert (nothing.ranges, nothing.settings()) == (((1, 64, 0),), {})
    with pytest.raises(InvalidInput, match="tolerance"):
        draft_schedule(DENSE, 10, max_num_seqs=8, tolerance=1.0)


def test_look_up_carries_the_length_over_gaps_and_the_end() -> None:
    """As vLLM expands the ranges."""
    schedule = DraftSchedule(ranges=((32, 128, 2), (1, 16, 3)))
    assert [schedule.draft_tokens(batch) for batch in (1, 16, 17, 31, 32, 500)] == [
        3,
        3,
        3,
        3,
        2,
        2,
    ]
    with pytest.raises(InvalidInput, match="below 1"):
        schedule.draft_tokens(0)


@pytest.mark.parametrize(
    "ranges,reason",
    [
        ((), "empty"),
        (((1, 2),), "not a first batch"),
        (((0, 2, 3),), "no range"),
        (((1, 4, -1),), "below 0"),
        (((2, 4, 1),), "start at batch 1"),
        (((1, 4, 1), (4, 8, 2)), "overlap"),
    ],
)
def test_what_vllm_refuses_is_refused(ranges: tuple[tuple[int, ...], ...], reason: str) -> None:
    """Before a start."""
    with pytest.raises(InvalidInput, match=reason):
        checked_ranges(ranges)
