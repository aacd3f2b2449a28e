"""Laws of verdicts and ranking, on synthetic candidates and on one planted study."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.goal import Goal
from advisor.measurement.records import LoadRole
from advisor.recommender.confirmation import CONFIRMATION, confirmation
from advisor.recommender.evidence import StudyEvidence
from advisor.recommender.ladder import key_of
from advisor.recommender.planner import plan_preview
from advisor.recommender.ranking import Candidate, ordering, ranked
from advisor.recommender.recommendation import VerdictKind
from advisor.recommender.screening import effect_of
from advisor.recommender.space import missing_points
from advisor.recommender.verdict import kind_of, verdicts
from advisor.serving import LeverValue, ServingConfig
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, begin, estimate, study

LEVERS: tuple[tuple[str, LeverValue], ...] = (
    ("max_num_seqs", 8),
    ("block_size", 16),
    ("dtype", "float32"),
)
limits = st.floats(1e-3, 1e2)
candidates = st.builds(
    lambda score, overrides, excess, number: Candidate(
        config=ServingConfig().changed(
            {**dict(LEVERS[:overrides]), "max_num_batched_tokens": number}
        ),
        title="",
        score=score,
        points=1,
        throughput=estimate(score, score, score),
        gain=estimate(1, 1, 1),
        ttft_p95_s=None,
        tpot_p95_s=None,
        excess=excess,
    ),
    st.floats(1, 100),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.0, 0.2, float("inf")]),
    st.integers(1, 10_000),
)
ratios = st.tuples(st.floats(0.2, 5), st.floats(0, 2), st.floats(0, 2)).map(
    lambda drawn: estimate(drawn[0], drawn[0] / (1 + drawn[1]), drawn[0] * (1 + drawn[2]))
)


@cache
def measured() -> StudyEvidence:
    """One study of the usual world."""
    return study(World())


def distinct(found: list[Candidate]) -> list[Candidate]:
    """One candidate per configuration."""
    return list({item.config.hash: item for item in found}.values())


@given(st.lists(candidates, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(found: list[Candidate], shuffler: object) -> None:
    """The ranking is a function of the set."""
    unique = distinct(found)
    shuffled = list(unique)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]

    assert ordering(shuffled, lambda *counts: 0.02 * len(counts)) == ordering(
        unique, lambda *counts: 0.02 * len(counts)
    )


@given(st.lists(candidates, min_size=1, max_size=6), candidates)
def test_another_candidate_never_worsens_the_best_beyond_the_noise(
    found: list[Candidate], other: Candidate
) -> None:
    """It may be simpler and tied, never told apart as worse."""
    unique = distinct(found)
    best = ordering(unique, lambda *counts: 0.02 * len(counts))[0]
    after = ordering(distinct([other, *unique]), lambda *counts: 0.02 * len(counts))[0]

    assert after.excess <= best.excess or after.config == other.config
    if best.feasible:
        assert after.score >= best.score * 0.96


@given(st.lists(candidates, min_size=1, max_size=6))
def test_what_breaks_a_limit_is_never_above_what_keeps_all(found: list[Candidate]) -> None:
    """The goal's limits come before its objective, and every candidate has a place."""
    unique = distinct(found)
    order = ordering(unique, lambda *counts: 0.02 * len(counts))
    excess = [item.excess for item in order]

    assert len(order) == len(unique)
    assert excess == sorted(excess)


@settings(max_examples=20)  # each ranks a whole study twice
@given(limits, limits, st.floats(0.1, 1))
def test_a_tighter_limit_never_makes_more_feasible(
    ttft_s: float, tpot_s: float, factor: float
) -> None:
    """Feasible sets shrink."""
    loose = Goal(ttft_p95_s=ttft_s, tpot_p95_s=tpot_s)
    tight = Goal(ttft_p95_s=ttft_s * factor, tpot_p95_s=tpot_s * factor)
    kept = [
        {
            item.config_hash
            for item in ranked(replace(measured(), goal=goal), TECHNIQUES)
            if item.feasible
        }
        for goal in (loose, tight)
    ]

    assert kept[1] <= kept[0]


@given(ratios)
def test_having_and_lacking_a_technique_are_inverse(ratio: object) -> None:
    """An effect above 1 means that the technique helps, however it was toggled."""
    found = estimate(ratio.value, ratio.low, ratio.high)  # type: ignore[attr-defined]
    for technique in TECHNIQUES:
        gain = effect_of(measured(), technique, found)
        inverse = technique.present(measured().baseline)

        assert gain.value == pytest.approx(1 / found.value if inverse else found.value)
        assert gain.low <= gain.value <= gain.high


@given(ratios, st.floats(1, 2))
def test_a_wider_interval_never_turns_doubt_into_a_claim(ratio: object, factor: float) -> None:
    """From unknown to helps or hurts only by narrowing."""
    found = estimate(ratio.value, ratio.low, ratio.high)  # type: ignore[attr-defined]
    wider = estimate(found.value, found.low / factor, found.high * factor)

    assert kind_of(wider) in {kind_of(found), VerdictKind.UNKNOWN}


WORLDS = (
    World(),
    World(dtype_factor={"float32": 0.7}),
    World(shared=0.04),
    World(start_s=90.0),
)


@cache
def _study(world: int, seed: int, budget_s: float) -> StudyEvidence:
    """Whole studies under any budget, of several worlds."""
    return study(WORLDS[world], seed=seed, evidence=begin(budget_s=budget_s))


studies = st.builds(
    _study,
    st.integers(0, len(WORLDS) - 1),
    st.integers(0, 1),
    st.sampled_from([60.0, 300.0, 600.0, 3600.0]),
)


@settings(max_examples=6, deadline=None)  # each runs a whole study
@given(studies)
def test_no_load_point_is_planned_or_measured_twice(evidence: StudyEvidence) -> None:
    """Keys of trials, and of points within a trial, are unique."""
    names = [trial.plan.key for trial in evidence.trials]

    assert len(names) == len(set(names))
    for trial in evidence.trials:
        for points in (trial.plan.points, trial.points):
            keys = [key_of(point) for point in points]
            assert len(keys) == len(set(keys))
        assert missing_points(trial) == ()


@settings(max_examples=6, deadline=None)  # each runs a whole study
@given(studies)
def test_every_trial_fitted_into_what_was_left(evidence: StudyEvidence) -> None:
    """The baseline is always measured; all else is begun only if it is expected to end in time."""
    left_s = evidence.budget_s
    for place, trial in enumerate(evidence.trials):
        if place:
            assert trial.plan.expected_s <= left_s
        start_s = trial.facts.start_s if trial.facts is not None else 0.0
        left_s -= (start_s or 0.0) + sum(point.duration_s for point in trial.points)


@settings(max_examples=6, deadline=None)  # each previews a study at every trial
@given(studies)
def test_the_preview_fits_into_the_budget(evidence: StudyEvidence) -> None:
    """At every moment of a study."""
    for done in range(1, len(evidence.trials) + 1):
        now = replace(evidence, trials=evidence.trials[:done], spent_s=evidence.budget_s / 3)
        coming = plan_preview(now)

        assert sum(plan.expected_s for plan in coming) <= now.budget_s - now.spent_s


@settings(max_examples=6, deadline=None)  # each runs a whole study
@given(studies, st.floats(0.01, 100))
def test_held_out_points_never_enter_a_verdict_or_the_ranking(
    evidence: StudyEvidence, factor: float
) -> None:
    """Whatever they measured."""
    moved = replace(
        evidence,
        trials=tuple(
            replace(
                trial,
                points=tuple(
                    replace(point, throughput_tokens_per_s=estimate(factor, factor, factor))
                    if point.role is LoadRole.HELD_OUT
                    else point
                    for point in trial.points
                ),
            )
            for trial in evidence.trials
        ),
    )

    assert verdicts(moved, TECHNIQUES) == verdicts(evidence, TECHNIQUES)
    assert ranked(moved, TECHNIQUES) == ranked(evidence, TECHNIQUES)


@settings(max_examples=6, deadline=None)  # each runs a whole study
@given(studies)
def test_a_confirmation_is_a_b_b_a_or_was_cut_short(evidence: StudyEvidence) -> None:
    """Baseline, finalist twice, baseline, on equally many requests; in that order or not at all."""
    found = confirmation(evidence, TECHNIQUES)
    keys = tuple(trial.plan.key for trial in evidence.trials if trial.plan.key in CONFIRMATION)

    assert keys == CONFIRMATION[: len(keys)]
    if found is not None:
        assert found.order == ("A", "B", "B", "A")[: len(found.order)]
        assert (found.gain is None) is (found.confirmed is None)
