"""The order of configurations, the limits of the goal, and the bundle that is reviewed."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.canonical import canonical_bytes
from advisor.errors import Unavailable
from advisor.estimate import Source
from advisor.goal import Goal, Objective
from advisor.measurement.latency import quantiles
from advisor.recommender.evidence import StudyEvidence, StudyOptions
from advisor.recommender.ranking import Candidate, ordering, override_texts, ranked, unchanged
from advisor.recommender.recommend import recommend
from advisor.recommender.recommendation import RankedConfig, Recommendation
from advisor.recommender.screening import forecast, forecasts
from advisor.serving import Levers, LeverValue, NgramSpeculation, ServingConfig
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import DEVICE, World, begin, estimate, study, summary

TWO_IMPROVE = World(dtype_factor={"float32": 0.8}, shared=-0.5)


@cache
def usual() -> StudyEvidence:
    """A whole study of the usual world."""
    return study(World())


@cache
def improvable() -> StudyEvidence:
    """A whole study where two changes improve on the baseline."""
    return study(TWO_IMPROVE)


def advised(evidence: StudyEvidence) -> Recommendation:
    """The recommendation of a study."""
    return recommend(evidence, study_id="study", machine="a planted machine")


def order(evidence: StudyEvidence) -> tuple[RankedConfig, ...]:
    """The ranking of a study."""
    return ranked(evidence, TECHNIQUES)


def candidate(score: float, overrides: int = 0, *, points: int = 1, excess: float = 0) -> Candidate:
    """A candidate with so many overrides."""
    levers: tuple[tuple[str, LeverValue], ...] = (
        ("max_num_seqs", 8),
        ("block_size", 16),
        ("dtype", "float32"),
    )
    names = dict(levers[:overrides])
    return Candidate(
        config=ServingConfig().changed(names),
        title=f"{score}",
        score=score,
        points=points,
        throughput=estimate(score, score, score),
        gain=estimate(1, 1, 1),
        ttft_p95_s=None,
        tpot_p95_s=None,
        excess=excess,
    )


def test_every_measured_configuration_is_ranked_once_by_throughput() -> None:
    """The baseline's two starts are one configuration."""
    found = order(usual())
    rates = [item.throughput_tokens_per_s.value for item in found]

    assert len(found) == 6
    assert rates == sorted(rates, reverse=True)
    assert [item.rank for item in found] == [1, 2, 3, 4, 5, 6]
    assert found[0].config == usual().baseline
    assert (found[0].gain.value, found[0].title) == (1.0, "Baseline")
    assert all(item.throughput_tokens_per_s.source is Source.MEASURED for item in found)


def test_a_combination_that_was_measured_is_ranked_as_measured() -> None:
    """It beats both of its parts here."""
    best = order(improvable())[0]

    assert best.overrides == {"enable_prefix_caching": "false", "dtype": "float32"}
    assert best.gain.low > 1
    assert best.throughput_tokens_per_s.source is Source.MEASURED


def test_a_combination_that_was_not_measured_is_predicted_and_says_so() -> None:
    """Never called measured, and ranked by its pessimistic end."""
    trials = tuple(t for t in improvable().trials if t.plan.key != "combination")
    found = order(replace(improvable(), trials=trials))
    predicted = [item for item in found if "(predicted)" in item.title]
    singles = [item.gain.value for item in found if len(item.overrides) == 1]

    assert len(predicted) == 1
    assert predicted[0].throughput_tokens_per_s.source is Source.CALIBRATED_ROOFLINE
    assert predicted[0].gain.source is Source.CALIBRATED_ROOFLINE
    assert predicted[0].gain.value > 1.05
    assert predicted[0].gain.low <= max(singles)


def test_without_the_roofline_a_combination_is_the_product_of_its_gains() -> None:
    """An upload without lengths predicts nothing; the measured gains still multiply."""
    trials = tuple(t for t in improvable().trials if t.plan.key != "combination")
    blind = replace(improvable(), trials=trials, traffic=summary(lengths=False, with_text=True))
    gains = {item.title: item.gain.value for item in order(blind)}
    product = [value for title, value in gains.items() if "(predicted)" in title]
    singles = sorted(gains.values())[-3:]

    assert product[0] == pytest.approx(singles[-1])
    assert product[0] > singles[-2]


def test_within_the_noise_the_simpler_configuration_comes_first() -> None:
    """A gain that noise explains is not worth an override."""
    found = order(study(World(shared=0.0), seed=3))
    titles = [item.title for item in found[:2]]

    assert titles == ["Baseline", "Prefix caching off"]
    assert [item.tied_with_better for item in found[:2]] == [False, True]


def test_ties_do_not_reach_across_a_broken_limit() -> None:
    """What keeps the limits comes first, the rest from the nearest miss on."""
    near, far = candidate(3.0, excess=0.1), candidate(9.0, 1, excess=0.5)
    kept, tied = candidate(2.0, 2), candidate(1.99, 3)
    found = ordering([far, tied, near, kept], lambda *counts: 0.1 * len(counts) / 2)

    assert found == (kept, tied, near, far)


def test_a_broken_limit_is_explained() -> None:
    """Which one, and by how much."""
    strict = replace(usual(), goal=Goal(ttft_p95_s=1e-6, tpot_p95_s=100.0))
    found = order(strict)

    assert not any(item.feasible for item in found)
    assert "TTFT p95 of" in (found[0].why_not or "")
    assert "above the limit of" in (found[0].why_not or "")
    assert "TPOT" not in (found[0].why_not or "")
    assert any("no configuration keeps" in warning for warning in advised(strict).warnings)


def test_kept_limits_are_not_mentioned() -> None:
    """Feasible, without a remark."""
    found = order(replace(usual(), goal=Goal(ttft_p95_s=1e6, tpot_p95_s=1e6)))

    assert all(item.feasible and item.why_not is None for item in found)


def test_an_unmeasured_latency_keeps_no_limit() -> None:
    """A predicted combination has no percentiles."""
    trials = tuple(t for t in improvable().trials if t.plan.key != "combination")
    limited = replace(improvable(), trials=trials, goal=Goal(ttft_p95_s=1e6))
    last = order(limited)[-1]

    assert "(predicted)" in last.title
    assert not last.feasible
    assert "was not measured" in (last.why_not or "")


def test_the_latency_objective_ranks_by_waiting() -> None:
    """The same study, another order of preference."""
    patient = replace(usual(), goal=Goal(objective=Objective.LATENCY))

    assert order(patient)[0].config == usual().baseline


def test_overrides_read_as_the_command_line_takes_them() -> None:
    """Texts as they are, anything else as JSON."""
    config = ServingConfig(
        levers=Levers(
            dtype="float32",
            enable_prefix_caching=False,
            speculative_config=NgramSpeculation(num_speculative_tokens=2),
        )
    )

    assert override_texts(config) == {
        "dtype": "float32",
        "enable_prefix_caching": "false",
        "speculative_config": '{"method":"ngram","num_speculative_tokens":2,'
        '"prompt_lookup_max":4,"prompt_lookup_min":2}',
    }


def test_a_recommendation_is_the_same_for_the_same_evidence() -> None:
    """Its hash is what a reviewer approves."""
    first, second = advised(usual()), advised(usual())

    assert first.hash == second.hash
    assert canonical_bytes(first) == canonical_bytes(second)
    assert first.hash != advised(improvable()).hash
    assert first.best == first.ranked[0]


def test_a_recommendation_holds_the_evidence_in_figures() -> None:
    """Counts, means, memory, facts of the engine."""
    found = advised(usual())
    requests = sum(p.succeeded for t in usual().trials for p in t.points)

    assert found.conclusive
    assert found.requests_measured == requests
    assert found.mean_output_tokens is not None
    assert 6 <= found.mean_output_tokens <= 30
    assert found.memory.weight_bytes == 1000
    assert found.memory.kv_peak_usage == 0.25
    assert found.memory.kv_bytes_per_token == 23_040
    assert found.engine.start_s == 30.0
    assert [verdict.technique for verdict in found.verdicts] == [t.key for t in TECHNIQUES]
    assert found.warnings == ()
    assert found.noise.repeats == 5


def test_a_study_may_be_about_some_techniques_only() -> None:
    """Neither planned nor judged nor missed: what nobody asked about."""
    asked = TECHNIQUES[1].key
    evidence = study(World(), evidence=replace(begin(), techniques=(asked,)))
    found = advised(evidence)

    assert [trial.plan.key for trial in evidence.trials] == ["baseline", asked, "anchor"]
    assert {p.concurrency for trial in evidence.trials[1:] for p in trial.points} == {16}
    assert [verdict.technique for verdict in found.verdicts] == [asked]
    assert found.warnings == ()


def test_a_change_of_outputs_is_warned_of() -> None:
    """Where the answers were not compared."""
    unchecked = tuple(replace(trial, quality=None) for trial in improvable().trials)
    found = (advised(improvable()), advised(replace(improvable(), trials=unchecked)))
    warned = [[w for w in item.warnings if "changes outputs" in w] for item in found]

    assert [len(item) for item in warned] == [0, 1]


def test_what_went_wrong_is_among_the_warnings() -> None:
    """Failures, disturbed points, a budget that ended, a single start, drift."""
    failed = World(failing=frozenset({TECHNIQUES[1].key, "anchor"}))
    disturbed = World(disturbed=frozenset({TECHNIQUES[1].key}))
    short = study(World(), evidence=begin(budget_s=170.0))
    points = tuple(
        replace(p, throughput_tokens_per_s=estimate(100, 99, 101))
        for p in usual().trials[-1].points
    )
    drifted = replace(
        usual(), trials=(*usual().trials[:-1], replace(usual().trials[-1], points=points))
    )
    said = [
        " | ".join(advised(e).warnings) for e in (study(failed), study(disturbed), short, drifted)
    ]

    assert "failed: out_of_memory" in said[0]
    assert "started once: noise between starts is assumed" in said[0]
    assert "disturbed by neighbours" in said[1]
    assert "not measured: N-gram speculative decoding" in said[2]
    assert "more than repeats explain" in said[3]


def test_a_disturbed_study_recommends_no_change_and_is_not_conclusive() -> None:
    """The baseline stays first, with figures that say what they are."""
    keys = frozenset({"baseline", "anchor", *(t.key for t in TECHNIQUES)})
    found = advised(study(World(disturbed=keys)))

    assert not found.conclusive
    assert [item.config for item in found.ranked] == [found.baseline]
    assert "not usable for comparison" in found.best.throughput_tokens_per_s.basis


def test_an_unmeasured_study_recommends_the_baseline_by_the_roofline() -> None:
    """Predicted and called so; without lengths there is nothing to say."""
    found = advised(begin())

    assert found.best.throughput_tokens_per_s.source is Source.ROOFLINE
    assert (found.requests_measured, found.mean_prompt_tokens) == (0, None)
    assert found.engine.start_s is None
    assert found.memory.device_bytes == DEVICE.memory_bytes
    assert not found.conclusive
    assert unchanged(begin(traffic=summary(lengths=False))) == ()
    with pytest.raises(Unavailable):
        advised(begin(traffic=summary(lengths=False)))


def test_forecasts_need_no_engine() -> None:
    """One per technique and load, above 1 where the technique should help."""
    found = forecasts(begin(), TECHNIQUES)
    by_load = {(item.technique, item.concurrency): item.predicted for item in found}
    batching = by_load[TECHNIQUES[0].key, 16]

    assert len(found) == len(TECHNIQUES) + sum(1 in item.concurrencies for item in TECHNIQUES)
    assert batching is not None
    assert batching.low > 1
    assert batching.source is Source.ROOFLINE


def test_a_forecast_that_nobody_can_make_has_a_reason() -> None:
    """No text, no lengths, no draft replay of that length, no rate for the dtype."""
    rates = {"bfloat16": DEVICE.matrix_rate_flops_per_s["bfloat16"]}
    narrow = replace(begin(), device=replace(DEVICE, matrix_rate_flops_per_s=rates))
    lengths = begin(traffic=summary(with_text=False))
    found = [
        forecast(lengths, TECHNIQUES[2], 1),
        forecast(begin(traffic=summary(lengths=False)), TECHNIQUES[0], 1),
        forecast(lengths, TECHNIQUES[1], 1),
        forecast(narrow, TECHNIQUES[3], 1),
    ]
    reasons = [item.reason or "" for item in found]

    assert all(item.predicted is None for item in found)
    assert "only lengths" in reasons[0]
    assert "how long requests are" in reasons[1]
    assert "cached_share" in reasons[2]
    assert "float32" in reasons[3]


def test_the_baselines_ladder_gives_saturation_roofline_and_cache() -> None:
    """Pictures of what was measured, beside what the cache would hold either way."""
    found = advised(usual())

    assert found.saturation is not None
    assert [rung.concurrency for rung in found.saturation.rungs] == [1, 2, 4, 8, 16, 32]
    assert found.saturation.concurrency.low <= 18 <= found.saturation.concurrency.high + 8
    assert [point.concurrency for point in found.roofline] == [1, 1, 2, 4, 8, 16, 32]
    assert found.roofline[0].achieved_flops_per_s is not None
    assert found.paging is not None
    assert found.paging.reserved_tokens == 2048
    assert found.paging.paged_share > 3 * found.paging.contiguous_share
    assert found.memory.kv_free_tokens_at_peak == 75_000


def test_what_cannot_be_pictured_is_left_out() -> None:
    """No lengths, no rate for the dtype, no ladder."""
    rates = {"int8": DEVICE.matrix_rate_flops_per_s["int8"]}
    blind = advised(replace(usual(), traffic=summary(lengths=False)))
    unrated = advised(replace(usual(), device=replace(DEVICE, matrix_rate_flops_per_s=rates)))
    long = replace(summary(), total_tokens=quantiles([100, 5000]))

    assert (blind.paging, blind.roofline) == (None, ())
    assert unrated.roofline == ()
    assert unrated.saturation is not None
    assert advised(begin()).saturation is None
    assert advised(begin()).roofline == ()
    assert advised(replace(usual(), traffic=long)).paging is None


def test_every_prediction_stands_beside_its_measurement() -> None:
    """Each configuration at each load that was measured, once."""
    found = advised(usual()).predictions
    loads = [(item.title, item.concurrency) for item in found]

    assert len(loads) == len(set(loads))
    assert [load for title, load in loads if title == "Baseline"] == [1, 2, 4, 8, 16, 32]
    assert {item.predicted.source for item in found} == {Source.ROOFLINE}
    assert {item.measured.source for item in found} == {Source.MEASURED}
    assert sum(item.concurrency == 16 for item in found) == 6


def test_notes_on_the_users_own_command_are_kept() -> None:
    """What of it is not kept, and why."""
    options = StudyOptions(baseline_notes=("--port: the agent chooses it",))

    assert advised(replace(usual(), options=options)).baseline_notes == options.baseline_notes
