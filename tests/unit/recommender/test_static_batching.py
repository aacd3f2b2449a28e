"""A closed loop against gangs of the same requests, on one configuration."""

from dataclasses import replace
from functools import cache

from advisor.goal import Goal, Objective
from advisor.measurement.records import LoadRole
from advisor.recommender.evidence import StudyEvidence, StudyOptions
from advisor.recommender.ranking import ranked
from advisor.recommender.recommendation import Verdict, VerdictKind
from advisor.recommender.space import technique_trial
from advisor.recommender.verdict import verdicts
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, begin, study

[SUBMISSION] = [item for item in TECHNIQUES if item.static_slots is not None]
BRIEF = StudyOptions(ladder_top=1, confirm=False)


@cache
def measured(longest: int = 120) -> StudyEvidence:
    """A study of the submission alone, with answers of 8 and of so many tokens."""
    start = replace(begin(options=BRIEF), techniques=(SUBMISSION.key,))
    return study(World(longest_answer=longest), evidence=start)


def judged(evidence: StudyEvidence) -> Verdict:
    """The verdict on it."""
    return verdicts(evidence, (SUBMISSION,))[0]


def changed(evidence: StudyEvidence, role: LoadRole, **changes: object) -> StudyEvidence:
    """The evidence with fields of every point of a role changed."""
    trials = tuple(
        replace(
            trial,
            points=tuple(
                replace(point, **changes) if point.role is role else point  # type: ignore[arg-type]
                for point in trial.points
            ),
        )
        for trial in evidence.trials
    )
    return replace(evidence, trials=trials)


def test_gangs_wait_for_their_longest_and_lose_half() -> None:
    """At least 1.5 times as fast where the longest is three times the mean and more."""
    [control, static] = [
        point for point in measured().trials[0].points if point.role is not LoadRole.PROBE
    ]
    effect = judged(measured()).effects[0]

    assert control.subset_digest == static.subset_digest
    assert control.longest_output_tokens is not None
    assert control.longest_output_tokens >= 3 * control.output_tokens / control.succeeded
    assert static.usable
    assert effect.measured is not None
    assert effect.measured.low > 1.5
    assert effect.concurrency == SUBMISSION.static_slots


def test_measured_stands_beside_the_bound_of_the_upload() -> None:
    """A lower bound of the waste, and it says so."""
    verdict = judged(measured())

    assert verdict.kind is VerdictKind.HELPS
    assert [effect.concurrency for effect in verdict.effects] == [4]
    assert "at 4 requests in flight, predicted +" in verdict.sentence
    assert "lower bound of what static batching wastes" in verdict.sentence
    assert verdict.effects[0].by_class == {}


def test_equal_answers_leave_nothing_to_gain() -> None:
    """The same machine, other requests."""
    verdict = judged(measured(8))

    assert verdict.kind in {VerdictKind.NEUTRAL, VerdictKind.UNKNOWN}
    assert verdict.effects[0].measured is not None
    assert abs(verdict.effects[0].measured.value - 1) < 0.05


def test_it_has_no_trial_and_no_place_in_the_ranking() -> None:
    """It sets no lever: the baseline's own trial measures both."""
    assert technique_trial(begin(), SUBMISSION) is None
    assert [trial.plan.key for trial in measured().trials] == ["baseline"]
    assert [item.config for item in ranked(measured(), (SUBMISSION,))] == [begin().baseline]


def test_its_points_are_no_probes() -> None:
    """Neither the other verdicts nor planned times see them."""
    usual = study(World(), evidence=begin(options=BRIEF))
    other = changed(changed(usual, LoadRole.STATIC, output_tokens=1), LoadRole.CONTROL, succeeded=1)
    rest = tuple(item for item in TECHNIQUES if item is not SUBMISSION)

    assert verdicts(other, rest) == verdicts(usual, rest)


def test_throughput_is_compared_whatever_the_objective() -> None:
    """A gang's requests do not wait one by one, so their latency says nothing of it."""
    patient = replace(measured(), goal=Goal(objective=Objective.LATENCY))

    assert judged(patient).effects[0].measured == judged(measured()).effects[0].measured
    assert "throughput +" in judged(patient).sentence


def test_a_missing_side_has_a_reason() -> None:
    """Not measured, unusable, or other requests on the two sides."""
    disturbed = changed(measured(), LoadRole.STATIC, usable=False, flaws=("disturbed",))
    reasons = {
        "at 4 in flight was not measured": changed(measured(), LoadRole.STATIC, concurrency=5),
        "unusable: disturbed": disturbed,
        "no figure that can be compared": changed(
            measured(), LoadRole.STATIC, subset_digest="other"
        ),
        "no trial of it was run": replace(measured(), trials=()),
    }

    for reason, evidence in reasons.items():
        verdict = judged(evidence)
        assert verdict.kind is VerdictKind.UNKNOWN
        assert reason in verdict.sentence
