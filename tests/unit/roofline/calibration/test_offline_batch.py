"""A batch served offline as stretches: prompts first, then decodes, in waves where memory ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.roofline.calibration.offline_batch import BatchLimits, offline_batch

AMPLE = BatchLimits(prefill_tokens=4096, cache_tokens=1e9)


def test_an_ample_cache_serves_all_at_once() -> None:
    """Four prompts of 1,024 in one step, then 99 steps of four, contexts from 1,025 up."""
    prompts, decodes = offline_batch(4, 1024, 100, AMPLE)

    assert [chunk.new_tokens for chunk in prompts.prefills] == [1024] * 4
    assert (decodes.decodes, decodes.steps, decodes.context_tokens) == (4, 99, 1025)
    assert decodes.mean_context == 1074


def test_prompts_take_as_many_steps_as_their_budget_asks() -> None:
    """Five prompts of 2,000 at 4,096 tokens a step: two, two, one."""
    stretches = offline_batch(5, 2000, 2, AMPLE)

    assert [len(stretch.prefills) for stretch in stretches] == [2, 2, 1, 0]


def test_a_prompt_above_the_budget_runs_alone() -> None:
    """As in an engine whose budget is its longest request."""
    stretches = offline_batch(2, 5000, 1, AMPLE)

    assert [len(stretch.prefills) for stretch in stretches] == [1, 1]


def test_a_cache_for_half_the_batch_serves_two_waves() -> None:
    """Two of four requests fit: twice the decode steps, each of two."""
    limits = BatchLimits(prefill_tokens=4096, cache_tokens=2 * 160, block_tokens=16)
    stretches = offline_batch(4, 128, 32, limits)

    assert sum(s.steps for s in stretches if s.decodes) == 62
    assert {s.decodes for s in stretches if s.decodes} == {2}


def test_a_cache_that_ends_while_decoding_puts_the_youngest_back() -> None:
    """Prompts fit, their outputs do not: one is computed again, prompt and output so far."""
    limits = BatchLimits(prefill_tokens=4096, cache_tokens=20 * 16, block_tokens=16)
    stretches = offline_batch(4, 64, 64, limits)
    prompts = [[chunk.new_tokens for chunk in s.prefills] for s in stretches if s.prefills]

    assert prompts[0] == [64] * 4
    assert any(len(again) and again[0] > 64 for again in prompts[1:])


@given(
    requests=st.integers(1, 20),
    prompt=st.integers(1, 80),
    output=st.integers(1, 60),
    blocks=st.integers(0, 60),
)
def test_every_token_is_computed_once_beside_recomputed_ones(
    requests: int, prompt: int, output: int, blocks: int
) -> None:
    """Rows sampled are the outputs, whatever the cache; it never holds more than it has."""
    needed = -(-(prompt + output) // 8)
    limits = BatchLimits(
        prefill_tokens=100, cache_tokens=(needed + blocks) * 8, block_tokens=8, max_num_seqs=9
    )
    stretches = offline_batch(requests, prompt, output, limits)

    assert sum(stretch.steps * stretch.requests for stretch in stretches) == requests * output
    for stretch in stretches:
        last = stretch.context_tokens + stretch.steps - 1
        assert stretch.decodes * last <= (needed + blocks) * 8 + 1e-6
        assert stretch.requests <= 9


def test_what_cannot_run_is_refused() -> None:
    """A request longer than the cache, or no request."""
    with pytest.raises(InvalidInput, match="exceeds the cache"):
        offline_batch(1, 100, 100, BatchLimits(prefill_tokens=100, cache_tokens=64))
    with pytest.raises(InvalidInput):
        offline_batch(0, 1, 1, AMPLE)
    with pytest.raises(InvalidInput):
        BatchLimits(prefill_tokens=0, cache_tokens=1)
