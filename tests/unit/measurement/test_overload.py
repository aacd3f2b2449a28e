"""Queues of planted open loops: told to grow where they do, and not where they hold."""

import heapq
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.capacity import Search, Tried, TryLoad, next_load
from advisor.measurement.overload import Growth, queue_growth
from advisor.measurement.records import Outcome, RequestRecord
from tests.fakes.records import record

SERVICE_S = 2.0


def served(rng: np.random.Generator, *, load: float, slots: int, count: int) -> list[RequestRecord]:
    """Poisson arrivals at `load` of what the slots can do, first come first served."""
    sends = np.cumsum(rng.exponential(SERVICE_S / (load * slots), count))
    took = rng.gamma(4, SERVICE_S / 4, count)
    free = [0.0] * slots
    found = []
    for sent, service in zip(sends.tolist(), took.tolist(), strict=True):
        start = max(sent, heapq.heappop(free))
        heapq.heappush(free, start + service)
        first = start + service / 10
        found.append(record(sent, start + service, first_token_s=first))
    return found


def verdicts(load: float, *, slots: int, count: int, seeds: int = 20) -> Counter[Growth]:
    """How often what was said of loads of one height."""
    return Counter(
        queue_growth(
            served(np.random.default_rng(seed), load=load, slots=slots, count=count)
        ).verdict
        for seed in range(seeds)
    )


@pytest.mark.parametrize("slots", [1, 8])
def test_a_queue_that_outgrows_its_slots_is_told(slots: int) -> None:
    """At 1.3 of what can be served, in every load of 600 requests."""
    assert verdicts(1.3, slots=slots, count=600) == {Growth.GROWS: 20}


@pytest.mark.parametrize("slots", [1, 8])
def test_a_queue_with_room_holds(slots: int) -> None:
    """At half of what can be served."""
    assert verdicts(0.5, slots=slots, count=600) == {Growth.HOLDS: 20}


def test_a_busy_queue_that_holds_is_not_said_to_grow() -> None:
    """At 0.9 it wanders far; a plain t test would find slopes in most of these loads."""
    found = verdicts(0.9, slots=4, count=600, seeds=40)

    assert found[Growth.GROWS] <= 2
    assert found[Growth.HOLDS] >= 15


def test_growth_is_the_excess_of_arrivals() -> None:
    """1.5 times what can be served leaves a third of the arrivals behind, and TTFT rises."""
    rng = np.random.default_rng(5)
    found = queue_growth(served(rng, load=1.5, slots=4, count=1000))

    assert found.growth_per_s is not None
    assert found.ttft_rise is not None
    assert found.growth_per_s.low < found.offered_per_s / 3 < found.growth_per_s.high
    assert found.ttft_rise.low > 0
    assert found.holds is False
    assert "of the arrivals" in found.reason


def test_what_the_client_sent_too_late_counts_from_when_it_was_due() -> None:
    """A client that holds requests back hides no queue."""
    rng = np.random.default_rng(6)
    queued = served(rng, load=1.5, slots=4, count=600)
    late = [replace(one, sent_s=one.first_token_s or one.sent_s) for one in queued]

    assert queue_growth(late) == queue_growth(queued)


def test_an_engine_that_refuses_keeps_no_queue_and_does_not_hold() -> None:
    """A tenth refused at once: the rate was not followed."""
    rng = np.random.default_rng(7)
    records = [
        replace(one, outcome=Outcome.FAILED) if place % 10 == 0 else one
        for place, one in enumerate(served(rng, load=0.5, slots=8, count=600))
    ]
    found = queue_growth(records)

    assert found.verdict is Growth.GROWS
    assert found.reason == "only 90.0% of the requests were answered"


@pytest.mark.parametrize(
    "records,reason",
    [
        ([record(i, i + 1) for i in range(20)], "too short"),
        ([record(2 * i, 2 * i + 1) for i in range(30)], "fewer than 40"),
        ([record(i, i + 30) for i in range(120)], "a few times as long"),
    ],
)
def test_a_load_that_shows_nothing_is_unknown(records: list[RequestRecord], reason: str) -> None:
    """With the reason."""
    found = queue_growth(records)

    assert found.verdict is Growth.UNKNOWN
    assert found.holds is None
    assert found.growth_per_s is None
    assert reason in found.reason


def test_an_even_load_holds_exactly() -> None:
    """No noise: the slope is 0; without first tokens none is made up for TTFT."""
    records = [record(i, i + 1, first_token_s=None) for i in range(200)]
    found = queue_growth(records)

    assert found.verdict is Growth.HOLDS
    assert found.slope_per_s is not None
    assert found.slope_per_s.value == pytest.approx(0, abs=1e-9)
    assert found.ttft_rise is None


def test_the_saturation_of_an_open_loop_is_the_last_rate_that_holds() -> None:
    """The search of capacity.py without any SLO: near the planted 4 requests per second."""
    rng = np.random.default_rng(8)
    search = Search(lowest=0.5, highest=16.0, precision=0.2)
    tried: list[Tried] = []
    while isinstance(step := next_load(tried, search), TryLoad):
        load = step.load * SERVICE_S / 8
        records = served(rng, load=load, slots=8, count=1200)
        tried.append(Tried(load=step.load, holds=queue_growth(records).holds))

    assert step.load is not None
    assert step.fails_at is not None
    assert 2.5 < step.load < 4.2
    assert step.fails_at > 4.0


def test_no_load_is_no_open_loop() -> None:
    """Nor is one burst."""
    with pytest.raises(InvalidInput):
        queue_growth([])
    with pytest.raises(InvalidInput):
        queue_growth([record(0, 1), record(0, 2)])
