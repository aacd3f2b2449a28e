"""Which load of a measurement comes next, and what the repeats of a level say together."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.estimate import Source
from advisor.measurement.asked import MeasurePlan
from advisor.measurement.records import LoadPoint, LoopKind, OpenLoop
from advisor.measurement.report import Rank, measured_point
from advisor.measurement.rounds import (
    PlannedLoad,
    expected_s,
    level_figures,
    next_repeat,
    precise,
    requests_of,
)
from advisor.measurement.slo import Slo, least_requests
from tests.fakes.values import QUANTILES, load_point

PLAN = MeasurePlan(kind=LoopKind.CLOSED, levels=(1, 4, 8), requests=100, most_repeats=4)


def made(level: int, repeat: int, tokens_per_s: float = 100.0, *, usable: bool = True) -> LoadPoint:
    """One measured load of a closed loop."""
    return replace(load_point(level, repeat, tokens_per_s), usable=usable)


def opened(rate_per_s: float, mean_e2e_s: float = 1.0) -> LoadPoint:
    """One measured load of an open loop."""
    loop = OpenLoop(arrivals="poisson", rate_per_s=rate_per_s)
    times = replace(QUANTILES, mean=mean_e2e_s)
    return replace(load_point(7, 1), open_loop=loop, e2e_s=times)


def played(plan: MeasurePlan, *, usable: bool, swing: float) -> list[tuple[float, int]]:
    """The loads of a whole measurement whose repeats differ by a factor of `1 + swing`."""
    loads: list[LoadPoint] = []
    order = []
    while (planned := next_repeat(plan, loads, plan.levels)) is not None:
        order.append((planned.level, planned.repeat))
        tokens_per_s = 100.0 * (1 + swing * (planned.repeat % 2))
        loads.append(made(int(planned.level), planned.repeat, tokens_per_s, usable=usable))
    return order


def test_every_level_comes_once_before_any_comes_again_and_turns_change_direction() -> None:
    """A drift of the server must not follow the level."""
    order = played(PLAN, usable=True, swing=0.3)

    assert order == [
        *((1, 1), (4, 1), (8, 1)),
        *((8, 2), (4, 2), (1, 2)),
        *((1, 3), (4, 3), (8, 3)),
        *((8, 4), (4, 4), (1, 4)),
    ]


def test_a_level_that_is_precise_is_not_measured_again() -> None:
    """Three equal repeats are as narrow as can be; two that agree may do so by chance."""
    assert len(played(PLAN, usable=True, swing=0.0)) == 9
    assert not precise(PLAN, [made(4, 1), made(4, 2)])


def test_useless_loads_are_tried_again_but_not_without_end() -> None:
    """Each counts as one of the repeats."""
    assert len(played(PLAN, usable=False, swing=0.0)) == 3 * PLAN.most_repeats


def test_an_open_loop_is_judged_by_the_time_of_a_request() -> None:
    """Its rate is what was asked for, so that throughput says nothing of noise."""
    alike = [opened(2.0, 1.0), opened(2.0, 1.001), opened(2.0, 1.002)]
    apart = [opened(2.0, 1.0), opened(2.0, 1.6), opened(2.0, 1.2)]
    plan = MeasurePlan(kind=LoopKind.OPEN, levels=(2.0,))

    assert precise(plan, alike)
    assert not precise(plan, apart)


def test_a_load_has_enough_requests_for_its_slots_and_for_its_limits() -> None:
    """Small loads fewer than usual, large ones some for every slot, open ones for their span."""
    slo = Slo(ttft_s=1.0, attainment=0.9)
    rated = MeasurePlan(kind=LoopKind.OPEN, levels=(5.0,), requests=10, least_span_s=30.0)

    assert requests_of(PLAN, 1) == 20
    assert requests_of(PLAN, 8) == 80
    assert requests_of(PLAN, 64) == 256
    assert requests_of(rated, 5.0) == 150
    assert requests_of(replace(PLAN, slo=slo), 1) > least_requests(slo)


def test_a_load_is_expected_to_last_as_long_as_its_like() -> None:
    """As the level's own loads, else as the last one; nothing is known at first."""
    planned = PlannedLoad(level=4, repeat=2, requests=10)
    slow, fast = replace(made(4, 1), duration_s=9.0), replace(made(8, 1), duration_s=3.0)

    assert expected_s([], planned) == 0
    assert expected_s([slow, fast], planned) == 9.0
    assert expected_s([fast], planned) == 3.0


def test_figures_of_a_level_carry_the_source_of_the_report() -> None:
    """What was seen from outside is not called measured here, with or without repeats."""
    levels = level_figures(
        [made(1, 1), made(4, 1, 100.0), made(4, 2, 110.0)], Rank.CLIENT_SIDE.source
    )
    one, four = (level.figures["output_tokens_per_s"] for level in levels)

    assert [level.level for level in levels] == [1, 4]
    assert one.interval is not None
    assert four.interval is not None
    assert {one.interval.source, four.interval.source} == {Source.MEASURED_OUTSIDE}
    assert four.interval.low < four.value < four.interval.high
    assert 100 < four.value < 110


def test_figures_rest_on_usable_loads_where_there_are_some() -> None:
    """A disturbed load moves no figure but stays counted."""
    (level,) = level_figures([made(4, 1, 100.0), made(4, 2, 10.0, usable=False)], Source.MEASURED)

    assert (level.loads, level.usable) == (2, 1)
    assert level.figures["output_tokens_per_s"].value == 100.0


def test_a_load_of_ours_has_the_form_of_any_tools_loads() -> None:
    """An open loop keeps its rate, a closed one its number in flight; unknown stays unknown."""
    closed, rated = measured_point(made(4, 1)), measured_point(opened(2.0))

    assert (closed.kind, closed.concurrency, closed.rate_per_s) == (LoopKind.CLOSED, 4.0, None)
    assert (rated.kind, rated.rate_per_s) == (LoopKind.OPEN, 2.0)
    assert closed.e2e_s is None
    assert closed.ttft_s is not None
    assert closed.ttft_s.percentiles[50] == QUANTILES.p50
    assert closed.output_tokens is not None
    assert closed.output_tokens.mean == pytest.approx(9234 / 31)


@pytest.mark.parametrize(
    "changes",
    [
        {"levels": ()},
        {"levels": (0.5,)},
        {"levels": (0,)},
        {"arrivals": "weekly"},
        {"arrivals": "gamma"},
        {"cv": 2.0},
        {"precision": 0.0},
        {"budget_s": float("inf")},
        {"requests": 0},
        {"default_tokens": 9, "cap_tokens": 8},
    ],
    ids=str,
)
def test_a_plan_that_cannot_be_right_is_refused(changes: dict[str, object]) -> None:
    """Before a server is asked anything."""
    with pytest.raises(InvalidInput):
        replace(PLAN, **changes)  # type: ignore[arg-type]
