"""From measurements to a kind and a sentence, and the reason where there is no measurement."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.goal import Goal, Objective
from advisor.recommender.arms import class_arms, objective_arms, pace_of, throughput_arms
from advisor.recommender.evidence import StudyEvidence, TrialEvidence
from advisor.recommender.explain import sentence
from advisor.recommender.recommendation import Effect, Verdict, VerdictKind
from advisor.recommender.screening import trial_of
from advisor.recommender.verdict import ALL_REQUESTS, kind_of, verdicts
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, begin, estimate, study, summary

GOAL = 16


@cache
def usual() -> StudyEvidence:
    """A whole study of the usual world."""
    return study(World())


def judged(evidence: StudyEvidence, index: int) -> Verdict:
    """The verdict on one technique of the table."""
    return verdicts(evidence, TECHNIQUES)[index]


def edited(evidence: StudyEvidence, key: str, **changes: object) -> StudyEvidence:
    """The evidence with fields of every point of one trial changed."""
    trials = tuple(
        replace(
            trial,
            points=tuple(replace(point, **changes) for point in trial.points),  # type: ignore[arg-type]
        )
        if trial.plan.key == key
        else trial
        for trial in evidence.trials
    )
    return replace(evidence, trials=trials)


def without(evidence: StudyEvidence, *keys: str) -> StudyEvidence:
    """The evidence without some trials."""
    trials = tuple(trial for trial in evidence.trials if trial.plan.key not in keys)
    return replace(evidence, trials=trials)


@pytest.mark.parametrize(
    "low,value,high,kind",
    [
        (1.02, 1.1, 1.2, "helps"),
        (1.01, 1.1, 1.2, "unknown"),
        (0.8, 0.9, 0.98, "hurts"),
        (0.8, 0.9, 0.99, "unknown"),
        (0.96, 1.0, 1.04, "neutral"),
        (0.94, 1.0, 1.04, "unknown"),
        (0.96, 1.0, 1.06, "unknown"),
    ],
)
def test_the_interval_decides_the_kind(low: float, value: float, high: float, kind: str) -> None:
    """Clear of 1 by the margin, inside the band, or open."""
    assert kind_of(estimate(value, low, high)).value == kind


def test_a_verdict_states_size_interval_load_prediction_and_reason() -> None:
    """One sentence."""
    verdict = judged(usual(), 0)
    said = verdict.sentence

    assert verdict.kind is VerdictKind.HELPS
    assert said.startswith(f"{TECHNIQUES[0].title} helps: throughput +")
    assert f"at {GOAL} requests in flight, predicted +" in said
    assert f"because {TECHNIQUES[0].why_helps}" in said
    assert said.endswith(".")


def test_another_load_stands_in_the_same_sentence() -> None:
    """What helps alone and hurts in a batch says both."""
    verdict = judged(usual(), 2)

    assert verdict.kind is VerdictKind.HURTS
    assert (
        f"because {TECHNIQUES[2].why_not}; at 1 request in flight it helps: +" in verdict.sentence
    )
    assert [effect.kind.value for effect in verdict.effects] == ["hurts", "helps"]


def test_classes_are_judged_apart() -> None:
    """The class whose drafts are accepted gains, the other does not."""
    alone = judged(usual(), 2).effects[1]

    assert alone.by_class["copy"].low > 1.3
    assert alone.by_class["prose"].high < 1.15


def test_acceptance_is_kept_with_the_verdict() -> None:
    """By position, falling."""
    acceptance = judged(usual(), 2).acceptance[ALL_REQUESTS]

    assert acceptance.per_position is not None
    values = [share.value for share in acceptance.per_position]
    assert values == sorted(values, reverse=True)
    assert judged(usual(), 0).acceptance == {}


def test_a_technique_that_never_engaged_says_so() -> None:
    """Case S-18: nothing was drafted."""
    evidence = study(World(acceptance={"copy": 0.0, "prose": 0.0}))
    trial = trial_of(evidence, TECHNIQUES[2])
    assert trial is not None
    acceptance = trial.points[0].acceptance
    assert acceptance is not None
    idle = replace(acceptance, drafts=0, per_position=None, reason="nothing was drafted")
    verdict = judged(edited(evidence, trial.plan.key, acceptance=idle), 2)

    assert "because it never engaged: nothing was drafted" in verdict.sentence


def test_a_gain_that_turns_into_a_loss_says_between_which_loads() -> None:
    """Case E-01: between the measured loads, with the one to measure next; never beyond them."""
    effects = [
        Effect(
            concurrency=load,
            kind=kind_of(estimate(gain, gain - 0.02, gain + 0.02)),
            predicted=None,
            measured=estimate(gain, gain - 0.02, gain + 0.02),
        )
        for load, gain in ((32, 0.92), (1, 1.83), (8, 1.3))
    ]
    told = sentence(TECHNIQUES[2], effects, objective=Objective.THROUGHPUT)
    rising = sentence(TECHNIQUES[2], effects[1:], objective=Objective.THROUGHPUT)

    assert "it gains below a load between 8 and 32 in flight; 16 is what to measure next" in told
    assert "it gains" not in rising


def resolved(evidence: StudyEvidence, dtype: str) -> StudyEvidence:
    """Every engine of the study says that it ran in this dtype."""
    trials = (
        replace(trial, facts=replace(trial.facts, dtype=dtype)) if trial.facts else trial
        for trial in evidence.trials
    )
    return replace(evidence, trials=tuple(trials))


def test_a_setting_that_changed_nothing_did_not_take_effect() -> None:
    """The same resolved dtype and the same speed: no verdict on the technique, and that is said."""
    index = next(at for at, item in enumerate(TECHNIQUES) if item.shows_in == ("dtype",))
    evidence = study(World())
    trial = trial_of(evidence, TECHNIQUES[index])
    baseline = next(t for t in evidence.trials if t.plan.config == evidence.baseline)
    assert trial is not None
    same = replace(trial, points=baseline.points)
    trials = tuple(same if item is trial else item for item in evidence.trials)
    idle = judged(resolved(replace(evidence, trials=trials), "torch.float32"), index)
    faster = judged(resolved(evidence, "torch.float32"), index)

    assert idle.kind is VerdictKind.NOT_APPLICABLE
    assert "because it did not take effect: with it and without the engine ran" in idle.sentence
    assert faster.kind is judged(evidence, index).kind is not VerdictKind.NOT_APPLICABLE


def test_a_technique_without_text_is_unknown_for_want_of_text() -> None:
    """Null, never zero: no forecast, no measurement, the reason."""
    verdict = judged(study(World(), evidence=begin(traffic=summary(with_text=False))), 2)

    assert verdict.kind is VerdictKind.UNKNOWN
    assert all(effect.predicted is effect.measured is None for effect in verdict.effects)
    assert "is not judged at 16 requests in flight because the upload holds" in verdict.sentence


def test_a_technique_below_its_least_load_does_not_apply() -> None:
    """It has nothing to do there, and says so."""
    verdict = judged(begin(goal=Goal(concurrency=1)), 0)

    assert verdict.kind is VerdictKind.NOT_APPLICABLE
    assert "does not apply" in verdict.sentence


def test_a_missing_measurement_has_a_reason() -> None:
    """Not begun, failed, skipped, unusable, not measured at this load: all are told apart."""
    key = TECHNIQUES[1].key
    failed = TrialEvidence(
        plan=usual().trials[2].plan, state=TrialState.FAILED, failure_kind="out_of_memory"
    )
    skipped = replace(failed, state=TrialState.SKIPPED, failure_kind=None)
    rest = without(usual(), key)
    cases = {
        "no trial of it was run": rest,
        "its trial failed (out_of_memory)": replace(rest, trials=(*rest.trials, failed)),
        "its trial skipped": replace(rest, trials=(*rest.trials, skipped)),
        "its load points are unusable: disturbed": edited(
            usual(), key, usable=False, flaws=("disturbed",)
        ),
        "its load point at 16 in flight was not measured": edited(usual(), key, concurrency=7),
        "the baseline's load point at 16 in flight was not": without(usual(), "baseline", "anchor"),
        "no figure that can be compared": edited(
            usual(), key, throughput_tokens_per_s=estimate(0, 0, 0)
        ),
    }

    for reason, evidence in cases.items():
        verdict = judged(evidence, 1)
        assert verdict.kind is VerdictKind.UNKNOWN
        assert reason in (verdict.effects[0].reason or "")
        assert reason in verdict.sentence


def test_an_unusable_baseline_leaves_everything_unknown() -> None:
    """A disturbed side is no side."""
    disturbed = study(World(disturbed=frozenset({"baseline", "anchor"})))

    for technique, verdict in zip(TECHNIQUES, verdicts(disturbed, TECHNIQUES), strict=True):
        if technique.cpu_features:
            continue
        assert verdict.kind is VerdictKind.UNKNOWN
        assert "load points are unusable: disturbed" in verdict.sentence


def test_a_usable_repeat_stands_in_for_a_disturbed_one() -> None:
    """The anchor alone is a baseline, with a wider interval."""
    partly = study(World(disturbed=frozenset({"baseline"})))
    widths = [
        effect.measured.high / effect.measured.low
        for effect in (judged(partly, 0).effects[0], judged(usual(), 0).effects[0])
        if effect.measured is not None
    ]

    assert judged(partly, 0).kind is VerdictKind.HELPS
    assert widths[0] > widths[1]


def test_points_on_other_requests_are_not_compared() -> None:
    """The ratio would compare the requests."""
    other = edited(usual(), TECHNIQUES[1].key, subset_digest="other")

    assert judged(other, 1).kind is VerdictKind.UNKNOWN


def test_drift_between_the_starts_widens_every_interval() -> None:
    """A machine that slowed down by a third cannot judge a few per cent."""
    slowed = edited(usual(), "anchor", throughput_tokens_per_s=estimate(220, 219, 221))
    arms = throughput_arms(slowed)
    before, after = judged(usual(), 1).effects[0].measured, judged(slowed, 1).effects[0].measured

    assert arms.drift(GOAL) is not None
    assert before is not None
    assert after is not None
    assert after.high / after.low > before.high / before.low
    assert throughput_arms(without(usual(), "anchor")).drift(GOAL) is None


def test_latency_is_judged_by_waiting() -> None:
    """The same study under the other objective."""
    patient = replace(usual(), goal=Goal(objective=Objective.LATENCY, concurrency=GOAL))
    verdict = judged(patient, 1)

    assert "speed of a request +" in verdict.sentence
    assert verdict.kind is VerdictKind.HELPS
    assert objective_arms(patient).figure(usual().baseline.hash, GOAL) is not None


def test_an_open_interval_asks_for_repeats() -> None:
    """Unknown, with its numbers and a remedy."""
    small = study(World(shared=0.04), seed=5)
    verdict = judged(small, 1)

    assert verdict.kind is VerdictKind.UNKNOWN
    assert "is not decided: throughput" in verdict.sentence
    assert "more repeats would narrow it" in verdict.sentence


def test_a_small_effect_within_narrow_noise_is_neutral() -> None:
    """Many quiet repeats of nothing."""
    quiet = study(World(shared=0.0, start_sd=0.0, point_sd=0.0))
    more = edited(quiet, "baseline", repeat=1)
    repeated = replace(
        more,
        trials=tuple(
            replace(
                trial,
                points=tuple(replace(p, repeat=n) for n in range(6) for p in trial.points),
            )
            for trial in more.trials
        ),
    )
    verdict = judged(repeated, 1)

    assert verdict.kind is VerdictKind.NEUTRAL
    assert "makes no difference: throughput +0.0 %" in verdict.sentence


def test_a_class_without_a_pace_is_left_out() -> None:
    """One token per answer has no TPOT."""
    terse = edited(usual(), TECHNIQUES[1].key, classes=())

    assert judged(terse, 1).effects[0].by_class == {}
    assert pace_of("nobody")(usual().trials[0].points[0]) is None
    assert set(class_arms(usual())) == {"copy", "prose"}
