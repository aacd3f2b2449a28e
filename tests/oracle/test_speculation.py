"""Worked examples T6.1 to T6.6 of the handbook by the model that takes any step time."""

import pytest

from advisor.estimate import Estimate, Source
from advisor.roofline.speculation import (
    Acceptance,
    MeasuredDrafter,
    Speculating,
    acceptance_from_survival,
    best_draft_tokens,
    break_even_acceptance,
    conditional,
    decode_yield,
    expected_tokens,
    geometric,
    operations_factor,
    speedup,
    tokens_from_survival,
    tokens_per_step,
)
from advisor.roofline.step.steptime import AffineStep


def exact(value: float) -> Estimate:
    """A known number."""
    return Estimate(value=value, low=value, high=value, source=Source.MEASURED, basis="handbook")


# Fitted vLLM on an H100 with Llama-3.1-8B (handbook 3.3), and EAGLE drafts of 2.14 ms a round.
H100 = AffineStep(fixed_s=7.093e-3, token_s=2.101e-5, context_s=3.926e-8)
EAGLE = Speculating(
    steps=(H100,),
    acceptance=Acceptance(survival=(exact(0.623), exact(0.382), exact(0.252))),
    drafter=MeasuredDrafter(name="eagle", round_s=2.14e-3),
)


def test_independent_positions() -> None:
    """T6.1: tokens, gain, best draft length, arithmetic; also by the general model at batch 1."""
    assert expected_tokens(0.8, 5) == pytest.approx(3.6893, abs=5e-5)
    assert speedup(0.8, 5, 0.05) == pytest.approx(2.9514, abs=5e-5)
    assert best_draft_tokens(0.8, 0.05) == 8
    assert speedup(0.8, 8, 0.05) == pytest.approx(3.0921, abs=5e-5)
    assert operations_factor(0.8, 5, 0.05) == pytest.approx(1.6941, abs=5e-5)
    general = Speculating(
        steps=(AffineStep(fixed_s=1.0),),
        acceptance=geometric(exact(0.8), 12),
        drafter=MeasuredDrafter(name="draft_model", pass_s=0.05),
    )
    assert general.acceptance.tokens(5)[1] == pytest.approx(3.6893, abs=5e-5)
    assert general.gain(1, 0, 5).value == pytest.approx(2.9514, abs=5e-5)
    assert general.best_draft_tokens(1, 0) == 8
    assert general.gain(1, 0, 8).value == pytest.approx(3.0921, abs=5e-5)


@pytest.mark.parametrize(
    "draft_tokens,cost,acceptance", [(5, 0.1, 0.3343), (5, 0.05, 0.2001), (6, 0.2, 0.5526)]
)
def test_break_even_acceptance(draft_tokens: int, cost: float, acceptance: float) -> None:
    """T6.2: two thirds are a rule of thumb; the gain there is 1.8244."""
    assert break_even_acceptance(draft_tokens, cost) == pytest.approx(acceptance, abs=5e-5)
    assert speedup(2 / 3, 5, 0.1) == pytest.approx(1.8244, abs=5e-5)


def test_measured_positions() -> None:
    """T6.3: acceptance length, conditionals, and the likeliest geometric acceptance."""
    survival = (0.623, 0.382, 0.252)
    assert tokens_from_survival(survival) == pytest.approx(2.257)
    assert EAGLE.acceptance.tokens(3)[1] == pytest.approx(2.257)
    assert sum(survival) / 3 == pytest.approx(0.419, abs=5e-4)
    assert conditional(survival)[1:] == pytest.approx((0.613, 0.660), abs=5e-4)
    assert acceptance_from_survival(survival) == pytest.approx(0.627, abs=5e-4)


@pytest.mark.parametrize("batch,gain", [(1, 1.724), (64, 1.344), (256, 1.019)])
def test_gain_in_a_batch(batch: int, gain: float) -> None:
    """T6.4: at 256 tokens of context."""
    assert EAGLE.gain(batch, 256, 3).value == pytest.approx(gain, abs=5e-4)


def test_break_even_batch_at_short_and_long_context() -> None:
    """T6.4: 280 requests at 256 tokens; at 1,024 it never loses, verification reads the cache."""
    assert EAGLE.break_even_batch(256, 3) == pytest.approx(280.2, rel=1e-2)
    assert EAGLE.break_even_batch(1024, 3, most=20_000) is None


def test_misses_of_look_up_drafts_count() -> None:
    """T6.5: n-gram drafts on ShareGPT yield 1.395 tokens a step, not 2.78."""
    assert tokens_per_step(0.222, 2.78) == pytest.approx(1.395, abs=5e-4)
    lookup = Acceptance(survival=(exact(0.68), exact(0.60), exact(0.50)), coverage=exact(0.222))
    assert lookup.tokens(3)[1] == pytest.approx(1.395, abs=5e-4)
    assert lookup.drafted(3) == pytest.approx(0.666)


def test_counters_of_a_run_without_a_rejection() -> None:
    """T6.6: 256 tokens of four requests, 184 accepted in 64 drafts."""
    found = decode_yield(generated=256, accepted=184, drafts=64, requests=4)
    assert found.decode_steps == 68
    assert found.coverage == pytest.approx(0.941, abs=5e-4)
    assert found.tokens_per_step == pytest.approx(3.706, abs=5e-4)
    assert found.acceptance_length == pytest.approx(3.875)
