"""Finalist against baseline on held-out requests, and second starts of what is undecided."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.measurement.records import LoadRole
from advisor.recommender.confirmation import (
    CONFIRMATION,
    FINALIST,
    FIRST,
    again_trials,
    agrees,
    confirmation,
    finalist,
)
from advisor.recommender.evidence import StudyEvidence, StudyOptions, TrialEvidence
from advisor.recommender.planner import Finished, next_step, plan_preview
from advisor.recommender.ranking import ranked
from advisor.recommender.recommend import recommend
from advisor.recommender.recommendation import Confirmation, VerdictKind
from advisor.recommender.verdict import verdicts
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import DEVICE_INT8, World, begin, estimate, study

FASTER = World(dtype_factor={"float32": 0.7})
GOAL = 16
RIVAL, RIVAL_TITLE = "prefix_caching", "Prefix caching off"


@cache
def confirmed() -> StudyEvidence:
    """A whole study whose best configuration is not the baseline."""
    return study(FASTER)


def keys(evidence: StudyEvidence) -> list[str]:
    """The trials of a study, in order."""
    return [trial.plan.key for trial in evidence.trials]


def told(evidence: StudyEvidence) -> Confirmation:
    """The confirmation, which must be there."""
    found = confirmation(evidence, TECHNIQUES)
    assert found is not None
    return found


def cut(evidence: StudyEvidence, *names: str) -> StudyEvidence:
    """The evidence without some trials."""
    return replace(evidence, trials=tuple(t for t in evidence.trials if t.plan.key not in names))


def scaled(evidence: StudyEvidence, key: str, factor: float) -> StudyEvidence:
    """The evidence with the throughput of one trial multiplied."""
    trials = tuple(
        replace(
            trial,
            points=tuple(
                replace(
                    point,
                    throughput_tokens_per_s=estimate(
                        *[point.throughput_tokens_per_s.value * factor] * 3
                    ),
                )
                for point in trial.points
            ),
        )
        if trial.plan.key == key
        else trial
        for trial in evidence.trials
    )
    return replace(evidence, trials=trials)


def test_the_study_ends_with_baseline_finalist_twice_and_baseline() -> None:
    """On held-out requests, equally many; the first start measures the usual load too."""
    ends = [trial.plan for trial in confirmed().trials[-3:]]
    points = [(p.role, p.concurrency) for plan in ends for p in plan.points]
    held_out = [p for plan in ends for p in plan.points if p.role is LoadRole.HELD_OUT]

    assert tuple(plan.key for plan in ends) == CONFIRMATION
    assert [plan.config == confirmed().baseline for plan in ends] == [True, False, True]
    assert points[0] == (LoadRole.PROBE, GOAL)
    assert len(held_out) == 4
    assert len({p.requests for p in held_out}) == 1
    assert "anchor" not in keys(confirmed())


def test_where_the_baseline_leads_its_nearest_rival_is_confirmed() -> None:
    """As long as the rival may still be as good: one that is decided to hurt costs no starts."""
    evidence = confirmed()
    (ratio,) = (
        item.gain.value for item in ranked(evidence, TECHNIQUES) if item.title == RIVAL_TITLE
    )
    level = evidence
    for key in {t.plan.key for t in evidence.trials if t.plan.config != evidence.baseline}:
        level = scaled(level, key, 0.01)
    slower = finalist(level, TECHNIQUES)
    rival = finalist(scaled(level, RIVAL, 100 / ratio), TECHNIQUES)

    assert slower is None
    assert rival is not None
    assert rival.rank > 1
    assert rival.gain.low < 1 < rival.gain.high


def test_a_true_gain_is_confirmed_with_its_interval() -> None:
    """The finalist of the ranking, its gain and the order of the points."""
    found = told(confirmed())
    best = recommend(confirmed(), study_id="s", machine="m").best

    assert found.config_hash == best.config_hash
    assert found.order == ("A", "B", "B", "A")
    assert found.requests == 48
    assert found.kind is VerdictKind.HELPS
    assert found.confirmed is True
    assert found.gain is not None
    assert found.gain.low < best.gain.value < found.gain.high
    assert "the study itself saw +" in found.reason


def test_held_out_points_enter_no_verdict() -> None:
    """Whatever they say."""
    other = scaled(confirmed(), FINALIST, 0.1)

    assert verdicts(other, TECHNIQUES) == verdicts(confirmed(), TECHNIQUES)


def test_a_gain_that_held_out_requests_deny_is_told() -> None:
    """In the confirmation and in the warnings."""
    denied = scaled(confirmed(), FINALIST, 0.5)
    found = told(denied)
    said = recommend(denied, study_id="s", machine="m").warnings

    assert found.confirmed is False
    assert found.kind is VerdictKind.HURTS
    assert any("do not confirm the gain" in warning for warning in said)


@pytest.mark.parametrize(
    "gain,study_gain,same",
    [(1.2, 1.3, True), (0.9, 1.3, False), (0.98, 1.03, True), (0.8, 0.7, True), (1.1, 1.0, False)],
)
def test_two_gains_agree_by_sign_or_in_being_small(
    gain: float, study_gain: float, *, same: bool
) -> None:
    """Within the band neither is worth acting on."""
    assert agrees(estimate(gain, gain, gain), estimate(study_gain, study_gain, study_gain)) is same


def test_the_finalist_stays_the_same_once_the_confirmation_has_begun() -> None:
    """What the confirmation measures does not move it."""
    begun = cut(confirmed(), *CONFIRMATION[1:])
    slower = scaled(begun, FIRST, 9.0)
    steps = [next_step(evidence) for evidence in (begun, slower)]

    assert [getattr(step, "key", None) for step in steps] == [FINALIST, FINALIST]
    assert getattr(steps[0], "config", None) == getattr(steps[1], "config", 0)


def test_the_baseline_needs_no_confirmation() -> None:
    """The anchor ends the study, as it does when confirmation is off."""
    best = study(World())
    off = study(FASTER, evidence=begin(options=StudyOptions(confirm=False)))

    assert finalist(best, TECHNIQUES) is None
    assert keys(best)[-1] == "anchor"
    assert keys(off)[-1] == "anchor"
    assert confirmation(best, TECHNIQUES) is confirmation(off, TECHNIQUES) is None


def test_without_room_for_three_starts_the_anchor_is_run_and_it_is_said() -> None:
    """Never a part of it."""
    spent = sum(trial.plan.expected_s for trial in confirmed().trials[-3:])
    before = cut(confirmed(), *CONFIRMATION)
    short = replace(before, budget_s=before.spent_s + 0.6 * spent, spent_s=before.spent_s)
    step = next_step(short)

    assert getattr(step, "key", None) == "anchor"
    assert told(short).confirmed is None
    assert "did not fit into the budget" in told(short).reason


def test_where_nothing_is_held_out_the_anchor_is_run_instead() -> None:
    """The reason of the skipped trial is kept."""
    evidence = study(World(dtype_factor={"float32": 0.7}, held_out=False))
    found = told(evidence)
    said = recommend(evidence, study_id="s", machine="m").warnings

    assert keys(evidence)[-2:] == [FIRST, "anchor"]
    assert found.gain is None
    assert "no request is held out" in found.reason
    assert any("not confirmed" in warning for warning in said)


def test_a_confirmation_that_breaks_off_is_not_gone_on_with() -> None:
    """The finalist failed to start: its second half would have no counterpart."""
    failing = World(dtype_factor={"float32": 0.7}, failing=frozenset({FINALIST}))
    evidence = study(failing)

    assert keys(evidence)[-1] == FINALIST
    assert "out_of_memory" in told(evidence).reason
    assert isinstance(next_step(evidence), Finished)


def test_an_undecided_effect_gets_another_start_if_the_confirmation_still_fits() -> None:
    """Twice at the goal's load; where nothing is left, none."""
    vague = World(shared=0.04)
    whole = study(vague, seed=5)
    [again] = [trial.plan for trial in whole.trials if trial.plan.key.startswith("again-")]
    before = cut(whole, again.key, "anchor", *CONFIRMATION)
    tight = replace(before, budget_s=before.spent_s + 1.5 * again.expected_s)

    assert [(p.concurrency, p.repeat) for p in again.points] == [(GOAL, 1), (GOAL, 2)]
    assert again.technique == TECHNIQUES[1].key
    assert [plan.key for plan in again_trials(before, TECHNIQUES)] == [again.key]
    assert again_trials(whole, TECHNIQUES) == ()
    assert getattr(next_step(tight), "key", None) != again.key


def test_the_widest_interval_is_narrowed_first() -> None:
    """Of two undecided effects."""
    vague = World(shared=0.04, dtype_factor={"float32": 1.03}, start_sd=0.0, point_sd=0.0)
    whole = study(vague, evidence=begin(options=StudyOptions(ladder_top=1, confirm=False)))
    before = cut(whole, *(key for key in keys(whole) if key.startswith("again-")))
    plans = again_trials(before, TECHNIQUES)
    widths = []
    for plan in plans:
        [technique] = [t for t in TECHNIQUES if t.key == plan.technique]
        measured = verdicts(before, (technique,))[0].effects[0].measured
        assert measured is not None
        widths.append(measured.high / measured.low)

    assert widths == sorted(widths, reverse=True)


def test_the_preview_expects_a_confirmation_where_the_forecast_does() -> None:
    """8-bit units promise a gain; without them the baseline may well stay."""
    promising = plan_preview(begin(device=DEVICE_INT8))
    plain = plan_preview(begin())

    assert [plan.key for plan in promising[-3:]] == list(CONFIRMATION)
    assert plain[-1].key == "anchor"


def test_an_interrupted_confirmation_goes_on() -> None:
    """With the points that miss."""
    before = cut(confirmed(), *CONFIRMATION[1:])
    first = before.trials[-1]
    lost = TrialEvidence(plan=first.plan, state=TrialState.QUEUED, points=first.points[:1])
    step = next_step(replace(before, trials=(*before.trials[:-1], lost)))

    assert getattr(step, "key", None) == FIRST
    assert [p.role for p in getattr(step, "points", ())] == [LoadRole.HELD_OUT]
