"""What changes of outputs do to the answers, and what that does to the ranking."""

from dataclasses import replace
from functools import cache

from advisor.goal import Goal
from advisor.recommender.evidence import StudyEvidence, StudyOptions
from advisor.recommender.quality import quality_verdicts, spoiled
from advisor.recommender.ranking import ranked
from advisor.recommender.recommend import recommend
from advisor.recommender.recommendation import QualityVerdict, VerdictKind
from advisor.recommender.space import improvements
from advisor.recommender.verdict import verdicts
from advisor.techniques import TECHNIQUES, Technique
from tests.fakes.planted_world import DEVICE_INT8, World, begin, study

[EIGHT_BIT] = [item for item in TECHNIQUES if item.cpu_features]
BRIEF = StudyOptions(ladder_top=1, confirm=False)


@cache
def measured(flips: float) -> StudyEvidence:
    """A study of 8-bit weights that change so many tokens."""
    start = replace(begin(device=DEVICE_INT8, options=BRIEF), techniques=(EIGHT_BIT.key,))
    return study(World(flips=flips), evidence=start)


def judged(evidence: StudyEvidence, technique: Technique = EIGHT_BIT) -> QualityVerdict:
    """The verdict on one technique."""
    [found] = quality_verdicts(evidence, (technique,))
    return found


def unanswered(evidence: StudyEvidence, *keys: str) -> StudyEvidence:
    """The evidence without the answers of some trials."""
    trials = tuple(
        replace(trial, quality=None) if trial.plan.key in keys else trial
        for trial in evidence.trials
    )
    return replace(evidence, trials=trials)


def test_agreement_is_given_beside_the_baseline_against_itself() -> None:
    """Greedy, top-1 and identical, with how many prompts."""
    found = judged(measured(0.01))

    assert found.figures is not None
    assert found.tolerance is not None
    assert found.figures.requests == 16
    assert found.figures.top1_agreement is not None
    assert 0.97 < found.figures.top1_agreement.value < 1.0
    assert found.tolerance.identical.value == 1.0
    assert found.within is True
    assert "at or above the floor of 90.0 %" in found.reason


def test_an_agreement_like_the_baselines_own_is_not_told_apart() -> None:
    """Few flips of few tokens."""
    alike, apart = judged(measured(0.0)), judged(measured(0.4))

    assert alike.reason.endswith("the two cannot be told apart")
    assert not apart.reason.endswith("the two cannot be told apart")


def test_below_the_floor_a_configuration_is_not_feasible() -> None:
    """However fast it is; both the ranking and the verdict say why."""
    evidence = measured(0.4)
    last = ranked(evidence, (EIGHT_BIT,))[-1]
    [verdict] = verdicts(evidence, (EIGHT_BIT,))

    assert judged(evidence).within is False
    assert last.config == EIGHT_BIT.variant(evidence.baseline)
    assert not last.feasible
    assert "below the floor of 90.0 %" in (last.why_not or "")
    assert verdict.kind is VerdictKind.HELPS
    assert "below the floor" in verdict.sentence
    assert improvements(evidence, (EIGHT_BIT,)) == ()
    assert recommend(evidence, study_id="s", machine="m").best.config == evidence.baseline


def test_above_the_floor_it_may_win() -> None:
    """The same speed with better answers."""
    best = ranked(measured(0.01), (EIGHT_BIT,))[0]

    assert best.feasible
    assert best.config == EIGHT_BIT.variant(begin().baseline)


def test_without_a_floor_nothing_is_refused() -> None:
    """The figures are there all the same."""
    free = replace(measured(0.4), goal=Goal(min_top1_agreement=None))

    assert judged(free).figures is not None
    assert judged(free).within is None
    assert "floor" not in judged(free).reason
    assert spoiled(free, EIGHT_BIT.variant(free.baseline), (EIGHT_BIT,)) is None


def test_answers_that_are_not_there_have_a_reason_and_refuse_nothing() -> None:
    """Of the baseline, of the change, or to other prompts."""
    evidence = measured(0.4)
    other = tuple(
        replace(
            trial,
            quality=replace(
                trial.quality,
                passes=tuple(
                    replace(
                        item,
                        answers=tuple(
                            replace(answer, request_id=f"other {answer.request_id}")
                            for answer in item.answers
                        ),
                    )
                    for item in trial.quality.passes
                ),
            ),
        )
        if trial.plan.key == EIGHT_BIT.key and trial.quality is not None
        else trial
        for trial in evidence.trials
    )
    reasons = {
        "the baseline's answers": unanswered(evidence, "baseline"),
        "its answers": unanswered(evidence, EIGHT_BIT.key),
        "no request in common": replace(evidence, trials=other),
    }

    for reason, found in reasons.items():
        assert judged(found).figures is None
        assert judged(found).within is None
        assert reason in judged(found).reason
        assert ranked(found, (EIGHT_BIT,))[0].feasible


def test_a_single_pass_of_the_baseline_gives_no_tolerance() -> None:
    """The figures stand without it."""
    evidence = measured(0.01)
    first = evidence.trials[0]
    assert first.quality is not None
    once = replace(first, quality=replace(first.quality, passes=first.quality.passes[:1]))
    found = judged(replace(evidence, trials=(once, *evidence.trials[1:])))

    assert found.figures is not None
    assert found.tolerance is None
    assert "against itself" not in found.reason


def test_an_engine_that_does_not_say_its_likely_tokens_is_not_refused() -> None:
    """Greedy agreement alone sets no floor."""
    evidence = measured(0.4)
    trials = tuple(
        replace(
            trial,
            quality=replace(
                trial.quality,
                passes=tuple(
                    replace(item, answers=tuple(replace(a, forced=None) for a in item.answers))
                    for item in trial.quality.passes
                ),
            ),
        )
        if trial.quality is not None
        else trial
        for trial in evidence.trials
    )
    found = judged(replace(evidence, trials=trials))

    assert found.within is None
    assert "did not say" in found.reason


def test_only_techniques_that_change_outputs_are_asked() -> None:
    """And only where they can be tried: not on a device without their units."""
    asked = [item.technique for item in quality_verdicts(begin(), TECHNIQUES)]

    assert EIGHT_BIT.key not in asked
    assert asked == [t.key for t in TECHNIQUES if t.changes_outputs and not t.cpu_features]
