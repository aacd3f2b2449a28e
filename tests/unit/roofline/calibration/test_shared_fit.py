"""One machine from runs of several models: planted shares, residuals and widths are found."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.llm import ModelShape, dense_model
from advisor.roofline.calibration.calibrated import FittedRoofline
from advisor.roofline.calibration.offline_batch import BatchLimits, offline_batch
from advisor.roofline.calibration.parameters import StepParameters, from_logs
from advisor.roofline.calibration.peak_machine import PeakMachine
from advisor.roofline.calibration.posterior import fit_posterior
from advisor.roofline.calibration.shared_fit import Samples, SharedFit, fit_shared
from advisor.roofline.calibration.work import Floats, Form, Indices, Work, joined_work
from advisor.roofline.step.served import ServedModel
from tests.fakes.planted_steps import H100_8B, decode
from tests.fakes.published_models import LLAMA_31_8B

TRUTH = StepParameters(
    host_s=2e-3,
    request_s=4e-5,
    memory=0.7,
    compute=0.6,
    cache=0.8,
    attention=0.025,
    prefill=0.45,
)
SMALL = dense_model(
    architecture="Qwen2ForCausalLM",
    hidden_size=1536,
    num_layers=28,
    num_heads=12,
    num_kv_heads=2,
    head_dim=128,
    intermediate_size=8960,
    vocab_size=151936,
    tied_embeddings=True,
    max_position_embeddings=32768,
    dtype="bfloat16",
)
FOLDS = 4
LIMITS = BatchLimits(prefill_tokens=8192, cache_tokens=4e5)
LOADS = [(batch, tokens) for batch in (1, 4, 16, 64) for tokens in (128, 256, 512, 1024, 2048)]


def machine_of(model: ModelShape) -> PeakMachine:
    return PeakMachine(served=ServedModel(model=model), device=H100_8B.device)


def both() -> tuple[Work, Floats]:
    """All loads of two models, and their inputs (ln B, ln s, which model)."""
    runs = [offline_batch(batch, tokens, tokens, LIMITS) for batch, tokens in LOADS]
    work = joined_work([machine_of(model).work(runs) for model in (LLAMA_31_8B, SMALL)])
    loads = np.log(np.array(LOADS * 2, dtype=np.float64))
    return work, np.column_stack([loads, np.repeat([0.0, 1.0], len(LOADS))])


WORK, INPUTS = both()


def samples(seconds: Floats, chosen: NDArray[np.bool_]) -> Samples:
    order = np.flatnonzero(chosen)
    return Samples(
        work=WORK.chosen(order.tolist()),
        seconds=seconds[order],
        inputs=INPUTS[order],
        folds=np.arange(len(order), dtype=np.intp) % FOLDS,
        rising=(0, 1),
    )


def noisy(seconds: Floats, noise: float, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(seconds * np.exp(noise * rng.standard_normal(len(seconds))))


@pytest.mark.parametrize("form", list(Form))
def test_planted_shares_are_found(form: Form) -> None:
    """Two models of different sizes tell host time from weights: 6 % each at 2 % noise."""
    seconds = noisy(TRUTH.seconds(WORK, form), 0.02, 21)
    found = fit_posterior(WORK, seconds, form).parameters

    for name in ("host_s", "memory", "request_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.1), name
    assert found.seconds(WORK, form) == pytest.approx(TRUTH.seconds(WORK, form), rel=0.03)


def test_swapped_shares_are_followed() -> None:
    """Memory at 0.5 instead of 0.7 is found as that."""
    other = replace(TRUTH, memory=0.5, host_s=1e-3)
    found = fit_posterior(WORK, noisy(other.seconds(WORK, Form.SUM), 0.02, 22), Form.SUM)

    assert found.parameters.memory == pytest.approx(0.5, rel=0.06)
    assert found.parameters.host_s == pytest.approx(1e-3, rel=0.2)


@pytest.mark.parametrize("place", [0, 13, 39])
def test_one_wild_run_hardly_moves_the_machine(place: int) -> None:
    """A run three times too long moves no prediction by more than 4 %, its own included."""
    seconds = noisy(TRUTH.seconds(WORK, Form.SUM), 0.02, 23)
    before = fit_posterior(WORK, seconds, Form.SUM).seconds(WORK)
    wild = seconds.copy()
    wild[place] *= 3
    after = fit_posterior(WORK, wild, Form.SUM).seconds(WORK)

    assert np.abs(after / before - 1).max() < 0.04


def test_the_planted_form_wins() -> None:
    """Half of the runs, 2 % noise: sum is told from max by what was held out."""
    half = np.arange(len(INPUTS)) % 2 == 0
    for form in Form:
        fit = fit_shared(samples(noisy(TRUTH.seconds(WORK, form), 0.01, 24), half))
        assert fit.posterior.form is form
        assert fit.errors[form] == min(fit.errors[kind] for kind in Form)


def bent() -> Floats:
    """The planted machine, where one model is slower by a bend in its batch."""
    bend = 0.12 * INPUTS[:, 2] * np.sin(1.2 * INPUTS[:, 0])
    return np.asarray(TRUTH.seconds(WORK, Form.SUM) * np.exp(bend))


def fitted_half(seed: int) -> tuple[SharedFit, Indices]:
    """A fit to 28 runs drawn at random, and the indices of the others."""
    rng = np.random.default_rng(seed)
    seconds = noisy(bent(), 0.02, seed)
    order = rng.permutation(len(seconds))
    chosen = np.zeros(len(seconds), dtype=bool)
    chosen[order[:28]] = True
    return fit_shared(samples(seconds, chosen)), np.flatnonzero(~chosen)


def test_a_residual_takes_up_what_the_roofline_cannot() -> None:
    """A planted bend of one model: the process lowers the held-out error, and is kept."""
    fit, held = fitted_half(25)
    logs, _ = fit.logs(WORK.chosen(held.tolist()), INPUTS[held])
    plain = fit.posterior.seconds(WORK.chosen(held.tolist()))

    assert fit.residual is not None
    assert "Gaussian-process residual" in fit.about
    errors = np.abs(np.exp(logs) / bent()[held] - 1).mean()
    assert errors < 0.85 * np.abs(plain / bent()[held] - 1).mean()


def test_intervals_of_the_shared_fit_cover_what_they_state() -> None:
    """Over twelve splits, 84 to 96 % of the runs left out lie in the 90 % interval."""
    inside = []
    for seed in range(30, 42):
        rng = np.random.default_rng(seed)
        seconds = noisy(TRUTH.seconds(WORK, Form.SUM), 0.04, seed)
        known = rng.permutation(len(seconds)) < 19
        held = np.flatnonzero(~known)
        fit = fit_shared(samples(seconds, known))
        predictions = fit.predict(WORK.chosen(held.tolist()), INPUTS[held])
        inside += [p.low <= seconds[i] <= p.high for i, p in zip(held, predictions, strict=True)]

    assert 0.84 <= np.mean(inside) <= 0.96


def test_beyond_the_trained_levels_widths_ignore_the_spread() -> None:
    """Batches as folds: every prediction has the same relative width."""
    seconds = noisy(TRUTH.seconds(WORK, Form.SUM), 0.02, 26)
    small = np.flatnonzero(INPUTS[:, 0] < np.log(20))
    training = replace(
        samples(seconds, INPUTS[:, 0] < np.log(20)),
        folds=np.unique(INPUTS[small, 0], return_inverse=True)[1].astype(np.intp),
        beyond=True,
    )
    large = np.flatnonzero(INPUTS[:, 0] > np.log(20))
    predictions = fit_shared(training).predict(WORK.chosen(large.tolist()), INPUTS[large])

    ratios = [p.high / p.low for p in predictions]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))
    values = np.array([p.value for p in predictions])
    assert np.abs(values / seconds[large] - 1).mean() < 0.08


def test_a_calibrated_machine_serves_a_model_that_was_not_timed() -> None:
    """Shares are of the machine: the 8B model's steps from runs of the small one alone."""
    alone = INPUTS[:, 2] == 1
    seconds = noisy(TRUTH.seconds(WORK, Form.SUM), 0.01, 27)
    fit = fit_shared(samples(seconds, alone))
    planted = FittedRoofline(machine=H100_8B, parameters=TRUTH, form=Form.SUM)
    step = fit.step(H100_8B)

    for batch in (decode(1, 64), decode(32, 1024)):
        assert step.seconds(batch) == pytest.approx(planted.seconds(batch), rel=0.15)


def test_slopes_are_those_of_the_seconds() -> None:
    """Parts of each parameter against finite differences, in both forms."""
    logs = TRUTH.logs()
    for form in Form:
        parts = TRUTH.parts(WORK, form)
        for place in range(len(logs)):
            moved = logs.copy()
            moved[place] += 1e-6
            change = from_logs(moved).seconds(WORK, form) - TRUTH.seconds(WORK, form)
            assert np.abs(change / 1e-6) == pytest.approx(parts[place], rel=1e-3, abs=1e-6)


def test_draws_lie_around_the_most_probable_machine() -> None:
    """A thousand draws have its logarithms as their mean."""
    found = fit_posterior(WORK, noisy(TRUTH.seconds(WORK, Form.SUM), 0.02, 28), Form.SUM)
    drawn = np.array([d.logs() for d in found.draws(1000, np.random.default_rng(1))])

    spread = np.sqrt(np.diag(found.log_covariance))
    assert np.abs(drawn.mean(axis=0) - found.parameters.logs()) == pytest.approx(
        np.zeros(7), abs=0.15 * spread.max()
    )


def test_the_floor_is_the_machine_at_its_peaks() -> None:
    """No planted share below 1 goes under it."""
    assert (WORK.floor_s() < TRUTH.seconds(WORK, Form.MAX)).all()


def test_samples_that_do_not_match_are_refused() -> None:
    """Other counts, one fold, impossible shares."""
    seconds = TRUTH.seconds(WORK, Form.SUM)
    good = samples(seconds, np.ones(len(seconds), dtype=bool))
    with pytest.raises(InvalidInput):
        replace(good, seconds=seconds[:-1])
    with pytest.raises(InvalidInput):
        replace(good, folds=np.zeros(len(seconds), dtype=np.intp))
    with pytest.raises(InvalidInput):
        fit_posterior(WORK, seconds[:3], Form.SUM)
    with pytest.raises(InvalidInput):
        replace(TRUTH, memory=0.0)
    with pytest.raises(InvalidInput):
        replace(TRUTH, host_s=-1.0)
    with pytest.raises(InvalidInput):
        joined_work([])
