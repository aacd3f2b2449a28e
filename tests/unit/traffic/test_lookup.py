"""N-gram replay and prefix sharing on cases that can be checked by hand."""

import pytest

from advisor.errors import InvalidInput
from advisor.traffic.lookup import acceptance, overlap, replay
from advisor.traffic.prefix import cached_tokens, sharing


def test_a_copied_answer_is_accepted_in_whole_drafts() -> None:
    """The handbook's own example (section 15): three steps for seven tokens."""
    found = replay([1, 2, 3, 4, 5, 6, 9], [1, 2, 3, 4, 5, 6, 8], k=3)

    assert (found.decode_steps, found.drafts, found.draft_tokens, found.accepted) == (3, 2, 6, 3)
    assert found.per_position == (1, 1, 1)
    assert found.decoded_tokens / found.decode_steps == 2


@pytest.mark.parametrize("output", [[], [5]])
def test_an_answer_of_at_most_one_token_has_no_decode_step(output: list[int]) -> None:
    """The first token comes with the prompt."""
    found = replay([1, 2, 3], output, k=4)

    assert (found.decode_steps, found.decoded_tokens) == (0, 0)
    assert acceptance([found], k=4, basis="none") is None


@pytest.mark.parametrize("k, low, high", [(0, 2, 4), (3, 0, 4), (3, 5, 4)])
def test_settings_that_draft_nothing_are_refused(k: int, low: int, high: int) -> None:
    """k and n are at least 1, and min is not above max."""
    with pytest.raises(InvalidInput):
        replay([1], [1, 2], k=k, lookup_min=low, lookup_max=high)


def test_steps_without_a_draft_count() -> None:
    """S-14: tokens per step is over all decode steps, coverage says how many had a draft."""
    drafted = replay([1, 2, 3, 4], [1, 2, 3, 4], k=2)
    nothing = replay([1, 2, 3, 4], [7, 8, 9, 10], k=2)
    found = acceptance([drafted, nothing], k=2, basis="two requests")

    assert found is not None
    assert found.decode_steps == drafted.decode_steps + 3
    assert found.coverage == found.drafts / found.decode_steps
    assert found.tokens_per_step.value == pytest.approx(6 / found.decode_steps)
    assert found.tokens_per_step.low <= found.tokens_per_step.value <= found.tokens_per_step.high


def test_no_draft_is_a_rate_of_zero_drafts_not_a_crash() -> None:
    """S-18: one token per step, nothing covered."""
    found = acceptance([replay([1, 2], [7, 8, 9], k=2)], k=2, basis="one request")

    assert found is not None
    assert (found.drafts, found.coverage, found.tokens_per_step.value) == (0, 0, 1)
    assert found.per_position == (0, 0)


def test_overlap_needs_an_n_gram() -> None:
    """Two words hold no 3-gram."""
    assert overlap(["a", "b", "c"], ["a", "b"]) is None


def test_prompts_that_arrive_together_share_whole_blocks() -> None:
    """T8.1: 300 shared tokens, blocks of 128."""
    prompts = [[*range(300), *[1000 * place + tail for tail in range(20)]] for place in range(1, 5)]
    found = sharing(prompts, 128)

    assert cached_tokens(prompts, 128) == (0, 256, 256, 256)
    assert found is not None
    assert found.hit_share.value == pytest.approx(768 / 1280)


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """An equal prompt of two whole blocks hits one."""
    assert cached_tokens([range(32), range(32), range(33)], 16) == (0, 16, 32)


def test_equal_blocks_after_different_beginnings_are_not_shared() -> None:
    """A block is known by everything before it."""
    assert cached_tokens([[1, 1, 2, 2, 0], [3, 3, 2, 2, 0]], 2) == (0, 0)


def test_no_prompt_has_nothing_to_share() -> None:
    """None, not zero."""
    assert sharing([], 16) is None


def test_a_block_has_a_size() -> None:
    """At least one token."""
    with pytest.raises(InvalidInput, match="block_size"):
        cached_tokens([[1]], 0)
