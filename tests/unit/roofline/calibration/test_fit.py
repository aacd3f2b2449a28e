"""Fits against planted truths: recovered, robust, rejected where impossible, honest in width."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.roofline.calibration.affine import AffineModel, counts, fit_affine
from advisor.roofline.calibration.calibrated import FittedRoofline
from advisor.roofline.calibration.conformal import left_out, log_residuals, width
from advisor.roofline.calibration.fit import fit
from advisor.roofline.calibration.parameters import StepParameters
from advisor.roofline.calibration.stretches import Observation, Stretch
from advisor.roofline.calibration.work import Floats, Form
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import AffineStep, TableLimits
from tests.fakes.planted_steps import DESIGN, H100_8B, PlantedStep, decode, prefill, timed

TRUTH = PlantedStep()
KNEE = PlantedStep(fixed_s=1e-3, token_s=28e-6, knee=200, request_s=5e-6)
HANDBOOK = AffineModel(
    affine=AffineStep(fixed_s=5.886e-3 + 1.207e-3, token_s=21.01e-6, context_s=39.26e-9)
)
ELSEWHERE = (decode(16, 512), decode(48, 2000), decode(200, 700), prefill(1500), prefill(700, 2))


def worst(model: AffineModel, law: PlantedStep) -> float:
    """The largest relative error on loads beside the design."""
    return max(abs(model.seconds(batch) / law(batch) - 1) for batch in ELSEWHERE)


def test_handbook_step_of_a_fitted_engine() -> None:
    """T3.2: 64 decodes at 1,024 take 11.011 ms by the affine step of handbook 3.3."""
    assert HANDBOOK.seconds(decode(64, 1024)) == pytest.approx(11.011e-3, abs=1e-6)


def test_handbook_interpretation_of_a_fit() -> None:
    """Handbook 3.3: T0 implies MBU 0.76, c_t MFU 0.72, c_kv MBU 1.0; all are believed."""
    bare = AffineModel(affine=replace(HANDBOOK.affine, fixed_s=5.886e-3))
    shares = bare.implied(H100_8B)

    assert shares["memory bandwidth"] == pytest.approx(0.76, abs=0.005)
    assert shares["matrix rate"] == pytest.approx(0.72, abs=0.005)
    assert shares["memory bandwidth in attention"] == pytest.approx(1.0, abs=0.005)
    assert bare.implausible(H100_8B) is None


def test_sums_over_a_stretch_are_those_of_its_steps() -> None:
    """Ten decode steps of three requests, one by one and in closed form."""
    together = counts([(Stretch(steps=10, decodes=3, context_tokens=100),)])
    one_by_one = counts(
        [tuple(Stretch(decodes=3, context_tokens=100 + step) for step in range(10))]
    )

    assert together == pytest.approx(one_by_one)


def test_a_noiseless_affine_engine_is_found_exactly() -> None:
    """Every coefficient within a part in a thousand."""
    rng = np.random.default_rng(1)
    found = fit_affine(timed(TRUTH, DESIGN, noise=0.0, rng=rng), Form.SUM).affine

    for name in ("fixed_s", "token_s", "context_s", "pair_s", "request_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=1e-3), name


@pytest.mark.parametrize("noise", [0.02, 0.08])
def test_noise_moves_the_coefficients_by_a_few_times_itself(noise: float) -> None:
    """Fixed, per-token and per-key cost within 4 noises, in 19 of 20 draws."""
    off = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        found = fit_affine(timed(TRUTH, DESIGN, noise=noise, rng=rng), Form.SUM).affine
        off.append(
            max(
                abs(getattr(found, name) / getattr(TRUTH, name) - 1)
                for name in ("fixed_s", "token_s", "context_s")
            )
        )

    assert np.quantile(off, 0.95) < 4 * noise


def test_the_swapped_truth_is_followed() -> None:
    """Twice the cost per key and half the cost per token: the fit says so."""
    swapped = replace(TRUTH, context_s=2 * TRUTH.context_s, token_s=TRUTH.token_s / 2)
    rng = np.random.default_rng(2)
    first = fit_affine(timed(TRUTH, DESIGN, noise=0.02, rng=rng), Form.SUM).affine
    second = fit_affine(timed(swapped, DESIGN, noise=0.02, rng=rng), Form.SUM).affine

    assert second.context_s / first.context_s == pytest.approx(2, rel=0.1)
    assert second.token_s / first.token_s == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("law", [TRUTH, KNEE])
def test_one_wild_point_hardly_moves_the_fit(law: PlantedStep, factor: float) -> None:
    """Any one timing three times too long or short: predictions move by less than 3 %."""
    form = Form.MAX if law.knee else Form.SUM
    clean = timed(law, DESIGN, noise=0.02, rng=np.random.default_rng(3))
    before = fit_affine(clean, form)
    for place in range(0, len(clean), 5):
        wild = list(clean)
        wild[place] = replace(clean[place], seconds=clean[place].seconds * factor)
        after = fit_affine(wild, form)
        moved = max(abs(after.seconds(b) / before.seconds(b) - 1) for b in ELSEWHERE)

        assert moved < 0.03, place


def test_the_form_with_the_lower_held_out_error_wins() -> None:
    """An engine without a knee is fitted in sum form, one with a knee in max form."""
    rng = np.random.default_rng(4)
    plain = fit(timed(TRUTH, DESIGN, noise=0.02, rng=rng), H100_8B)
    kneed = fit(timed(KNEE, DESIGN, noise=0.02, rng=rng), H100_8B)

    assert plain.form is Form.SUM
    assert kneed.form is Form.MAX
    assert isinstance(kneed.step, AffineModel)
    assert 120 < kneed.step.knee < 300
    assert worst(kneed.step, KNEE) < 0.04


def test_graph_padding_is_a_bounded_error() -> None:
    """Decodes padded to captured sizes: not modelled, and within 6 % in the mean."""
    padded = replace(TRUTH, graphs=(1, 2, 4, 8, 16, 32, 64, 128, 256))
    found = fit(timed(padded, DESIGN, noise=0.02, rng=np.random.default_rng(5)), H100_8B)
    batches = [decode(n, s) for n in (3, 20, 40, 90, 150) for s in (300, 3000)]
    errors = [abs(found.seconds(batch) / padded(batch) - 1) for batch in batches]

    assert np.mean(errors) < 0.06
    assert "padding to CUDA graph sizes" in found.not_modelled


def test_a_fit_that_implies_the_impossible_is_rejected_with_the_reason() -> None:
    """Weights read in a tenth of the time the peak allows: no affine form is believed."""
    absurd = replace(TRUTH, fixed_s=0.4e-3, token_s=1e-6)
    found = fit(timed(absurd, DESIGN, noise=0.01, rng=np.random.default_rng(6)), H100_8B)

    assert len(found.rejected) == 2
    assert "of the memory bandwidth" in found.rejected[0]
    assert isinstance(found.step, FittedRoofline)
    assert found.step.parameters.memory <= 1.05


@pytest.mark.parametrize("points", [1, 2, 3, 5])
def test_few_points_fit_shares_under_priors(points: int) -> None:
    """Up to five timings of a planted roofline: shares near its own, a widened interval."""
    truth = FittedRoofline(
        machine=H100_8B,
        parameters=StepParameters(
            host_s=1e-3,
            request_s=2e-5,
            memory=0.7,
            compute=0.55,
            cache=0.75,
            attention=0.03,
            prefill=0.5,
        ),
        form=Form.MAX,
    )
    batches = (decode(8, 512), prefill(2048), decode(64, 4096), decode(1, 64), prefill(4096))
    observations = [Observation.of(b, truth.seconds(b)) for b in batches[:points]]
    found = fit(observations, H100_8B)
    predicted = found.predict(decode(32, 1024))

    assert predicted.source is Source.CALIBRATED_ROOFLINE
    assert f"fitted to {points} points" in predicted.basis
    assert "widened" in predicted.basis
    assert predicted.low < truth.seconds(decode(32, 1024)) < predicted.high
    for batch in batches[:points]:
        assert found.seconds(batch) == pytest.approx(truth.seconds(batch), rel=0.04)


def test_a_faster_machine_is_told_from_few_points() -> None:
    """Three timings half as long halve the prediction of another load."""
    batches = (decode(1, 64), decode(8, 512), decode(32, 1024))
    slow, fast = (
        fit([Observation.of(b, seconds) for b in batches], H100_8B) for seconds in (12e-3, 6e-3)
    )
    asked = decode(16, 700)

    assert slow.seconds(asked) / fast.seconds(asked) == pytest.approx(2, rel=0.1)


def test_intervals_cover_what_they_state() -> None:
    """Over 30 draws of law, noise and loads, 84 to 96 % of new timings lie in the 90 % interval."""
    held = []
    for seed in range(30):
        rng = np.random.default_rng(1000 + seed)
        law = PlantedStep(fixed_s=float(rng.uniform(6e-3, 9e-3)))
        noise = float(rng.uniform(0.02, 0.08))
        known = timed(law, some_batches(rng, 29), noise=noise, rng=rng)
        step = fit_affine(known, Form.SUM)
        scores = np.abs(held_out(known))
        for observation in timed(law, some_batches(rng, 30), noise=noise, rng=rng):
            predicted = width(scores.tolist()).around(
                float(step.run_seconds([observation.stretches])[0])
            )
            held.append(predicted.low <= observation.seconds <= predicted.high)

    assert 0.84 <= np.mean(held) <= 0.96


def some_batches(rng: np.random.Generator, count: int) -> list[StepBatch]:
    """Decodes and prompts drawn evenly in logarithms."""
    return [
        decode(int(np.exp(rng.uniform(0, 5.5))), float(np.exp(rng.uniform(4, 8.5))))
        if rng.random() < 0.7
        else prefill(float(np.exp(rng.uniform(4, 8.5))))
        for _ in range(count)
    ]


def held_out(known: list[Observation]) -> Floats:
    """Errors in logarithms of points predicted without them, in ten folds."""

    def without(indices: Sequence[int]) -> Callable[[int], float]:
        step = fit_affine([known[index] for index in indices], Form.SUM)
        return lambda index: float(step.run_seconds([known[index].stretches])[0])

    predicted = left_out(without, len(known), folds=10)
    return log_residuals([item.seconds for item in known], predicted.tolist())


def test_tables_say_what_the_step_says() -> None:
    """On the grids of the simulator a max form and a roofline keep their seconds."""
    limits = TableLimits(max_tokens=8192, max_requests=256, max_context=8192)
    kneed = AffineModel(affine=AffineStep(fixed_s=1e-3, token_s=2e-5, context_s=4e-8), knee=200)
    tables = kneed.tables(limits)
    for tokens in (1.0, 100.0, 200.0, 350.0):
        dense = float(np.interp(tokens, tables.tokens, tables.dense_s))
        assert dense == pytest.approx(2e-5 * max(tokens, 200))

    roofline = fit(timed(TRUTH, DESIGN[:4], noise=0.0, rng=np.random.default_rng(7)), H100_8B)
    grids = roofline.tables(limits)
    place = int(np.searchsorted(grids.requests, 8.0))
    shown = (
        np.interp(8, grids.tokens, grids.dense_s)
        + np.interp(8, grids.rows, grids.head_s)
        + np.interp(1000, grids.contexts, grids.decode_s[place])
        + grids.host_s
        + 8 * grids.host_request_s
    )
    assert shown == pytest.approx(roofline.seconds(decode(8, 1000)), rel=1e-6)


def test_nothing_and_nonsense_are_refused() -> None:
    """No observation, no steps, no time."""
    with pytest.raises(InvalidInput):
        fit([], H100_8B)
    with pytest.raises(InvalidInput):
        fit_affine([Observation.of(decode(1, 1), 1.0)] * 4, Form.SUM)
    with pytest.raises(InvalidInput):
        Observation.of(StepBatch(), 1.0)
    with pytest.raises(InvalidInput):
        Observation.of(decode(1, 1), 0.0)
    assert AffineModel(affine=AffineStep(fixed_s=1.0), knee=5).seconds(StepBatch()) == 0.0
