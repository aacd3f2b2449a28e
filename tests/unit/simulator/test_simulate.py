"""What the simulator is told, and what it says, on loads that can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.roofline.step.steptime import AffineStep, TableLimits
from advisor.simulator import (
    CacheGroup,
    Load,
    Outcome,
    SchedulerSettings,
    Speculation,
    simulate,
    simulate_many,
)

LIMITS = TableLimits(max_tokens=512, max_requests=64, max_context=1024)
SECOND = AffineStep(fixed_s=1.0).tables(LIMITS)
ENGINE = SchedulerSettings(
    num_blocks=200, max_num_seqs=8, max_num_batched_tokens=128, max_model_len=512
)


def load(arrivals: list[float], prompts: list[int], outputs: list[int], **more: object) -> Load:
    return Load(
        arrival_s=np.array(arrivals, np.float64),
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array(outputs, np.int64),
        **more,  # type: ignore[arg-type]
    )


def ends(outcome: Outcome) -> list[float]:
    found: list[float] = outcome.last_token_s.tolist()
    return found


def test_an_arrival_during_a_step_is_seen_at_its_end() -> None:
    """Sent at 0.2 while a step runs until 1: scheduled at 1, first token at 2."""
    outcome = simulate(load([0.0, 0.2], [10, 10], [3, 1]), ENGINE, SECOND)
    assert outcome.scheduled_s.tolist() == [0.0, 1.0]
    assert outcome.first_token_s.tolist() == [1.0, 2.0]
    assert ends(outcome) == [3.0, 2.0]


def test_an_idle_engine_jumps_to_the_next_arrival() -> None:
    outcome = simulate(load([5.0, 100.5], [10, 10], [2, 2]), ENGINE, SECOND)
    assert ends(outcome) == [7.0, 102.5]
    assert (outcome.steps, outcome.busy_s) == (4, 4.0)


def test_async_scheduling_decides_one_step_early() -> None:
    """Sent while step 0 runs: steps 1 is decided already, so it is in step 2."""
    waiting = replace(ENGINE, async_scheduling=True)
    outcome = simulate(load([0.0, 0.2], [10, 10], [6, 1]), waiting, SECOND)
    assert outcome.scheduled_s.tolist() == [0.0, 1.0]
    assert ends(outcome) == [6.0, 3.0]


def test_an_async_request_keeps_its_seat_for_one_decision_longer() -> None:
    """Two seats: the third request gets the seat of the second one step later than without."""
    served = load([0.0, 0.0, 0.0], [10] * 3, [9, 3, 1])
    two = replace(ENGINE, max_num_seqs=2)
    assert ends(simulate(served, two, SECOND)) == [9.0, 3.0, 4.0]
    ahead = replace(two, async_scheduling=True)
    assert ends(simulate(served, ahead, SECOND)) == [9.0, 3.0, 5.0]


def test_a_static_batch_is_as_long_as_its_longest_request() -> None:
    """Batches of two: the third request waits for the first batch, the last is not full."""
    static = replace(ENGINE, static_batch=2)
    outcome = simulate(load([0.0] * 3, [10] * 3, [1, 5, 2]), static, SECOND)
    assert ends(outcome) == [1.0, 5.0, 7.0]
    assert ends(simulate(load([0.0] * 3, [10] * 3, [1, 5, 2]), ENGINE, SECOND)) == [1.0, 5.0, 2.0]


def test_a_static_batch_waits_for_more_as_long_as_it_is_told() -> None:
    pair = load([0.0, 10.0], [10, 10], [1, 1])
    assert ends(simulate(pair, replace(ENGINE, static_batch=2), SECOND)) == [11.0, 11.0]
    patient = replace(ENGINE, static_batch=2, static_wait_s=4.0)
    assert ends(simulate(pair, patient, SECOND)) == [5.0, 11.0]


def test_a_closed_loop_keeps_so_many_in_flight() -> None:
    outcome = simulate(load([3.0] * 4, [10] * 4, [2] * 4, concurrency=2), ENGINE, SECOND)
    assert outcome.sent_s.tolist() == [3.0, 3.0, 5.0, 5.0]
    assert ends(outcome) == [5.0, 5.0, 7.0, 7.0]


def test_who_never_fits_is_refused_and_blocks_nobody() -> None:
    """Longer than the model, and longer than the pool."""
    small = replace(ENGINE, num_blocks=5)
    outcome = simulate(load([0.0] * 3, [600, 100, 20], [1, 5, 2]), small, SECOND)
    assert outcome.refused.tolist() == [True, True, False]
    assert ends(outcome)[2] == 2.0


def test_an_answer_ends_with_the_model() -> None:
    """Two tokens are left in the model's length."""
    outcome = simulate(
        load([0.0], [510], [50]), replace(ENGINE, max_num_batched_tokens=512), SECOND
    )
    assert ends(outcome) == [2.0]


def test_a_recorded_chain_of_drafts_is_followed() -> None:
    """Prefill, then 4, 1 and 3 tokens: 8 more than the first in three steps, the last cut."""
    drafts = Speculation(num_speculative_tokens=3, survival=(0.5, 0.4, 0.3))
    chain = {"accepted": np.array([4, 1, 3]), "accepted_starts": np.array([0, 3])}
    outcome = simulate(load([0.0], [10], [8], **chain), replace(ENGINE, speculation=drafts), SECOND)
    assert ends(outcome) == [4.0]
    assert outcome.drafted_tokens == 9
    assert outcome.accepted_tokens == 5


def test_drawn_drafts_are_accepted_as_often_as_told_whatever_the_engine() -> None:
    """The same luck under two budgets; the mean is that of the survival, within 3 sd."""
    drafts = Speculation(num_speculative_tokens=2, survival=(0.7, 0.3), coverage=0.5, lookahead=0)
    many = load([0.0] * 40, [10] * 40, [200] * 40)
    found = [
        simulate(many, replace(ENGINE, num_blocks=1000, max_num_batched_tokens=budget,
                               max_num_seqs=40, speculation=drafts), SECOND, seed=3)
        for budget in (512, 4096)
    ]  # fmt: skip
    assert found[0].accepted_tokens == found[1].accepted_tokens
    verified = found[0].drafted_tokens / 2
    spread = 3 * np.sqrt(0.6 / verified)
    assert abs(found[0].accepted_tokens / verified - 1.0) < spread
    assert 0.4 < verified / (40 * 199 / 1.5) < 0.6


def test_configurations_come_back_in_their_order() -> None:
    served = load([0.0] * 6, [20] * 6, [5] * 6)
    cases = [(replace(ENGINE, max_num_seqs=seats), SECOND) for seats in (1, 2, 3, 6)]
    together = simulate_many(served, cases)
    for case, outcome in zip(cases, together, strict=True):
        assert np.array_equal(outcome.last_token_s, simulate(served, *case).last_token_s)
    assert [outcome.duration_s for outcome in together] == [30.0, 15.0, 10.0, 5.0]


def test_states_with_prefix_caching_are_refused() -> None:
    hybrid = replace(ENGINE, groups=(CacheGroup(), CacheGroup(kind="mamba")))
    with pytest.raises(InvalidInput, match="recurrent"):
        simulate(load([0.0], [10], [1]), hybrid, SECOND)


def test_whole_prompts_need_a_budget_for_the_longest() -> None:
    with pytest.raises(InvalidInput, match="chunked prefill"):
        replace(ENGINE, enable_chunked_prefill=False)


def test_nobody_is_an_empty_outcome() -> None:
    outcome = simulate(load([], [], []), ENGINE, SECOND)
    assert (outcome.steps, outcome.duration_s) == (0, 0.0)
