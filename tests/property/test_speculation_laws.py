"""Laws of speculation with any affine step, acceptance and drafter."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from advisor.estimate import Estimate, Source
from advisor.roofline.speculation import (
    DraftSchedule,
    MeasuredDrafter,
    Speculating,
    batch_speedup,
    break_even_batch,
    draft_schedule,
    geometric,
    tokens_over_requests,
)
from advisor.roofline.step.steptime import AffineStep

SHARES = st.floats(0.01, 0.99)
# A batch and its mean context.
LOADS = st.tuples(st.integers(1, 600), st.floats(0, 20_000))
DRAFTS = st.integers(1, 8)


def exact(value: float) -> Estimate:
    """A known share."""
    return Estimate(value=value, low=value, high=value, source=Source.MEASURED, basis="planted")


@st.composite
def speculations(draw: st.DrawFn) -> Speculating:
    """A target and a drafter."""
    return Speculating(
        steps=(
            AffineStep(
                fixed_s=draw(st.floats(1e-3, 2e-2)),
                token_s=draw(st.floats(1e-6, 1e-4)),
                context_s=draw(st.floats(0, 1e-7)),
            ),
        ),
        acceptance=geometric(exact(draw(SHARES)), 8),
        drafter=MeasuredDrafter(
            name="eagle", round_s=draw(st.floats(0, 1e-2)), pass_s=draw(st.floats(0, 1e-2))
        ),
    )


@given(speculations(), LOADS, DRAFTS)
def test_the_general_gain_is_the_closed_form(
    given_: Speculating, load: tuple[int, float], drafts: int
) -> None:
    """For an affine step both agree, and so do their break-even batches."""
    batch, context = load
    step = given_.steps[0]
    assert isinstance(step, AffineStep)
    same = {
        "fixed_s": step.fixed_s,
        "token_s": step.token_s,
        "context_s": step.context_s * context,
        "draft_s": given_.drafter.seconds(batch, context, drafts),
    }
    tokens = given_.acceptance.tokens(drafts)[1]
    assert given_.gain_at(batch, context, drafts) == pytest.approx(
        batch_speedup(batch=batch, tokens_per_verification=tokens, draft_tokens=drafts, **same),
        rel=1e-9,
    )
    closed = break_even_batch(tokens_per_verification=tokens, draft_tokens=drafts, **same)
    found = given_.break_even_batch(context, drafts, most=2000)
    if given_.gain_at(1, context, drafts) < 1:
        assert found == 0
        assert closed is None or closed < 1
    elif closed is None or closed > 2000:
        assert found is None
    else:
        assert found == pytest.approx(closed, abs=1.0)


@given(speculations(), LOADS, DRAFTS, st.floats(0, 1e-2))
def test_dearer_drafts_gain_less(
    given_: Speculating, load: tuple[int, float], drafts: int, more_s: float
) -> None:
    """The gain falls with the cost of a round, and the best length with that of a pass."""
    batch, context = load
    assert isinstance(given_.drafter, MeasuredDrafter)
    dear = replace(given_, drafter=replace(given_.drafter, pass_s=given_.drafter.pass_s + more_s))
    assert dear.gain_at(batch, context, drafts) <= given_.gain_at(batch, context, drafts) + 1e-12
    assert dear.best_draft_tokens(batch, context) <= given_.best_draft_tokens(batch, context)


@given(speculations(), LOADS, SHARES, SHARES)
def test_better_drafts_are_longer(
    given_: Speculating, load: tuple[int, float], one: float, two: float
) -> None:
    """Gain and best length rise with acceptance."""
    batch, context = load
    low, high = sorted((one, two))
    worse, better = (
        replace(given_, acceptance=geometric(exact(share), 8)) for share in (low, high)
    )
    assert worse.gain_at(batch, context, 3) <= better.gain_at(batch, context, 3) + 1e-12
    shorter = worse.best_draft_tokens(batch, context)
    longer = better.best_draft_tokens(batch, context)
    assert shorter <= longer


@given(speculations(), LOADS, DRAFTS, st.tuples(st.floats(0, 0.3), st.floats(1, 3)))
def test_the_interval_holds_the_centre_and_grows(
    given_: Speculating, load: tuple[int, float], drafts: int, widths: tuple[float, float]
) -> None:
    """Wider acceptance or drafting, a wider gain."""
    (batch, context), (spread, factor) = load, widths
    item = given_.acceptance.survival[0]
    wide = replace(item, low=max(0.0, item.value - spread), high=min(1.0, item.value + spread))
    assert isinstance(given_.drafter, MeasuredDrafter)
    loose = replace(
        given_,
        acceptance=geometric(wide, 8),
        drafter=replace(given_.drafter, spread=factor),
    )
    tight, found = given_.gain(batch, context, drafts), loose.gain(batch, context, drafts)
    assert found.low <= tight.value <= found.high
    assert found.high - found.low >= tight.high - tight.low - 1e-12


@given(st.lists(SHARES, min_size=1, max_size=20), st.integers(0, 10))
def test_variation_among_requests_never_hurts_the_mean(shares: list[float], drafts: int) -> None:
    """Tokens are convex in the acceptance."""
    mean = sum(shares) / len(shares)
    assert tokens_over_requests(shares, drafts) >= tokens_over_requests([mean], drafts) - 1e-9


@settings(max_examples=30, deadline=None)
@given(speculations(), st.integers(1, 400))
def test_a_schedule_is_legal_and_covers_every_batch(given_: Speculating, seats: int) -> None:
    """Ranges from 1 to the slots without a gap; lengths within what is known."""
    found = draft_schedule(given_, 100.0, max_num_seqs=seats)
    assert DraftSchedule(ranges=found.ranges) == found
    assert (found.ranges[0][0], found.ranges[-1][1]) == (1, seats)
    for (_, last, before), (first, _, after) in zip(found.ranges, found.ranges[1:], strict=False):
        assert (first, after != before) == (last + 1, True)
    assert all(0 <= tokens <= 8 for _, _, tokens in found.ranges)
    assume(found.num_speculative_tokens > 0)
    assert found.settings()["num_speculative_tokens"] == found.num_speculative_tokens
