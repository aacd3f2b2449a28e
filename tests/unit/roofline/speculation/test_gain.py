"""Gains of speculation with any step model, and what changes them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.estimate import Estimate, Source
from advisor.llm.feed_forward import Experts
from advisor.roofline.memory import kv_capacity
from advisor.roofline.speculation import (
    Acceptance,
    MeasuredDrafter,
    ModelDrafter,
    Speculating,
    batch_grid,
    decode_yield,
    geometric,
    method,
    one_hot_acceptance,
    sampled_acceptance,
    speculating_requests,
    tempered,
    tokens_over_requests,
    verified_experts,
)
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits


def share(value: float, low: float | None = None, high: float | None = None) -> Estimate:
    """A share with an interval."""
    return Estimate(
        value=value,
        low=value if low is None else low,
        high=value if high is None else high,
        source=Source.MEASURED,
        basis="planted",
    )


STEP = AffineStep(fixed_s=7e-3, token_s=2e-5, context_s=4e-8)
KNOWN = Acceptance(survival=(share(0.7, 0.6, 0.8), share(0.5, 0.4, 0.6), share(0.4, 0.3, 0.5)))
EAGLE = Speculating(
    steps=(STEP, AffineStep(fixed_s=9e-3, token_s=3e-5), AffineStep(fixed_s=5e-3, token_s=1e-5)),
    acceptance=KNOWN,
    drafter=MeasuredDrafter(name="eagle", pass_s=7e-4, request_s=2e-6, spread=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureStep:
    """A step bound by the weights of experts that its tokens touch."""

    experts: Experts
    not_modelled: tuple[str, ...] = ("everything else",)

    def seconds(self, batch: StepBatch) -> float:
        """1 ms, and 10 ms once all experts work."""
        return 1e-3 + 1e-2 * self.experts.distinct(batch.tokens) / self.experts.experts

    def tables(self, limits: TableLimits) -> StepTables:
        """Not needed here."""
        raise NotImplementedError(limits)


def test_prediction_carries_interval_source_and_gaps() -> None:
    """Ends of acceptance, drafting and all corners; 90 %; what the step model leaves out too."""
    found = EAGLE.gain(16, 500, 3)
    assert found.low < found.value < found.high
    assert found.source is Source.ROOFLINE
    assert "90 %" in found.basis
    assert "graph padding" in found.not_modelled
    assert found.value == pytest.approx(EAGLE.gain_at(16, 500, 3))
    sure = replace(EAGLE, steps=(STEP,), acceptance=geometric(share(0.7), 3))
    exact = replace(sure, drafter=MeasuredDrafter(name="eagle", round_s=1e-3)).gain(4, 100, 2)
    assert exact.low == exact.high == exact.value


def test_assumed_acceptance_weakens_the_source() -> None:
    """A prediction from literature is no better than literature."""
    prior = replace(share(0.7), source=Source.LITERATURE)
    assumed = replace(EAGLE, acceptance=geometric(prior, 3))
    assert assumed.gain(1, 100, 3).source is Source.LITERATURE
    assert assumed.gain(1, 100, 0).source is Source.ROOFLINE


def test_no_draft_gains_nothing() -> None:
    """Zero tokens: the same step, the same batch, exactly 1."""
    assert EAGLE.gain_at(8, 100, 0) == 1.0


def test_lost_async_scheduling_counts_for_methods_that_lose_it() -> None:
    """n-gram drafts switch it off, so host time shows; on the GPU they do not."""
    lookup = replace(EAGLE, drafter=MeasuredDrafter(name="ngram"), lost_async_s=(1e-3, 2e-3, 4e-3))
    kept = replace(lookup, drafter=MeasuredDrafter(name="ngram_gpu"))
    assert lookup.gain_at(1, 100, 3) < kept.gain_at(1, 100, 3)
    # Even where nothing is drafted.
    assert lookup.gain_at(1, 100, 0) < 1 == kept.gain_at(1, 100, 0)
    wide, narrow = lookup.gain(1, 100, 3), kept.gain(1, 100, 3)
    assert wide.high / wide.low > narrow.high / narrow.low


def test_long_context_helps_and_cheap_weights_hurt() -> None:
    """Verification reads the cache once; a quantized target has less slack for drafts."""
    assert EAGLE.gain_at(256, 4000, 3) > EAGLE.gain_at(256, 100, 3)
    packed = replace(EAGLE, steps=(AffineStep(fixed_s=2.5e-3, token_s=2e-5, context_s=4e-8),))
    assert packed.gain_at(16, 100, 3) < EAGLE.gain_at(16, 100, 3)


def test_mixtures_gain_first_less_then_more() -> None:
    """Distinct experts: mid-size batches pay for more weights, large ones touch all anyway."""
    experts = Experts(experts=128, active=8, intermediate=768)
    assert verified_experts(experts, 1, 3) == pytest.approx(29.12 / 8, rel=1e-3)
    assert verified_experts(experts, 512, 3) == pytest.approx(1.0, abs=1e-3)
    mixture = replace(EAGLE, steps=(MixtureStep(experts=experts),))
    gains = [mixture.gain_at(batch, 0, 3) for batch in (1, 8, 256)]
    assert gains[1] < gains[0] or gains[1] < gains[2]
    assert min(gains) != gains[2]
    dear = replace(mixture, drafter=MeasuredDrafter(name="eagle", round_s=4e-3))
    first = dear.break_even_batch(0, 3, most=64)
    assert first is not None
    assert first < 8


def test_break_even_of_what_never_gains_and_never_loses() -> None:
    """0 where it loses at once, None where it gains up to the most."""
    dear = replace(EAGLE, drafter=MeasuredDrafter(name="eagle", round_s=1.0))
    assert dear.break_even_batch(100, 3) == 0
    assert dear.best_draft_tokens(1, 100) == 0
    free = replace(
        EAGLE, steps=(AffineStep(fixed_s=1.0),), drafter=MeasuredDrafter(name="ngram_gpu")
    )
    assert free.break_even_batch(100, 3) is None


def test_a_drafting_model_costs_its_own_steps() -> None:
    """A pass per token, or one wide pass where all come at once."""
    small = AffineStep(fixed_s=1e-3, token_s=1e-6)
    one_by_one = ModelDrafter(name="draft_model", step=small, spread=2.0)
    at_once = ModelDrafter(name="dflash", step=small)
    assert one_by_one.seconds(10, 100, 4) == pytest.approx(4 * (1e-3 + 1e-5))
    assert at_once.seconds(10, 100, 4) == pytest.approx(1e-3 + 4e-5)
    assert one_by_one.seconds(10, 100, 0) == 0
    assert one_by_one.at_most().seconds(10, 100, 4) == pytest.approx(
        4 * one_by_one.at_least().seconds(10, 100, 4)
    )
    end = one_by_one.at_most()
    assert end.at_least().seconds(1, 1, 1) == end.at_most().seconds(1, 1, 1)
    assert end.method.name == "draft_model"
    assert MeasuredDrafter(name="ngram", round_s=1e-3).seconds(4, 10, 0) == 0


def test_methods_know_their_lookahead_slots_and_runner() -> None:
    """As vLLM 0.32 reserves and charges them."""
    assert method("eagle3").lookahead_tokens(3) == 3
    assert method("dflash").lookahead_tokens(3) == 4
    assert method("ngram").lookahead_tokens(3) == method("eagle").lookahead_tokens(0) == 0
    assert [method(n).budget_tokens(4) for n in ("ngram", "draft_model", "dflash", "dspark")] == [
        5,
        6,
        9,
        8,
    ]
    assert method("eagle").budget_tokens(0) == 1
    assert (method("suffix").runner, method("dspark").runner) == ("V1", "V2")
    assert not method("medusa").keeps_async
    with pytest.raises(UnknownName, match="eagle3"):
        method("tree")
    with pytest.raises(InvalidInput, match="negative"):
        method("eagle").lookahead_tokens(-1)


def test_lookahead_and_draft_caches_leave_room_for_fewer() -> None:
    """At a full cache both sides are compared at their own batch."""
    pool = kv_capacity(available_bytes=16 * 10_000, bytes_per_token=10, block_size=16)
    plain = pool.requests(496)
    drafting = speculating_requests(pool, 496, lookahead=4, draft_share=0.5)
    assert plain == 32
    assert drafting == 20
    at_capacity = EAGLE.gain(drafting, 496, 3, plain_batch=plain)
    assert at_capacity.value < EAGLE.gain(drafting, 496, 3).value
    with pytest.raises(InvalidInput, match="not negative"):
        speculating_requests(pool, 10, lookahead=-1)


def test_temperature_lowers_one_hot_acceptance() -> None:
    """The likeliest token is drafted: certain at 0, its own probability at 1, less above."""
    rows = np.array([[0.6, 0.3, 0.1], [0.5, 0.25, 0.25]])
    drafted = rows.argmax(axis=1)
    found = [one_hot_acceptance(rows, drafted, t) for t in (0.0, 0.5, 1.0, 2.0)]
    assert found[0] == 1.0
    assert found[2] == pytest.approx(0.55)
    assert found == sorted(found, reverse=True)
    assert sampled_acceptance(rows, rows) == pytest.approx(1.0)
    assert sampled_acceptance(rows[:1], rows[1:]) == pytest.approx(0.85)
    with pytest.raises(InvalidInput, match="temperature"):
        tempered(rows, -1.0)
    with pytest.raises(InvalidInput, match="draft"):
        sampled_acceptance(rows, rows[:1])


def test_a_factor_carries_acceptance_to_other_sampling() -> None:
    """Each position's conditional acceptance is scaled; intervals combine; never above 1."""
    lower = KNOWN.scaled(share(0.9, 0.8, 1.0))
    values = [item.value for item in lower.survival]
    assert values == pytest.approx([0.63, 0.405, 0.2916])
    assert lower.survival[2].low < KNOWN.survival[2].low
    assert KNOWN.scaled(share(2.0)).survival[0].value == 1.0
    assert Acceptance(survival=(share(0.0),)).scaled(share(0.5)).survival[0].value == 0
    with pytest.raises(InvalidInput, match="negative"):
        KNOWN.scaled(share(-0.1))


def test_requests_that_differ_yield_more_than_their_mean() -> None:
    """Jensen: two requests of 0.4 and 0.9 against one of 0.65."""
    assert tokens_over_requests((0.4, 0.9), 4) > tokens_over_requests((0.65,), 4)
    assert tokens_over_requests((0.4, 0.9), 1) == pytest.approx(tokens_over_requests((0.65,), 1))
    with pytest.raises(InvalidInput, match="empty"):
        tokens_over_requests((), 3)


def test_what_cannot_be_is_refused() -> None:
    """Rising survival, shares above 1, drafts longer than known, no batch, no step model."""
    with pytest.raises(InvalidInput, match="rises"):
        Acceptance(survival=(share(0.4), share(0.5)))
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        Acceptance(survival=(share(1.4),))
    with pytest.raises(InvalidInput, match="no position"):
        Acceptance(survival=())
    with pytest.raises(InvalidInput, match="what is known"):
        KNOWN.tokens(4)
    with pytest.raises(InvalidInput, match="at least one token"):
        geometric(share(0.5), 0)
    with pytest.raises(InvalidInput, match="batch"):
        EAGLE.gain(0, 10, 1)
    with pytest.raises(InvalidInput, match="steps"):
        replace(EAGLE, steps=())
    with pytest.raises(InvalidInput, match="lost_async_s"):
        replace(EAGLE, lost_async_s=(2.0, 1.0, 3.0))
    with pytest.raises(InvalidInput, match="drafter"):
        MeasuredDrafter(name="eagle", pass_s=-1)
    with pytest.raises(InvalidInput, match="most"):
        batch_grid(0)
    with pytest.raises(InvalidInput, match="counters"):
        decode_yield(generated=10, accepted=9, drafts=1, requests=1)
