"""A closed loop played through, against what can be counted by hand."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.run import run_closed_loop
from tests.unit.roofline.closed_loop.steps import CONTEXT_S, FIXED_S, TOKEN_S, affine, loop


def test_one_request_at_a_time_takes_its_prompt_and_its_steps() -> None:
    """Alone: one step for the prompt, then L - 1 steps whose contexts grow by one token."""
    times = run_closed_loop(loop(1, 100, 11, shortest=1), affine(), requests=5)
    mean_context = 100 + (1 + 10) / 2
    assert times.ttft_s == pytest.approx(FIXED_S + 100 * TOKEN_S)
    assert times.tpot_s == pytest.approx(FIXED_S + TOKEN_S + CONTEXT_S * mean_context)
    assert times.requests_per_s == pytest.approx(1 / (times.ttft_s + 10 * times.tpot_s))


def test_a_prompt_longer_than_the_budget_is_read_in_chunks() -> None:
    """Alone with a budget of 64, 150 tokens take three steps."""
    times = run_closed_loop(
        loop(1, 150, 2, shortest=1, max_num_batched_tokens=64), affine(64), requests=3
    )
    assert times.ttft_s == pytest.approx(3 * FIXED_S + 150 * TOKEN_S)


def test_answers_of_one_token_have_no_tpot() -> None:
    """Decode-free: the loop only reads prompts, and every request is a burst of equals."""
    times = run_closed_loop(loop(4, 100, 1, shortest=1), affine(), requests=40)
    assert times.tpot_s == 0.0
    assert times.ttft_s == pytest.approx(FIXED_S + 400 * TOKEN_S)


def test_delays_add_to_ttft_and_to_nothing_else() -> None:
    """Seconds before the queue and after the token are the client's, once each."""
    bare = run_closed_loop(loop(1, 100, 20), affine(), requests=8)
    late = run_closed_loop(loop(1, 100, 20, delay_s=0.2, answer_s=0.1), affine(), requests=8)
    assert late.ttft_s == pytest.approx(bare.ttft_s + 0.3)
    assert late.tpot_s == pytest.approx(bare.tpot_s)


def test_steps_that_pass_before_an_arrival_is_scheduled_lengthen_ttft() -> None:
    """Two decode steps of the others pass before a new prompt is read."""
    bare = run_closed_loop(loop(8, 64, 400), affine(), requests=400)
    late = run_closed_loop(loop(8, 64, 400, lag_steps=2), affine(), requests=400)
    assert late.ttft_s - bare.ttft_s == pytest.approx(2 * bare.tpot_s, rel=0.15)


def test_a_small_cache_makes_requests_wait_and_preempts() -> None:
    """A third of the room: TTFT holds the wait, steps are shorter, work is done again."""
    free = run_closed_loop(loop(24, 200, 200), affine(), requests=240)
    cramped = run_closed_loop(loop(24, 200, 200, cache_tokens=2200), affine(), requests=240)
    assert cramped.preemptions > 0
    assert cramped.ttft_s > 5 * free.ttft_s
    assert cramped.running < 0.6 * free.running
    assert cramped.output_tokens_per_s < free.output_tokens_per_s


def test_the_scheduler_cap_bounds_what_runs() -> None:
    """With two slots for eight requests two run and six wait."""
    times = run_closed_loop(loop(8, 50, 100, max_num_seqs=2), affine(), requests=80)
    assert times.running == pytest.approx(2, rel=0.1)
    assert times.ttft_s > 2 * 75 * times.tpot_s


def test_little_s_law_holds_without_the_ends() -> None:
    """What was sent is running or waiting: X (TTFT + L TPOT) is the concurrency in a long test."""
    chosen = loop(16, 300, 300)
    times = run_closed_loop(chosen, affine(), requests=3000)
    inside = times.requests_per_s * (times.ttft_s + (300 * 0.75 - 1) * times.tpot_s)
    assert inside == pytest.approx(16, rel=0.02)


def test_the_same_seed_gives_the_same_times() -> None:
    """Lengths come from the seed; another order of them changes the mean little."""
    first, again, other = (
        run_closed_loop(loop(8, 200, 80), affine(), requests=160, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert other.tpot_s == pytest.approx(first.tpot_s, rel=0.05)


def test_ttft_and_tpot_rise_with_concurrency() -> None:
    """More in flight never shortens a step of an affine engine."""
    times = [
        run_closed_loop(loop(count, 400, 200), affine(), requests=20 * count)
        for count in (1, 4, 16, 64)
    ]
    assert np.all(np.diff([one.tpot_s for one in times]) > 0)
    assert np.all(np.diff([one.ttft_s for one in times]) > 0)


def test_a_budget_below_the_running_requests_is_refused() -> None:
    """Decodes that do not fit into a step are outside of what the loop plays."""
    with pytest.raises(InvalidInput, match="max_num_batched_tokens"):
        run_closed_loop(loop(64, 10, 10, max_num_batched_tokens=32), affine(64), requests=10)
