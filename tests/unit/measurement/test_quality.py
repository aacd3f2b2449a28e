"""Answers of one engine against another's: agreement, its interval, and what cannot be compared."""

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.quality import compare, design_effect
from advisor.measurement.records import QualityAnswer, QualityPass

REFERENCE = {f"r{index}": tuple(range(index, index + 20)) for index in range(12)}


def quality_pass(
    greedy: dict[str, tuple[int, ...]], forced: dict[str, tuple[int, ...]] | None = None
) -> QualityPass:
    """A pass with these answers; `forced` where the engine said it."""
    return QualityPass(
        subset_digest=f"{len(greedy)}",
        answers=tuple(
            QualityAnswer(
                request_id=name, label=None, greedy=tokens, forced=(forced or {}).get(name)
            )
            for name, tokens in greedy.items()
        ),
    )


def changed(names: tuple[str, ...], position: int) -> dict[str, tuple[int, ...]]:
    """The reference with another token at one position of the named answers."""
    return {
        name: (*tokens[:position], 999, *tokens[position + 1 :]) if name in names else tokens
        for name, tokens in REFERENCE.items()
    }


def test_an_engine_agrees_with_itself() -> None:
    """Baseline against itself, but a dozen answers do not prove that it always will."""
    found = compare(quality_pass(REFERENCE), quality_pass(REFERENCE, REFERENCE))

    assert (found.requests, found.tokens) == (12, 240)
    assert found.top1_agreement is not None
    assert found.top1_agreement.value == 1.0
    assert (found.greedy_agreement.value, found.identical.value) == (1.0, 1.0)
    assert 0.97 < found.top1_agreement.low < 1.0
    assert found.identical.low < found.top1_agreement.low


def test_an_answer_counts_up_to_its_first_other_token() -> None:
    """Three of twelve answers differ from their sixth token on."""
    others = changed(("r0", "r1", "r2"), 5)
    found = compare(quality_pass(REFERENCE), quality_pass(others))

    assert found.identical.value == pytest.approx(9 / 12)
    assert found.greedy_agreement.value == pytest.approx((9 + 3 * 5 / 20) / 12)
    assert found.top1_agreement is None


def test_forced_tokens_are_compared_position_by_position() -> None:
    """A miss does not spoil the positions after it: the text before them is the reference's."""
    found = compare(
        quality_pass(REFERENCE), quality_pass(REFERENCE, changed(("r0", "r1", "r2"), 5))
    )

    assert found.top1_agreement is not None
    assert found.top1_agreement.value == pytest.approx(237 / 240)
    assert found.greedy_agreement.value == 1.0


def test_positions_that_were_not_said_are_not_counted() -> None:
    """Half of the answers have forced tokens, one of those for its first half only."""
    forced = {name: REFERENCE[name] for name in ("r0", "r1", "r2", "r3", "r4")}
    forced["r5"] = REFERENCE["r5"][:10]
    forced["r0"] = (999, *REFERENCE["r0"][1:])
    found = compare(quality_pass(REFERENCE), quality_pass(REFERENCE, forced))

    assert found.top1_agreement is not None
    assert found.top1_agreement.value == pytest.approx(109 / 110)
    assert "6 requests" in found.top1_agreement.basis


def test_misses_in_one_answer_say_less_than_spread_ones() -> None:
    """Positions of one answer are not independent: they are drawn together."""
    together = dict(REFERENCE) | {"r0": (999,) * 20}
    spread = {name: (999, 999, *tokens[2:]) for name, tokens in REFERENCE.items()}
    clustered = compare(quality_pass(REFERENCE), quality_pass(REFERENCE, together)).top1_agreement
    even = compare(quality_pass(REFERENCE), quality_pass(REFERENCE, spread)).top1_agreement

    assert clustered is not None
    assert even is not None
    assert clustered.high - clustered.low > 1.5 * (even.high - even.low)


def test_a_longer_answer_is_another_answer() -> None:
    """The place where one ends and the other goes on is a difference."""
    longer = {name: (*tokens, 7) for name, tokens in REFERENCE.items()}
    found = compare(quality_pass(REFERENCE), quality_pass(longer))

    assert found.identical.value == 0.0
    assert found.greedy_agreement.value == pytest.approx(20 / 21)


def test_empty_answers_are_equal() -> None:
    """An answer that ends at once has no token to differ in."""
    found = compare(quality_pass({"a": ()}), quality_pass({"a": ()}))

    assert (found.tokens, found.greedy_agreement.value) == (0, 1.0)


def test_only_requests_that_both_answered_are_compared() -> None:
    """A slow configuration answers fewer prompts."""
    fewer = {name: REFERENCE[name] for name in ("r3", "r4")}

    assert compare(quality_pass(REFERENCE), quality_pass(fewer)).requests == 2


def test_passes_over_other_prompts_cannot_be_compared() -> None:
    """No request in common."""
    with pytest.raises(InvalidInput, match="no request in common"):
        compare(quality_pass(REFERENCE), quality_pass({"another": (1, 2)}))


def test_equal_passes_give_equal_figures() -> None:
    """The interval is drawn from the seed that is given."""
    passes = quality_pass(REFERENCE), quality_pass(changed(("r0", "r5"), 3))

    assert compare(*passes, seed=3) == compare(*passes, seed=3)


def test_one_request_is_one_cluster() -> None:
    """A single sample per cluster clusters nothing."""
    assert design_effect(1, 0.5) == 1.0
