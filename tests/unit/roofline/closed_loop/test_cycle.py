"""The steady state in closed form, against the loop played through and against its limits."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.cycle import burst_ttft_s, steady_state
from advisor.roofline.closed_loop.run import run_closed_loop
from advisor.roofline.step.steptime import JointAttention
from tests.unit.roofline.closed_loop.steps import CONTEXT_S, FIXED_S, TOKEN_S, affine, loop


def test_random_loops_agree_with_the_played_ones() -> None:
    """TPOT and throughput within 5 %, TTFT within 5 % for nine of ten and 25 % for all."""
    rng = np.random.default_rng(11)
    errors = []
    for _ in range(30):
        concurrency = int(np.exp(rng.uniform(0, np.log(64))))
        prompt, output = (int(np.exp(rng.uniform(np.log(16), np.log(2500)))) for _ in range(2))
        chosen = loop(concurrency, prompt, output, shortest=float(rng.choice([0.2, 0.5])))
        tables = affine(pair_s=float(rng.uniform(0, 2e-10)))
        # So many waves that neither the burst nor the end counts.
        played = run_closed_loop(chosen, tables, requests=100 * concurrency)
        found = steady_state(chosen, tables, np.array([float(concurrency)]))
        burst = burst_ttft_s(chosen, tables)
        ttft = (burst + 99 * found.ttft_s[0]) / 100
        errors.append(
            (
                found.tpot_s[0] / played.tpot_s - 1,
                found.requests_per_s[0] / played.requests_per_s - 1,
                ttft / played.ttft_s - 1,
            )
        )
    sizes = np.abs(np.array(errors))
    assert sizes[:, :2].max() < 0.05
    assert np.percentile(sizes[:, 2], 90) < 0.05
    assert sizes[:, 2].max() < 0.25


def test_one_request_alone_is_exact() -> None:
    """No one else's prompts in its steps, and no queue."""
    found = steady_state(loop(1, 100, 11, shortest=1), affine(), np.array([1.0]))
    assert found.ttft_s[0] == pytest.approx(FIXED_S + 100 * TOKEN_S)
    context = 100 + 11 / 2
    assert found.tpot_s[0] == pytest.approx(FIXED_S + TOKEN_S + CONTEXT_S * context, rel=1e-3)


def test_with_tiny_prompts_the_loop_is_the_affine_engine() -> None:
    """Handbook 4.1: TPOT is T0 + (c_t + c_kv s) B where prompts cost nothing."""
    counts = np.array([1.0, 8.0, 32.0, 128.0])
    found = steady_state(loop(1, 1, 2000, shortest=1), affine(), counts)
    expected = FIXED_S + (TOKEN_S + CONTEXT_S * 1001) * counts
    assert found.tpot_s == pytest.approx(expected, rel=0.01)
    assert found.output_tokens_per_s == pytest.approx(counts / expected, rel=0.01)


def test_without_decodes_throughput_is_the_prefill_rate() -> None:
    """Answers of one token: full budgets one after another, and TTFT by Little's law."""
    found = steady_state(loop(64, 512, 1, shortest=1), affine(), np.array([64.0]))
    rate = 2048 / (FIXED_S + 2048 * TOKEN_S)
    assert found.requests_per_s[0] * 512 == pytest.approx(rate, rel=0.05)
    assert found.ttft_s[0] == pytest.approx(64 / found.requests_per_s[0], rel=0.05)


def test_all_concurrencies_come_at_once_and_little_s_law_holds() -> None:
    """N = X (TTFT + (L - 1) TPOT) for every N, slots or not."""
    counts = np.array([1.0, 2.0, 16.0, 64.0, 200.0])
    found = steady_state(loop(1, 300, 200, max_num_seqs=32), affine(), counts)
    cycle = found.ttft_s + (200 * 0.75 - 1) * found.tpot_s
    assert found.requests_per_s * cycle == pytest.approx(counts, rel=0.03)
    assert found.running.max() == 32


def test_a_burst_is_read_budget_by_budget() -> None:
    """Eight prompts of half a budget: two each step, mean of the four steps' ends."""
    chosen = loop(8, 1024, 50, shortest=1)
    found = burst_ttft_s(chosen, affine())
    played = run_closed_loop(chosen, affine(), requests=8)
    assert found == pytest.approx(played.ttft_s, rel=0.02)


def test_joint_attention_is_refused() -> None:
    """Tables whose attention of prompts and decodes does not add are outside of both models."""
    grid = np.array([0.0, 1.0])
    joint = JointAttention(
        new=grid, cached=grid, requests=grid, contexts=grid, seconds=np.zeros((2, 2, 2, 2))
    )
    tables = replace(affine(), joint=joint)
    with pytest.raises(InvalidInput, match="joint"):
        steady_state(loop(4, 100, 100), tables, np.array([4.0]))
    with pytest.raises(InvalidInput, match="joint"):
        run_closed_loop(loop(4, 100, 100), tables, requests=4)


def test_a_cache_without_room_for_one_request_is_refused() -> None:
    """Nothing could ever be served."""
    with pytest.raises(InvalidInput, match="cache_tokens"):
        loop(1, 100, 100, cache_tokens=150)
