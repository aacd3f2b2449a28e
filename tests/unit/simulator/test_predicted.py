"""What a simulated load is said to be like: order statistics, what binds, the highest rate."""

import math
from dataclasses import replace

import numpy as np
import pytest

from advisor.roofline.step.steptime import AffineStep, StepTables, TableLimits
from advisor.simulator import Load, SchedulerSettings
from advisor.simulator.predicted import (
    Binding,
    binding,
    highest_rate_per_s,
    order_statistic,
    predictions,
    run,
)
from advisor.simulator.sharing import closed_form

SETTINGS = SchedulerSettings(
    num_blocks=10_000,
    max_num_seqs=64,
    max_num_batched_tokens=512,
    max_model_len=2048,
    enable_prefix_caching=False,
)
LIMITS = TableLimits(max_tokens=512, max_requests=64, max_context=2048)


def tables(fixed_s: float = 0.01, *, token_s: float = 0.0, context_s: float = 0.0) -> StepTables:
    return AffineStep(fixed_s=fixed_s, token_s=token_s, context_s=context_s).tables(LIMITS)


def load(count: int = 200, *, rate_per_s: float = 20.0, prompt: int = 60, output: int = 30) -> Load:
    draw = np.random.default_rng(7)
    return Load(
        arrival_s=np.cumsum(draw.exponential(1 / rate_per_s, count)),
        prompt_tokens=np.full(count, prompt, dtype=np.int64),
        output_tokens=np.full(count, output, dtype=np.int64),
    )


def test_a_percentile_is_a_value_that_was_seen() -> None:
    """The smallest that so many percent do not exceed; requests without a time do not count."""
    values = np.array([4.0, np.nan, 1.0, 3.0, 2.0])

    assert [order_statistic(values, share) for share in (0, 25, 50, 90, 100)] == [1, 1, 2, 4, 4]
    assert math.isnan(order_statistic(np.array([np.nan]), 50))


@pytest.mark.parametrize(
    "changed,rate_per_s,found",
    [
        ({"max_num_seqs": 4}, 20.0, Binding.MAX_NUM_SEQS),
        ({"num_blocks": 25}, 40.0, Binding.KV_CACHE),
        ({"max_num_batched_tokens": 48}, 100.0, Binding.TOKEN_BUDGET),
        ({}, 0.5, Binding.ARRIVALS),
    ],
)
def test_what_binds_is_what_was_made_scarce(
    changed: dict[str, int], rate_per_s: float, found: Binding
) -> None:
    """Slots, blocks, tokens of a step, or requests themselves."""
    settings = replace(SETTINGS, **changed)  # type: ignore[arg-type]

    one = run(load(rate_per_s=rate_per_s), settings, tables())

    assert binding(one, tables()) is found


@pytest.mark.parametrize(
    "costs,found",
    [
        ({"fixed_s": 1e-4, "token_s": 4e-4}, Binding.ARITHMETIC),
        ({"fixed_s": 1e-4, "context_s": 5e-6}, Binding.CACHE_READS),
        ({"fixed_s": 0.01}, Binding.HOST),
    ],
)
def test_without_a_queue_the_largest_part_of_a_step_binds(
    costs: dict[str, float], found: Binding
) -> None:
    """Planted costs are found again."""
    one = run(load(rate_per_s=12.0), SETTINGS, tables(**costs))

    assert binding(one, tables(**costs)) in {found, Binding.ARRIVALS}
    busy = replace(one, outcome=replace(one.outcome, busy_s=one.outcome.duration_s))
    assert binding(busy, tables(**costs)) is found


def test_every_figure_lies_between_its_ends() -> None:
    """Whatever the order of the ends: more memory is not always faster."""
    ends = [run(load(), SETTINGS, tables(fixed_s=fixed_s)) for fixed_s in (0.005, 0.01, 0.02)]
    found = predictions(ends, ("the weather",))

    assert found["tpot_p50_s"].low == pytest.approx(0.005, rel=0.01)
    assert found["tpot_p50_s"].value == pytest.approx(0.01, rel=0.01)
    assert found["tpot_p50_s"].high == pytest.approx(0.02, rel=0.01)
    for said in found.values():
        assert said.low <= said.value <= said.high
        assert said.not_modelled == ("the weather",)
    assert predictions([], ()) == {}


def test_answers_of_one_token_have_no_tpot() -> None:
    """A figure that a load has not is absent, not zero."""
    one = run(load(output=1), SETTINGS, tables())
    found = predictions([one, one, one], ())

    assert "tpot_p50_s" not in found
    assert "accepted_draft_share" not in found
    assert "ttft_p50_s" in found


def test_the_highest_rate_does_not_depend_on_the_arrivals() -> None:
    """Slots over the time that one request holds one."""
    rates = [
        highest_rate_per_s(run(load(rate_per_s=rate), SETTINGS, tables()), tables())
        for rate in (5.0, 50.0)
    ]

    assert rates[0] == rates[1]
    assert rates[0] == pytest.approx(64 / (30 * 0.01), rel=0.15)


def test_too_small_a_load_says_no_rate() -> None:
    """A handful of requests does not tell what an engine serves for ever."""
    one = run(load(count=3, output=2), replace(SETTINGS, max_num_seqs=2), tables())

    assert highest_rate_per_s(one, tables()) is None


def test_the_closed_form_agrees_where_it_says_that_it_may() -> None:
    """Poisson arrivals, no caps: TPOT and running requests as simulated."""
    step = AffineStep(fixed_s=0.008, request_s=5e-5, token_s=5e-6)
    requests = load(4000, rate_per_s=60.0, output=100)
    settings = replace(SETTINGS, max_num_seqs=1024)
    found = closed_form(requests, settings, step)
    one = run(requests, settings, step.tables(LIMITS))
    said = predictions([one, one, one], ())

    assert found is not None
    assert found.reason is None
    assert found.sharing.tpot_s == pytest.approx(said["tpot_mean_s"].value, rel=0.04)
    assert found.sharing.running == pytest.approx(said["running_mean"].value, rel=0.06)


@pytest.mark.parametrize(
    "changed,sharing,reason",
    [
        ({"max_num_seqs": 4}, "", "cap of 4"),
        ({"num_blocks": 12}, "", "cap"),
        ({"static_batch": 8}, "", "static"),
        ({"enable_prefix_caching": True}, "tokens", "share blocks"),
        ({"max_num_batched_tokens": 64}, "", "long prompts"),
    ],
)
def test_the_closed_form_says_why_it_may_not_stand_in(
    changed: dict[str, int], sharing: str, reason: str
) -> None:
    """Caps, batches, sharing, chunks: the simulator knows them, the formula does not."""
    settings = replace(SETTINGS, **changed)  # type: ignore[arg-type]
    found = closed_form(load(), settings, AffineStep(fixed_s=0.01), shared=bool(sharing))

    assert found is not None
    assert found.reason is not None
    assert reason in found.reason


def test_a_closed_loop_and_a_single_moment_have_no_closed_form() -> None:
    """There is no rate of arrivals."""
    requests = load(20)
    step = AffineStep(fixed_s=0.01)

    assert closed_form(replace(requests, concurrency=4), SETTINGS, step) is None
    together = replace(requests, arrival_s=np.zeros(20))
    assert closed_form(together, SETTINGS, step) is None
