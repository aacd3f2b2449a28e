"""Which load point a trial measures next, and what its requests may generate."""

from dataclasses import replace

from advisor.measurement.records import LoadPoint
from advisor.recommender.evidence import PointPlan, TrialPlan
from advisor.serving import ServingConfig
from advisor.traffic.trace import Request, RequestKind
from probes.load.plan import ReplayRule
from probes.trial import Sample, next_point
from tests.fakes.values import load_point


def measured(concurrency: int, repeat: int, *, usable: bool = True) -> LoadPoint:
    flaws = () if usable else ("a neighbour was busy",)
    return replace(load_point(concurrency, repeat), usable=usable, flaws=flaws)


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
        recorded.append(measured(point.concurrency, point.repeat, usable=usable))
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
