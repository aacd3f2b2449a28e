"""The load points of the baseline: their order, their requests, and where the ladder ends."""

from dataclasses import replace

from advisor.goal import Goal
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.evidence import PointPlan, StudyEvidence, StudyOptions, TrialPlan
from advisor.recommender.ladder import (
    LEAST_GANGS,
    gang_points,
    key_of,
    open_points,
    requests_at,
    subset_size,
)
from advisor.recommender.planner import next_step
from advisor.recommender.space import missing_quality, resumed
from advisor.states import TrialState
from advisor.techniques import TECHNIQUES
from tests.fakes.planted_world import World, begin, laboratory, summary

# Throughput stops rising at two requests in flight.
FLAT = World(fixed_s=0.0, token_s=0.02, prompt_s=0.0)


def baseline(evidence: StudyEvidence | None = None) -> TrialPlan:
    """The first trial of a study."""
    plan = next_step(evidence or begin())
    assert isinstance(plan, TrialPlan)
    return plan


def measured(plan: TrialPlan, world: World) -> list[LoadPoint]:
    """What a trial measures of its plan."""
    return list(laboratory(world).trial(plan).points)


def test_optional_rungs_above_saturation_are_left_out() -> None:
    """What a technique or the goal needs is measured all the same."""
    plan = baseline()
    points = measured(plan, FLAT)
    loads = [p.concurrency for p in points if p.role is LoadRole.PROBE]

    assert {1, 16} <= set(loads)
    assert 32 not in loads
    assert open_points(plan, points) == ()
    assert any(planned.concurrency == 32 for planned in plan.points)


def test_a_rising_ladder_is_climbed_to_its_top() -> None:
    """Nothing is left out before the knee."""
    plan = baseline()

    assert [key_of(p) for p in measured(plan, World())] == [key_of(p) for p in plan.points]


def test_what_is_measured_later_does_not_bring_a_rung_back() -> None:
    """The second point at the goal's load comes after the rungs were decided on."""
    plan = baseline()
    points = measured(plan, FLAT)
    before = [p for p in points if (p.concurrency, p.repeat) != (16, 2)]
    late = replace(
        points[0],
        repeat=2,
        throughput_tokens_per_s=replace(points[0].throughput_tokens_per_s, value=1e6, high=1e6),
    )

    assert key_of(late) in {key_of(p) for p in open_points(plan, before)}
    assert 32 not in {p.concurrency for p in open_points(plan, [*before, late])}


def test_an_unusable_rung_ends_no_ladder() -> None:
    """A disturbed machine looks saturated."""
    plan = baseline()
    points = [replace(p, usable=False) for p in measured(plan, FLAT)]

    assert 32 in {p.concurrency for p in open_points(plan, points)}


def test_points_of_two_roles_are_two_points() -> None:
    """A held-out point does not stand for a probe at the same load."""
    probe = PointPlan(concurrency=16, repeat=1, requests=8)
    held_out = replace(probe, role=LoadRole.HELD_OUT)
    plan = replace(baseline(), points=(probe, held_out))
    [done] = [laboratory(World()).point(plan, probe)]

    assert open_points(plan, [done]) == (held_out,)


def test_every_rung_has_requests_beside_those_that_begin_it() -> None:
    """Half as many again, except where the upload's own number binds below the goal's load."""
    start = replace(begin(goal=Goal(concurrency=8)), requests_per_point=12)
    asked = {load: requests_at(start, load) for load in (1, 2, 4, 8, 16, 32)}

    assert asked == {1: 6, 2: 6, 4: 6, 8: 12, 16: 24, 32: 48}
    assert subset_size(start) == 48


def test_gangs_are_whole_and_as_many_as_time_allows() -> None:
    """Both arms replay the same number of requests; at least three gangs."""
    some, few, poor = (
        gang_points(start, TECHNIQUES)
        for start in (
            begin(),
            replace(begin(), requests_per_point=6),
            replace(begin(budget_s=1.0), requests_per_point=480),
        )
    )

    assert [(p.role, p.requests) for p in some] == [
        (LoadRole.CONTROL, 48),
        (LoadRole.STATIC, 48),
    ]
    assert {p.requests for p in few} == {LEAST_GANGS * 4}
    assert all(p.requests % 4 == 0 and 12 <= p.requests < 480 for p in poor)
    assert gang_points(begin(), TECHNIQUES[:2]) == ()


def test_a_small_budget_gives_up_optional_rungs_only() -> None:
    """The dearest first; what is needed stays."""
    whole, half, least = (baseline(begin(budget_s=budget)) for budget in (3600.0, 300.0, 1.0))
    needed = [key_of(p) for p in whole.points if not p.optional]

    assert len(whole.points) > len(half.points) >= len(least.points)
    assert set(needed) <= {key_of(p) for p in least.points}
    assert not any(p.optional for p in least.points)
    assert half.expected_s < whole.expected_s


def test_a_ladder_of_one_rung_is_the_goals_load_and_what_techniques_need() -> None:
    """The option ends the ladder."""
    plan = baseline(begin(options=StudyOptions(ladder_top=1)))

    assert {p.concurrency for p in plan.points if p.role is LoadRole.PROBE} == {1, 16}


def test_missing_answers_keep_a_trial_open() -> None:
    """All loads were measured, one quality pass was not made."""
    plan = baseline()
    done = laboratory(World()).trial(plan)
    assert done.quality is not None
    half = replace(
        done,
        state=TrialState.QUEUED,
        quality=replace(done.quality, passes=done.quality.passes[:1]),
    )
    later = replace(begin(), trials=(half,))
    rest = resumed(later, half)

    assert missing_quality(done) is None
    assert rest.points == ()
    assert rest.quality is not None
    assert rest.quality.passes == 1
    assert next_step(later) == rest


def test_answers_are_asked_for_where_outputs_may_change() -> None:
    """Twice of the baseline, once of the change; without text nobody can ask."""
    names = [t.key for t in TECHNIQUES if t.changes_outputs]
    plain = [t.key for t in TECHNIQUES if not t.changes_outputs]
    with_change, without = (
        baseline(replace(begin(), techniques=tuple(keys))) for keys in (names, plain)
    )
    small = baseline(replace(begin(budget_s=1.0), requests_per_point=5))

    assert with_change.quality is not None
    assert (with_change.quality.requests, with_change.quality.max_tokens) == (16, 32)
    assert without.quality is None
    assert small.quality is not None
    assert 3 <= small.quality.requests <= 5
    assert baseline(begin(traffic=summary(lengths=False))).expected_s > 0
