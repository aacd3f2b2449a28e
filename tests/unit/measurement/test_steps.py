"""The step-time table against planted steps of several forms and noises."""

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.step_fit import StepFit
from advisor.measurement.step_plan import RunKind, StepRun, step_plan
from advisor.measurement.steps import StepTable, StepTiming, prompt_steps, step_table
from advisor.roofline.calibration.fit import fit
from advisor.roofline.step.batch import Prefill
from tests.fakes.planted_runs import PlantedRuns
from tests.fakes.planted_steps import H100_8B, PlantedStep, decode

LAWS = {
    "affine": PlantedStep(),
    "knee": PlantedStep(fixed_s=1e-3, token_s=28e-6, knee=200, request_s=5e-6),
    "graph sizes": PlantedStep(graphs=(1, 2, 4, 8, 16, 24, 32, 64, 128, 256)),
    "processor": PlantedStep(fixed_s=20e-3, token_s=1e-3, context_s=2e-6, pair_s=5e-8),
}
PLAN = step_plan(256, 9000, kv_cache_tokens=300_000)
SMALL = step_plan(8, 2048, draft_tokens=(3,))


def table(
    law: PlantedStep, *, noise: float, seed: int = 0, plan: tuple[StepRun, ...] = PLAN
) -> StepTable:
    """Of three repeats of every run."""
    timings = PlantedRuns(law=law).timed(plan, noise=noise, seed=seed)
    return step_table(timings, max_num_batched_tokens=2048, seed=seed)


def fitted(found: StepTable) -> StepFit:
    """The fit, which must be there."""
    assert found.fit is not None, found.not_fitted
    return found.fit


def test_a_difference_of_two_lengths_is_the_step_and_nothing_else() -> None:
    """Without noise, to a part in a million, whatever prompts and start cost."""
    runs = PlantedRuns(law=LAWS["affine"], around_s=1.0)
    found = step_table(runs.timed(SMALL, noise=0.0, seed=0), max_num_batched_tokens=2048)
    steps = [cell for cell in found.cells if cell.kind is not RunKind.PREFILL]

    assert len(steps) == 9
    for cell in steps:
        run = StepRun(
            kind=cell.kind,
            batch=cell.batch,
            prompt_tokens=1,
            output_tokens=1,
            draft_tokens=cell.draft_tokens,
        )
        assert cell.seconds.value == pytest.approx(runs.step_s(run, cell.context_tokens), rel=1e-6)


@pytest.mark.parametrize("name", sorted(LAWS))
@pytest.mark.parametrize("noise", [0.02, 0.08])
def test_intervals_of_cells_hold_the_planted_step(name: str, noise: float) -> None:
    """In 95 % of cells of many tables, give or take; drafts that are all refused included."""
    runs = PlantedRuns(law=LAWS[name])
    inside = []
    for seed in range(4):
        timings = runs.timed(SMALL, noise=noise, seed=seed)
        found = step_table(timings, max_num_batched_tokens=2048)
        for cell in found.cells:
            if cell.kind is RunKind.PREFILL:
                continue
            run = StepRun(
                kind=cell.kind,
                batch=cell.batch,
                prompt_tokens=1,
                output_tokens=1,
                draft_tokens=cell.draft_tokens,
            )
            truth = runs.step_s(run, cell.context_tokens)
            inside.append(cell.seconds.low <= truth <= cell.seconds.high)

    assert np.mean(inside) >= 0.9


def test_an_affine_engine_is_found_again() -> None:
    """Every term within 2 %, and what is around a run apart from them."""
    found = fitted(table(LAWS["affine"], noise=0.0005))

    for name in ("fixed_s", "token_s", "context_s", "pair_s"):
        assert found.coefficients[name].value == pytest.approx(
            getattr(LAWS["affine"], name), rel=0.02
        ), name
    assert found.coefficients["run_s"].value == pytest.approx(3e-3, rel=0.1)
    assert found.error < 0.005
    assert found.model.knee == 0


def test_a_knee_is_found_where_there_is_one() -> None:
    """Up to 200 positions cost the same."""
    found = fitted(table(LAWS["knee"], noise=0.005))

    assert found.model.knee == pytest.approx(200, rel=0.15)
    assert found.model.seconds(decode(64, 500)) == pytest.approx(
        LAWS["knee"](decode(64, 500)), rel=0.03
    )


@pytest.mark.parametrize("name", ["affine", "processor"])
def test_intervals_of_terms_hold_the_planted_ones(name: str) -> None:
    """At 5 % noise in at least nine of ten."""
    inside = []
    for seed in range(5):
        found = fitted(table(LAWS[name], noise=0.05, seed=seed))
        for term in ("fixed_s", "token_s", "context_s"):
            interval = found.coefficients[term]
            inside.append(interval.low <= getattr(LAWS[name], term) <= interval.high)

    assert sum(inside) >= 0.9 * len(inside)


def test_the_swapped_truth_is_followed() -> None:
    """Twice the cost per key and half the cost per token."""
    first, second = (
        fitted(table(law, noise=0.005))
        for law in (PlantedStep(), PlantedStep(token_s=10.5e-6, context_s=78e-9))
    )

    assert second.coefficients["context_s"].value > 1.7 * first.coefficients["context_s"].value
    assert second.coefficients["token_s"].value < 0.6 * first.coefficients["token_s"].value


def test_a_predicted_step_holds_the_truth_of_a_load_that_was_not_timed() -> None:
    """By the errors on loads left out."""
    found = fitted(table(LAWS["graph sizes"], noise=0.03))
    predicted = found.predict(decode(24, 700))

    assert predicted.low <= LAWS["graph sizes"](decode(24, 700)) <= predicted.high
    assert "loads left out" in predicted.basis


def test_observations_go_on_to_the_calibration_by_peaks() -> None:
    """The same timed loads, less what is around them, calibrate the roofline."""
    found = fitted(table(LAWS["affine"], noise=0.002))
    step = fit(found.observations, H100_8B).step

    assert step.seconds(decode(32, 1000)) == pytest.approx(
        LAWS["affine"](decode(32, 1000)), rel=0.03
    )


def test_verification_is_dearer_by_what_drafts_cost() -> None:
    """Three refused drafts at batch 8: their positions and their drafting over a plain step."""
    law = LAWS["processor"]
    found = table(law, noise=0.002, plan=SMALL)
    cost = next(item for item in found.verification if item.batch == 8)
    plain = found.cell(8)
    verifying = found.cell(8, draft_tokens=3)

    assert plain is not None
    assert verifying is not None
    wanted = (law(decode(8, 88)) + 8 * 3 * law.token_s + 3e-3) / law(decode(8, 88))
    assert cost.ratio.low <= wanted <= cost.ratio.high
    assert cost.ratio.value == pytest.approx(wanted, rel=0.02)
    assert {item.draft_tokens for item in found.verification} == {3}


def test_too_few_loads_are_not_fitted_and_that_is_said() -> None:
    """The cells are there all the same."""
    found = table(LAWS["affine"], noise=0.01, plan=PLAN[:4])

    assert found.fit is None
    assert found.not_fitted == "2 timed loads do not fix 6 terms"
    assert len(found.cells) == 2
    assert found.cell(512) is None


def test_a_longer_run_that_took_no_longer_is_no_step() -> None:
    """Noise hid it: no cell, and no negative step."""
    short, long = PLAN[:2]
    found = step_table(
        [StepTiming(run=short, seconds=2.0), StepTiming(run=long, seconds=1.9)],
        max_num_batched_tokens=2048,
    )

    assert found.cells == ()


def test_prompts_fill_the_budget_one_after_the_other() -> None:
    """Two of 700 tokens in steps of 1,000."""
    steps = prompt_steps(2, 700, 1000)

    assert [step.prefills for step in steps] == [
        (Prefill(new_tokens=700), Prefill(new_tokens=300)),
        (Prefill(new_tokens=400, cached_tokens=300),),
    ]


def test_the_plan_varies_one_thing_at_a_time() -> None:
    """Batches at a short context, contexts at one batch, prompts alone and several, drafts last."""
    kinds = {kind: [run for run in PLAN if run.kind is kind] for kind in RunKind}

    assert [run.batch for run in kinds[RunKind.DECODE][::2]] == [1, 4, 16, 64, 256]
    assert {run.prompt_tokens for run in kinds[RunKind.CONTEXT]} == {256, 2048, 8192}
    assert len({run.batch for run in kinds[RunKind.CONTEXT]}) == 1
    assert {(run.batch, run.prompt_tokens) for run in kinds[RunKind.PREFILL]} >= {
        (1, 64),
        (8, 512),
        (1, 8192),
    }
    assert {run.draft_tokens for run in kinds[RunKind.VERIFY]} == {1, 3, 5}
    assert step_plan(256, 9000, draft_tokens=())[-1].kind is RunKind.PREFILL


def test_a_plan_that_cannot_be_is_refused() -> None:
    """Nor a run with drafts that verifies nothing."""
    with pytest.raises(InvalidInput):
        step_plan(8, 100)
    with pytest.raises(InvalidInput):
        StepRun(kind=RunKind.DECODE, batch=1, prompt_tokens=1, output_tokens=1, draft_tokens=1)
    with pytest.raises(InvalidInput):
        StepRun(kind=RunKind.DECODE, batch=0, prompt_tokens=1, output_tokens=1)
    with pytest.raises(InvalidInput):
        StepTiming(run=PLAN[0], seconds=0.0)
    with pytest.raises(InvalidInput):
        step_table([], max_num_batched_tokens=2048)
    with pytest.raises(InvalidInput):
        prompt_steps(1, 1, 0)
