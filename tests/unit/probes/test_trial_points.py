"""Which load point a trial measures next, and what its requests may generate."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.records import LoadPoint, LoadRole, QualityAnswer, QualityPass
from advisor.recommender.evidence import PointPlan, QualityPlan, TrialPlan
from advisor.serving import ServingConfig
from advisor.traffic.trace import Request, RequestKind
from probes.load.plan import ReplayRule
from probes.quality import QualityWork, quality_sample
from probes.samples import Sample, Samples
from probes.trial import next_point, replayed
from tests.fakes.values import load_point


def measured(
    concurrency: int, repeat: int, *, usable: bool = True, role: LoadRole = LoadRole.PROBE
) -> LoadPoint:
    flaws = () if usable else ("a neighbour was busy",)
    return replace(load_point(concurrency, repeat), usable=usable, flaws=flaws, role=role)


PLAN = TrialPlan(
    key="baseline",
    title="Baseline",
    technique=None,
    config=ServingConfig(),
    points=(
        PointPlan(concurrency=4, repeat=1, requests=8),
        PointPlan(concurrency=1, repeat=1, requests=3),
        PointPlan(concurrency=4, repeat=2, requests=8),
    ),
    expected_s=1.0,
)


def measured_by(plan: TrialPlan, *, usable: bool, limit: int = 20) -> list[LoadPoint]:
    """What a whole trial records when every point comes out (un)usable."""
    recorded: list[LoadPoint] = []
    while (point := next_point(plan, recorded)) is not None and len(recorded) < limit:
        recorded.append(measured(point.concurrency, point.repeat, usable=usable, role=point.role))
    return recorded


def request(index: int, text: str) -> Request:
    return Request(
        id=f"r{index}", index=index, line=index, kind=RequestKind.COMPLETION, prompt=text
    )


def sample(*texts: str) -> Sample:
    return Sample(
        workload_digest="w",
        requests=tuple(request(index, text) for index, text in enumerate(texts)),
        output_tokens=(None,) * len(texts),
        rule=ReplayRule(cap_tokens=64, default_tokens=32, fixed=True),
    )


def test_usable_points_are_measured_once_in_the_order_of_the_plan() -> None:
    """Nothing more than the plan when nothing goes wrong."""
    keys = [(point.concurrency, point.repeat) for point in measured_by(PLAN, usable=True)]

    assert keys == [(4, 1), (1, 1), (4, 2)]


def test_a_useless_point_gets_one_more_try_under_a_number_of_its_own() -> None:
    """Twice as many points as planned at most, and none under the same number twice."""
    keys = [(point.concurrency, point.repeat) for point in measured_by(PLAN, usable=False)]

    assert len(keys) == len(set(keys)) == 2 * len(PLAN.points)
    assert keys[3:] == [(4, 3), (4, 4), (1, 2)]


def test_a_resumed_trial_measures_only_what_misses() -> None:
    """A point that was recorded before is not planned again, whatever the order."""
    point = next_point(PLAN, [measured(4, 2), measured(4, 1)])

    assert point == PLAN.points[1]


def test_the_extra_try_replays_as_many_requests_as_the_point_it_replaces() -> None:
    """A small load keeps its smaller number of requests."""
    recorded = [measured(4, 1), measured(1, 1, usable=False), measured(4, 2)]

    assert next_point(PLAN, recorded) == PointPlan(concurrency=1, repeat=2, requests=3)


def test_loads_of_other_roles_are_points_of_their_own() -> None:
    """The same number in flight and the same repeat, over other requests."""
    roles = (LoadRole.PROBE, LoadRole.CONTROL, LoadRole.STATIC)
    plan = replace(
        PLAN, points=tuple(replace(PLAN.points[0], role=role, requests=12) for role in roles)
    )
    spoilt = [measured(4, 1), measured(4, 1, role=LoadRole.CONTROL, usable=False)]

    assert [point.role for point in measured_by(plan, usable=True)] == list(roles)
    assert next_point(plan, spoilt) == plan.points[2]
    assert next_point(plan, [*spoilt, measured(4, 1, role=LoadRole.STATIC)]) == PointPlan(
        concurrency=4, repeat=2, requests=12, role=LoadRole.CONTROL
    )


def rate(point: LoadPoint, tokens_per_s: float) -> LoadPoint:
    """The point with this throughput, known to a per mille."""
    value = replace(
        point.throughput_tokens_per_s,
        value=tokens_per_s,
        low=0.999 * tokens_per_s,
        high=1.001 * tokens_per_s,
    )
    return replace(point, throughput_tokens_per_s=value)


def test_a_ladder_ends_where_throughput_no_longer_rises() -> None:
    """Optional rungs are left out then, what a technique needs is measured all the same."""
    loads = (1, 2, 4, 8, 16, 32)
    plan = replace(
        PLAN,
        points=tuple(
            PointPlan(concurrency=load, repeat=1, requests=8, optional=load in {16, 32})
            for load in loads
        ),
    )
    flat = [rate(measured(load, 1), 10 * min(load, 2)) for load in loads[:3]]
    rising = [rate(measured(load, 1), 10 * load) for load in loads[:4]]

    assert next_point(plan, flat) == plan.points[3]
    assert next_point(plan, [*flat, rate(measured(8, 1), 20)]) is None
    assert next_point(plan, rising) == plan.points[4]


def test_a_load_replays_the_sample_of_its_role() -> None:
    """Gangs and their control one, the confirmation another, everything else the probe subset."""
    probe, static, held = sample("a"), sample("b"), sample("c")
    samples = Samples(probe=probe, static=static, held_out=held)

    assert [samples.of(role) for role in LoadRole] == [probe, held, static, static]


def test_gangs_and_their_control_are_all_full() -> None:
    """Ten requests are two gangs of four; what does not fill a single one is sent all the same."""
    static = sample(*(str(place) for place in range(10)))
    samples = Samples(probe=static, static=static)

    def sent(role: LoadRole, requests: int) -> int:
        planned = PointPlan(concurrency=4, repeat=1, requests=requests, role=role)
        return len(replayed(samples, planned).requests)

    assert [sent(role, 12) for role in (LoadRole.STATIC, LoadRole.CONTROL)] == [8, 8]
    assert sent(LoadRole.PROBE, 12) == 10
    assert sent(LoadRole.STATIC, 3) == 3


def test_a_sample_that_was_not_drawn_is_refused_with_its_reason() -> None:
    """Never another one in its place."""
    samples = Samples(probe=sample("a"), not_held_out="only 2 requests could be kept back")

    with pytest.raises(InvalidInput, match="only 2 requests"):
        samples.of(LoadRole.HELD_OUT)
    with pytest.raises(InvalidInput, match="static"):
        samples.of(LoadRole.STATIC)


def test_quality_prompts_end_by_themselves_and_within_the_plan() -> None:
    """The first of the probe subset; the digest names prompts and limits."""
    probe = sample("a", "b", "c")
    prompts = quality_sample(probe, QualityPlan(requests=2, max_tokens=5))

    assert [request.prompt for request in prompts.requests] == ["a", "b"]
    assert not prompts.rule.fixed
    assert {prompts.rule.limit(item, None) for item in prompts.requests} == {5}
    assert prompts.digest != probe.first(2).digest


def test_the_own_first_pass_is_the_reference_where_there_is_no_other() -> None:
    """A variant is held against the baseline's, the baseline's second pass against its first."""
    first, other = (
        QualityPass(subset_digest="d", answers=(answer,))
        for answer in (
            QualityAnswer(request_id="r", label=None, greedy=(1, 2)),
            QualityAnswer(request_id="r", label=None, greedy=(3,)),
        )
    )
    baseline = QualityWork(sample=sample("a"), passes=2, finished=(), reference=None)
    variant = replace(baseline, passes=1, reference=other)

    assert (baseline.missing, baseline.forced_to()) == (2, {})
    assert replace(baseline, finished=(first,)).forced_to() == {"r": (1, 2)}
    assert variant.forced_to() == {"r": (3,)}
    assert replace(variant, finished=(first,)).missing == 0


def test_the_digest_of_a_sample_names_the_requests_and_their_limits() -> None:
    """Other requests or other limits are another load."""
    whole = sample("a", "b")
    capped = Sample(
        workload_digest="w",
        requests=whole.requests,
        output_tokens=(8, 8),
        rule=whole.rule,
    )

    assert whole.digest == sample("a", "b").digest
    assert len({whole.digest, whole.first(1).digest, capped.digest}) == 3


def test_warm_up_takes_short_requests_and_ends_them_one_after_another() -> None:
    """Each limit is above the one before, so the batch shrinks through every size."""
    warming = sample("a long text", "b", "cc", "a much longer text").warming(3)
    limits = [
        warming.rule.limit(item, tokens)
        for item, tokens in zip(warming.requests, warming.output_tokens, strict=True)
    ]

    assert [item.prompt for item in warming.requests] == ["b", "cc", "a long text"]
    assert limits == sorted(set(limits))
