"""The order of trials, the budget, and going on after an interruption, in virtual time."""

from dataclasses import replace
from functools import cache

import pytest

from advisor.errors import InvalidInput
from advisor.goal import Goal
from advisor.measurement.records import LoadRole
from advisor.recommender.confirmation import CONFIRMATION
from advisor.recommender.duration import ASSUMED_TOKENS_PER_S
from advisor.recommender.evidence import (
    StudyEvidence,
    StudyOptions,
    TrialEvidence,
    TrialPlan,
)
from advisor.recommender.ladder import LEAST_REQUESTS, subset_size
from advisor.recommender.planner import Finished, next_step, plan_preview, unmeasured
from advisor.recommender.recommendation import VerdictKind
from advisor.recommender.space import BASELINE, LOWER_LOAD
from advisor.recommender.verdict import verdicts
from advisor.serving import FunctionalSettings, Levers, ServingConfig
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import (
    DEVICE,
    Lab,
    World,
    begin,
    estimate,
    laboratory,
    study,
    summary,
)

# What a device without 8-bit units can try: one trial each.
TRIED = [item for item in TECHNIQUES if item.on and not item.cpu_features]
# 32-bit is faster here, and without its cache the engine is too: two changes improve.
TWO_IMPROVE = World(dtype_factor={"float32": 0.8}, shared=-0.5)


@cache
def usual() -> StudyEvidence:
    """A whole study of the usual world."""
    return study(World())


def keys(evidence: StudyEvidence) -> list[str]:
    """The trials of a study, in order."""
    return [trial.plan.key for trial in evidence.trials]


def planned(evidence: StudyEvidence) -> TrialPlan:
    """The next step, which must be a trial."""
    step = next_step(evidence)
    assert isinstance(step, TrialPlan)
    return step


def finished(evidence: StudyEvidence) -> str:
    """The reason of the end, which must have come."""
    step = next_step(evidence)
    assert isinstance(step, Finished)
    return step.reason


def test_a_study_begins_with_the_baseline_and_ends_with_it() -> None:
    """One trial per technique between; the last start shows drift."""
    found = keys(usual())

    assert found == ["baseline", *(item.key for item in TRIED), "anchor"]


def test_the_baseline_is_measured_at_every_load_and_twice_at_the_goals() -> None:
    """The ladder between the two; then the gangs, and answers to compare with."""
    plan = planned(begin())
    probes = [(p.concurrency, p.repeat) for p in plan.points if p.role is LoadRole.PROBE]
    gangs = [(p.role, p.concurrency) for p in plan.points[len(probes) :]]

    assert probes == [(16, 1), (1, 1), (2, 1), (4, 1), (8, 1), (32, 1), (16, 2)]
    assert gangs == [(LoadRole.CONTROL, 4), (LoadRole.STATIC, 4)]
    assert {p.concurrency for p in plan.points if p.optional} == {2, 4, 8, 32}
    assert plan.quality is not None
    assert plan.quality.passes == 2
    assert plan.config == begin().baseline
    assert plan.technique is None
    assert [concurrency for concurrency, _ in plan.predicted] == [1, 2, 4, 8, 16, 32]


def test_a_technique_is_measured_at_the_goals_load_and_at_its_own() -> None:
    """At a goal of one request in flight both are the same."""
    after = usual()
    alone = study(World(), evidence=begin(goal=Goal(concurrency=1)))
    loads = [
        {
            trial.plan.key: [point.concurrency for point in trial.plan.points]
            for trial in evidence.trials
        }
        for evidence in (after, alone)
    ]

    assert [loads[0][item.key] for item in TRIED] == [[16], [16], [16, 1], [16], [16, 1]]
    assert all(set(loads[1][item.key]) == {1} for item in TRIED if item.key in loads[1])


def test_small_loads_replay_fewer_requests() -> None:
    """They are slow per request; never fewer than the least, nor too few for the load."""
    start = replace(begin(), techniques=tuple(item.key for item in TECHNIQUES[:3]))
    by_load = {point.concurrency: point.requests for point in planned(start).points}
    small = replace(start, requests_per_point=8)
    few_at = {point.concurrency: point.requests for point in planned(small).points}

    assert by_load == {1: 16, 2: 16, 4: 16, 8: 16, 16: 48, 32: 48}
    assert [few_at[load] for load in (1, 4, 16)] == [LEAST_REQUESTS, LEAST_REQUESTS, 8]
    assert few_at[32] == subset_size(small) == 48


def test_two_improvements_are_tried_together() -> None:
    """After the single trials, before the confirmation, with both changes."""
    evidence = study(TWO_IMPROVE)
    combination = evidence.trials[-4].plan

    assert keys(evidence)[-4:] == ["combination", *CONFIRMATION]
    assert combination.technique is None
    assert combination.config.levers == Levers(enable_prefix_caching=False, dtype="float32")
    assert [point.concurrency for point in combination.points] == [16]


def test_two_names_for_one_change_share_a_trial_and_are_not_combined() -> None:
    """Both have its verdict."""
    same = (TECHNIQUES[3], replace(TECHNIQUES[3], key="twin"))
    evidence = study(TWO_IMPROVE, techniques=same)
    found = verdicts(evidence, same)

    assert keys(evidence) == ["baseline", same[0].key, *CONFIRMATION]
    assert found[0].effects == found[1].effects


def test_of_changes_to_one_lever_the_better_is_combined() -> None:
    """Two draft lengths cannot both be on."""
    accepting = World(acceptance={"copy": 0.95, "prose": 0.9}, shared=-0.5, token_s=0.0001)
    evidence = study(accepting)
    goal = {
        key: verdicts(evidence, (item,))[0].effects[0].measured
        for item in TECHNIQUES
        if (key := item.on.get("speculative_config")) is not None
    }
    [combination] = [trial.plan for trial in evidence.trials if trial.plan.key == "combination"]

    assert all(gain is not None and gain.low > 1 for gain in goal.values())
    best = max(goal, key=lambda key: goal[key].value)  # type: ignore[union-attr]
    assert combination.config.levers.speculative_config == best
    assert combination.config.levers.enable_prefix_caching is False


def test_a_device_without_a_rate_is_planned_for_by_its_own_pace() -> None:
    """No prediction, still a trial."""
    rates = {"bfloat16": DEVICE.matrix_rate_flops_per_s["bfloat16"]}
    narrow = replace(begin(), device=replace(DEVICE, matrix_rate_flops_per_s=rates))
    trial = next(t for t in plan_preview(narrow) if t.key == TECHNIQUES[3].key)

    assert trial.predicted == ()
    assert trial.expected_s > 0


def test_a_failed_trial_does_not_stop_the_study() -> None:
    """The others are measured all the same."""
    failing = World(failing=frozenset({TECHNIQUES[1].key}))
    evidence = study(failing)

    assert keys(evidence) == keys(usual())
    assert finished(evidence) == "every planned trial was run"


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    """The study ends with the kind of the failure."""
    evidence = study(World(failing=frozenset({"baseline"})))

    assert keys(evidence) == ["baseline"]
    assert finished(evidence) == "the baseline was not measured: out_of_memory"


def test_a_skipped_baseline_ends_the_study_too() -> None:
    """Without a kind the state is named."""
    skipped = TrialEvidence(plan=planned(begin()), state=TrialState.SKIPPED)

    assert "skipped" in finished(replace(begin(), trials=(skipped,)))


def test_when_every_variant_fails_the_anchor_is_not_worth_its_time() -> None:
    """Nothing was varied that drift could have changed."""
    failing = World(failing=frozenset(item.key for item in TECHNIQUES))

    assert keys(study(failing)) == ["baseline", *(item.key for item in TRIED)]


def test_an_interrupted_trial_goes_on_with_the_points_that_miss() -> None:
    """A finished load point is never measured again."""
    plan = planned(begin())
    lab = laboratory(World())
    first = lab.point(plan, plan.points[0])
    lost = TrialEvidence(plan=plan, state=TrialState.QUEUED, points=(first,))
    rest = planned(replace(begin(), trials=(lost,)))

    assert rest.key == plan.key
    assert rest.points == plan.points[1:]
    assert 0 < rest.expected_s < plan.expected_s


def test_a_trial_without_missing_points_is_not_gone_on_with() -> None:
    """Whatever its row says: all of it was measured."""
    done = laboratory(World()).trial(planned(begin()))
    measuring = replace(done, state=TrialState.MEASURING)

    assert planned(replace(begin(), trials=(measuring,))).key == TECHNIQUES[0].key


# The baseline takes about 60 s, the first trial 60 s, the others 40 s to 50 s.
@pytest.mark.parametrize(
    "budget_s,trials",
    [
        (1.0, ["baseline"]),
        (125.0, ["baseline", TECHNIQUES[0].key]),
        (170.0, ["baseline", TECHNIQUES[0].key, TECHNIQUES[1].key]),
    ],
)
def test_the_budget_is_kept_and_spent_on_techniques_first(
    budget_s: float, trials: list[str]
) -> None:
    """A trial that would not end in time is not begun; the baseline always is."""
    evidence = study(World(), evidence=begin(budget_s=budget_s))

    assert keys(evidence) == trials
    assert "budget" in finished(evidence)
    assert len(unmeasured(evidence)) == len(TRIED) - len(trials[1:])


def test_a_trial_that_does_not_fit_does_not_block_a_shorter_one() -> None:
    """One slot takes long; the cache is tried all the same."""
    whole = study(World(), evidence=begin(options=StudyOptions(ladder_top=1)))
    after = replace(whole, trials=whole.trials[:1], spent_s=0.0)
    slow, quick = plan_preview(after)[:2]
    short = replace(after, budget_s=(slow.expected_s + quick.expected_s) / 2)

    assert quick.expected_s < slow.expected_s
    assert planned(short).key == quick.key
    assert slow.title in unmeasured(short)


def test_expected_times_come_from_what_was_seen() -> None:
    """Start, output length and pace of this study replace what was assumed."""
    slow, quick = (study(World(start_s=start_s)) for start_s in (300.0, 3.0))
    anchors = [evidence.trials[-1].plan.expected_s for evidence in (slow, quick)]

    assert anchors[0] - anchors[1] == pytest.approx(297.0, abs=2.0)


def test_the_expected_time_of_a_trial_is_near_the_time_it_takes() -> None:
    """Once the baseline was measured, within a factor of two."""
    evidence = usual()
    ratios = [
        trial.plan.expected_s / (30.0 + sum(point.duration_s for point in trial.points))
        for trial in evidence.trials[1:]
    ]

    assert all(0.5 < ratio < 2.0 for ratio in ratios)


def test_an_upload_without_lengths_is_planned_by_assumption() -> None:
    """Nothing can be predicted, yet the trial has an expected time."""
    unknown = begin(traffic=summary(lengths=False, with_text=False))
    plan = planned(unknown)
    tokens = sum(point.requests for point in plan.points) * 128

    assert plan.predicted == ()
    assert plan.expected_s > tokens / ASSUMED_TOKENS_PER_S


def test_with_an_unknown_shape_the_baselines_own_pace_is_planned_with() -> None:
    """What was measured needs no prediction."""
    unknown = begin(traffic=summary(lengths=False))
    done = laboratory(World()).trial(planned(unknown))
    following = planned(replace(unknown, trials=(done,)))

    assert following.expected_s < 60.0


def test_what_needs_text_is_not_tried_without() -> None:
    """A replay of random text would measure nothing of this traffic."""
    evidence = study(World(), evidence=begin(traffic=summary(with_text=False)))
    needing = [item.key for item in TECHNIQUES if item.needs]

    assert needing
    assert set(needing) & set(keys(evidence)) == set()


def test_a_baseline_without_a_technique_is_tried_with_it() -> None:
    """The toggle goes the other way, and the gain still is that of having the technique."""
    narrow = ServingConfig(levers=Levers(max_num_seqs=1))
    evidence = study(World(), evidence=begin(baseline=narrow))
    [trial] = [item for item in evidence.trials if item.plan.technique == TECHNIQUES[0].key]

    assert trial.plan.config == ServingConfig()
    assert trial.plan.title.endswith(" on")


def test_one_request_in_flight_leaves_nothing_to_batch() -> None:
    """A technique below its least load is not tried."""
    alone = study(World(), evidence=begin(goal=Goal(concurrency=1)))

    assert TECHNIQUES[0].least_concurrency == 2
    assert TECHNIQUES[0].key not in keys(alone)


def test_a_slow_configuration_is_measured_at_a_lower_load_and_so_is_the_baseline() -> None:
    """A point may take a share of the budget only; the verdict says at which load it holds."""
    slow = replace(World(), dtype_factor={"float32": 30.0})
    start = begin(budget_s=600.0)
    device = replace(
        start.device,
        matrix_rate_flops_per_s={
            **start.device.matrix_rate_flops_per_s,
            "float32": estimate(1e9, 1e9, 1e9),
        },
    )
    evidence = study(slow, evidence=replace(start, device=device))
    [trial] = [item for item in evidence.trials if item.plan.technique == TECHNIQUES[3].key]
    baseline = next(item for item in evidence.trials if item.plan.key == BASELINE)
    found = verdicts(evidence, (TECHNIQUES[3],))[0]

    assert [point.concurrency for point in trial.plan.points] == [LOWER_LOAD]
    assert LOWER_LOAD in {point.concurrency for point in baseline.plan.points}
    assert [effect.concurrency for effect in found.effects] == [LOWER_LOAD, 16]
    assert found.kind is VerdictKind.HELPS
    assert f"at {LOWER_LOAD} requests in flight" in found.sentence
    assert found.effects[1].measured is None
    assert "too slow" in (found.effects[1].reason or "")


def test_the_preview_is_what_will_be_run() -> None:
    """As far as results cannot change it; it shrinks as the study goes on."""
    evidence = usual()
    before = [plan.key for plan in plan_preview(begin())]
    halfway = replace(evidence, trials=evidence.trials[:3])

    assert before == keys(evidence)
    assert [plan.key for plan in plan_preview(halfway)] == before[3:]
    assert plan_preview(evidence) == ()


def test_the_preview_keeps_the_budget() -> None:
    """Trials that do not fit are not promised."""
    whole = sum(plan.expected_s for plan in plan_preview(begin()))
    small = plan_preview(begin(budget_s=whole / 2))

    assert 0 < len(small) < len(plan_preview(begin()))
    assert sum(plan.expected_s for plan in small) <= whole / 2
    assert [plan.key for plan in plan_preview(begin(budget_s=1.0))] == ["baseline"]


def test_the_preview_begins_with_an_interrupted_trial() -> None:
    """It is gone on with first."""
    plan = planned(begin())
    lost = TrialEvidence(plan=plan, state=TrialState.QUEUED)
    coming = plan_preview(replace(begin(), trials=(lost,)))

    assert coming[0].key == plan.key
    assert coming[-1].key == "anchor"


def test_compilation_is_expected_to_take_its_time() -> None:
    """Before any start was timed."""
    eager = ServingConfig(functional=FunctionalSettings(enforce_eager=True))

    assert planned(begin()).expected_s > planned(begin(baseline=eager)).expected_s


def test_a_trial_measures_something() -> None:
    """A plan without a load point is refused."""
    with pytest.raises(InvalidInput):
        replace(planned(begin()), points=(), quality=None)


def test_a_lab_fails_where_it_is_told_to() -> None:
    """The fake itself."""
    lab: Lab = laboratory(World(failing=frozenset({"baseline"})))

    assert lab.trial(planned(begin())).state is TrialState.FAILED
