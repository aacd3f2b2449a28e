"""The load points of the baseline: the ladder, how many requests each load replays, its end."""

import math
from collections.abc import Iterable, Mapping, Sequence

from advisor.measurement.records import LoadPoint, LoadRole
from advisor.measurement.saturation import ladder, past_saturation
from advisor.recommender.duration import gang_slowdown, gang_tokens, point_limit_s, rate
from advisor.recommender.evidence import PointPlan, StudyEvidence, TrialPlan
from advisor.techniques import Technique

# A small load is slow per request and measures pace rather than queueing: fewer requests do.
SMALL_LOAD_SHARE = 1 / 3
LEAST_REQUESTS = 6
# A load needs some requests beside those that begin it, or its point is all building up and drain.
SPREAD = 1.5
LEAST_GANGS = 3

# What names a load point within a trial: role, requests in flight, repeat.
PointKey = tuple[LoadRole, int, int]


def key_of(point: PointPlan | LoadPoint) -> PointKey:
    """The name of a planned or finished point within its trial."""
    return point.role, point.concurrency, point.repeat


def open_points(plan: TrialPlan, recorded: Sequence[LoadPoint]) -> tuple[PointPlan, ...]:
    """Planned points that are not recorded, in the order of the plan.

    An optional one is left out once the usable points of smaller loads that the plan has before it
    saturate; so points that come later never bring it back.
    """
    have = {key_of(point): point for point in recorded}
    return tuple(
        planned
        for place, planned in enumerate(plan.points)
        if key_of(planned) not in have
        and not (planned.optional and _saturated(planned, plan.points[:place], have))
    )


def _saturated(
    planned: PointPlan, before: Sequence[PointPlan], have: Mapping[PointKey, LoadPoint]
) -> bool:
    found = [have[key_of(earlier)] for earlier in before if key_of(earlier) in have]
    below = [
        point
        for point in found
        if point.role is LoadRole.PROBE and point.usable and point.concurrency < planned.concurrency
    ]
    return bool(below) and past_saturation(below)


def requests_at(evidence: StudyEvidence, concurrency: int) -> int:
    """How many requests a load point replays on a configuration that is fast enough."""
    asked, goal = evidence.requests_per_point, evidence.goal.concurrency
    spread = math.ceil(SPREAD * concurrency)
    if concurrency == goal:
        return asked
    if concurrency > goal:
        return max(asked, spread)
    return min(asked, max(LEAST_REQUESTS, math.ceil(asked * SMALL_LOAD_SHARE), spread))


def subset_size(evidence: StudyEvidence) -> int:
    """Requests that the largest load point of a study may replay."""
    loads = (evidence.goal.concurrency, *ladder(evidence.options.ladder_top))
    return max(requests_at(evidence, load) for load in loads)


def ladder_points(evidence: StudyEvidence, needed: Iterable[int]) -> tuple[PointPlan, ...]:
    """The loads beside the goal's, ascending; what no technique `needed` is optional."""
    goal, wanted = evidence.goal.concurrency, set(needed)
    loads = wanted | set(ladder(evidence.options.ladder_top))
    return tuple(
        PointPlan(
            concurrency=load,
            repeat=1,
            requests=requests_at(evidence, load),
            optional=load not in wanted,
        )
        for load in sorted(loads - {goal})
    )


def gang_points(evidence: StudyEvidence, techniques: Iterable[Technique]) -> tuple[PointPlan, ...]:
    """For each number of static slots a closed loop and gangs, over the same requests."""
    slots = dict.fromkeys(t.static_slots for t in techniques if t.static_slots is not None)
    return tuple(
        PointPlan(concurrency=size, repeat=1, requests=_gangs(evidence, size) * size, role=role)
        for size in slots
        for role in (LoadRole.CONTROL, LoadRole.STATIC)
    )


def _gangs(evidence: StudyEvidence, slots: int) -> int:
    """As many gangs as there are requests for, both arms together within one point's time."""
    loop_s = slots * gang_tokens(evidence) / rate(evidence, evidence.baseline, slots)
    affordable = int(point_limit_s(evidence) / (loop_s * (1 + gang_slowdown(evidence))))
    return max(LEAST_GANGS, min(evidence.requests_per_point // slots, affordable))
