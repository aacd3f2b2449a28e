"""N-gram replay and prefix sharing on cases that can be checked by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.traffic.drafting.lookup import (
    DRAFT_LENGTHS,
    WINDOWS,
    Lookups,
    LookupTally,
    acceptance,
    overlap,
    replay,
)
from tests.fakes.exact_prefix import cached_tokens, sharing
from tests.fakes.token_rows import array, row


def tallied(
    pairs: Sequence[tuple[Sequence[int] | None, Sequence[int] | None]], **values: object
) -> Lookups:
    """Look-ups of (prompt, output) in order; `values` go to every request."""
    tally = LookupTally((4, 2))
    for place, (prompt, output) in enumerate(pairs):
        tally.add(
            row(place, **values),
            None if prompt is None else array(prompt),
            None if output is None else array(output),
        )
    return tally.finish(range(len(pairs)))


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


def test_a_draft_that_the_limit_cuts_is_judged_by_the_others() -> None:
    """The engine verifies the last draft to its end; a text that ends by itself rejects it."""
    copy = list(range(100, 112))
    pair = (copy, copy[:9])  # steps begin at tokens 2 and 7: of the second draft two are seen
    by_itself, capped = tallied([pair]), tallied([pair], max_tokens=9)
    ended, cut = by_itself.of([0], 4), capped.of([0], 4)

    assert ended is not None
    assert cut is not None
    assert (ended.drafts, ended.accepted) == (cut.drafts, cut.accepted)
    assert ended.per_position[-1] < 1
    assert cut.per_position == (1, 1, 1, 1)


def test_the_sweep_holds_every_window_and_draft_length() -> None:
    """Longer drafts are accepted no less often at their first tokens, and say what they are of."""
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 4, 60).tolist() for _ in range(300)]
    found = tallied([(text[:40], text[40:]) for text in texts])
    settings = {
        (item.prompt_lookup_min, item.prompt_lookup_max, item.num_speculative_tokens)
        for item in found.sweep
    }

    assert settings == {(*window, k) for window in WINDOWS for k in DRAFT_LENGTHS}
    assert all(item.requests == 256 for item in found.sweep)
    assert "256 of 300 recorded outputs" in found.sweep[0].tokens_per_step.basis
    whole = found.of(range(300), 2)
    assert whole is not None
    assert whole.requests == 300


def test_an_earlier_answer_is_drafted_from_in_the_order_of_arrival() -> None:
    """The second of two equal answers is copied from the first; n-grams see no other request."""
    answer = list(range(500, 560))
    found = tallied([([1, 2], answer), ([3, 4], answer)])
    ngram = found.of([0, 1], 4)

    assert ngram is not None
    assert ngram.accepted == 0
    assert found.suffix is not None
    assert (found.suffix.method, found.suffix.num_speculative_tokens) == ("suffix", 24)
    assert found.suffix.accepted > 45
    assert found.suffix.decode_steps < 59 + 15
    assert "approximation" in found.suffix.tokens_per_step.basis


def test_rows_without_an_output_are_no_zero() -> None:
    """They are left out; without any other there is a reason instead of figures."""
    some = tallied([([1, 2, 1], [2, 1, 2]), ([1, 2], None), (None, [1])])
    none = tallied([([1, 2], None)])

    assert some.of([1, 2], 4) is None
    assert some.reason is None
    assert (none.of([0], 4), none.sweep, none.suffix) == (None, (), None)
    assert "recorded output" in (none.reason or "")


def test_temperatures_are_counted() -> None:
    """At temperature 0 the replay is exact; the basis says for how many that is known."""
    found = tallied([([1, 2, 1], [2, 1, 2])], temperature=0.0).of([0], 4)

    assert found is not None
    assert "temperature 0 for 1, above 0 for 0, not recorded for 0" in found.tokens_per_step.basis


@pytest.mark.parametrize("pair", [([], []), ([1, 2, 1], [2]), ([], [7])])
def test_answers_without_a_decode_step_have_no_figures(pair: tuple[list[int], list[int]]) -> None:
    """Nor has the sweep, which finds nothing to look at."""
    found = tallied([pair])

    assert (found.of([0], 4), found.sweep, found.suffix) == (None, (), None)
