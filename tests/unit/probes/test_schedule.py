"""Intended send times, and which request goes when."""

import heapq
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from probes.load.dispatch import Dispatcher, Due, following_turns
from probes.load.plan import LoadPlan, PlannedRequest
from probes.load.schedule import Schedule
from probes.load.split import split_plan


def request(index: int, session: str | None = None, **values: object) -> PlannedRequest:
    """A request without a body."""
    return PlannedRequest(
        request_id=f"r{index}",
        label=None,
        path="/v1/completions",
        body={},
        session=session,
        **values,  # type: ignore[arg-type]
    )


def plain(count: int) -> list[PlannedRequest]:
    """Requests that know nothing of each other."""
    return [request(i) for i in range(count)]


def played(
    requests: Sequence[PlannedRequest], schedule: Schedule, service_s: Sequence[float]
) -> tuple[dict[int, Due], dict[int, float]]:
    """A load in virtual time: what was due, and when each answer ended."""
    dispatcher = Dispatcher(requests, schedule, start_s=0.0)
    due: dict[int, Due] = {}
    ends: dict[int, float] = {}
    running: list[tuple[float, int]] = []
    now_s = 0.0
    while dispatcher.left or running:
        while (item := dispatcher.take(now_s)) is not None:
            due[item.index] = item
            heapq.heappush(running, (now_s + service_s[item.index], item.index))
        wake_s = dispatcher.wake_s() if dispatcher.left else None
        if running and (wake_s is None or running[0][0] <= wake_s):
            now_s, index = heapq.heappop(running)
            ends[index] = now_s
            dispatcher.ended(index, now_s)
        else:
            assert wake_s is not None
            now_s = wake_s
    return due, ends


def test_waiting_for_a_slot_counts_as_latency(shared: Path) -> None:
    """Case S-06: schedule-relative latency, not that of the client's own queue."""
    case = json.loads((shared / "cases" / "s06_schedule.json").read_text())
    count, service_s = case["n"], case["service_time_s"]
    schedule = Schedule(
        concurrency=case["client_concurrency"],
        offsets_s=tuple(i / case["target_rate_rps"] for i in range(count)),
    )
    due, ends = played(plain(count), schedule, [service_s] * count)
    latencies_s = [ends[i] - due[i].intended_s for i in range(count)]
    waits_s = [due[i].could_s - due[i].intended_s for i in range(count)]

    assert latencies_s == pytest.approx([0.5 + 0.4 * i for i in range(count)])
    assert np.mean(latencies_s) == pytest.approx(1.9)
    assert np.median(latencies_s) == pytest.approx(1.9)
    assert np.quantile(latencies_s, 0.99) == pytest.approx(3.272)
    assert max(latencies_s) == pytest.approx(3.3)
    assert np.mean(waits_s) == pytest.approx(1.4)
    assert count / max(ends.values()) == pytest.approx(2.0)


def test_a_closed_loop_wants_its_request_when_a_slot_is_free() -> None:
    """There is no clock to be late against."""
    due, _ = played(plain(3), Schedule(concurrency=2), [7.5, 9.0, 1.0])

    assert [due[i].intended_s for i in range(3)] == [0.0, 0.0, 7.5]


def test_an_open_loop_without_a_limit_sends_at_its_times() -> None:
    """However long the answers take."""
    schedule = Schedule(concurrency=None, offsets_s=(0.0, 1.0, 1.5))
    due, _ = played(plain(3), schedule, [100.0] * 3)

    assert [(due[i].intended_s, due[i].could_s) for i in range(3)] == [
        (0.0, 0.0),
        (1.0, 1.0),
        (1.5, 1.5),
    ]


def test_a_ramp_spreads_the_beginnings_of_the_slots() -> None:
    """Four slots over two seconds; what follows goes when a slot is free."""
    due, _ = played(plain(5), Schedule(concurrency=4, ramp_s=2.0), [10.0] * 5)

    assert [due[i].intended_s for i in range(5)] == [0.0, 0.5, 1.0, 1.5, 10.0]


def test_a_gang_waits_for_its_slowest() -> None:
    """Static batching: no slot is filled again before all are empty."""
    due, _ = played(plain(5), Schedule(concurrency=2, gang=True), [1.0, 4.0, 1.0, 2.0, 1.0])

    assert [due[i].intended_s for i in range(5)] == [0.0, 0.0, 4.0, 4.0, 6.0]


def test_a_turn_waits_for_the_answer_before_and_for_the_thinking() -> None:
    """Its latency counts from there, or from its own recorded time where that is later."""
    requests = [
        request(0, "s", turn=0),
        request(1, "s", turn=1, think_s=2.0),
        request(2, "s", turn=2),
        request(3),
    ]
    open_loop = Schedule(concurrency=None, offsets_s=(0.0, 1.0, 9.0, 9.5))
    due, _ = played(requests, open_loop, [3.0, 1.0, 1.0, 1.0])

    assert [due[i].intended_s for i in range(4)] == [0.0, 5.0, 9.0, 9.5]


def test_a_slot_serves_others_while_a_session_thinks() -> None:
    """A closed loop keeps its number in flight."""
    requests = [request(0, "s", turn=0), request(1, "s", turn=1, think_s=5.0), *plain(8)[2:]]
    due, ends = played(requests, Schedule(concurrency=1), [1.0] * 8)

    assert due[2].intended_s == 1.0
    assert due[1].intended_s >= ends[0] + 5.0
    assert max(ends.values()) == 8.0


@given(
    st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=25),
    st.integers(1, 4),
    st.data(),
)
def test_no_session_is_ever_ahead_of_itself(
    sessions: list[str | None], slots: int, data: st.DataObject
) -> None:
    """All requests go once, turns in order, and never more than the slots at a time."""
    turns = dict.fromkeys({"a", "b", "c"}, -1)
    requests = []
    for index, session in enumerate(sessions):
        if session is not None:
            turns[session] += 1
        requests.append(request(index, session, turn=None if session is None else turns[session]))
    times = st.floats(0.001, 10.0)
    service_s = [data.draw(times) for _ in requests]
    due, ends = played(requests, Schedule(concurrency=slots), service_s)

    assert sorted(due) == list(range(len(requests)))
    for before, after in following_turns(requests).items():
        assert ends[before] <= due[after].intended_s
    for item in due.values():
        inside = [
            other for other in due.values() if other.could_s <= item.could_s < ends[other.index]
        ]
        assert len(inside) <= slots


@given(
    count=st.integers(1, 30),
    processes=st.integers(1, 5),
    slots=st.integers(1, 8),
    timed=st.booleans(),
)
def test_processes_share_out_all_requests_and_slots(
    *, count: int, processes: int, slots: int, timed: bool
) -> None:
    """Nothing is lost, sessions stay whole, and each request keeps its time."""
    requests = tuple(
        request(i, f"s{i % 4}", turn=i // 4) if i % 3 else request(i) for i in range(count)
    )
    offsets = tuple(float(i) for i in range(count)) if timed else None
    plan = LoadPlan(
        host="h",
        port=1,
        schedule=Schedule(concurrency=slots, offsets_s=offsets),
        requests=requests,
    )
    parts = split_plan(plan, processes)
    sent = [item.request_id for part in parts for item in part.requests]
    at = dict(zip([r.request_id for r in requests], range(count), strict=True))

    assert sorted(sent, key=lambda name: at[name]) == [r.request_id for r in requests]
    assert sum(part.schedule.concurrency or 0 for part in parts) <= slots
    owners = {(item.session, place) for place, p in enumerate(parts) for item in p.requests}
    named = [session for session, _ in owners if session is not None]
    assert len(named) == len(set(named))
    for part in parts:
        if timed:
            assert part.schedule.offsets_s == tuple(
                float(at[item.request_id]) for item in part.requests
            )


def test_slots_of_several_processes_begin_between_each_other() -> None:
    """A ramp of four slots is the same ramp in two processes."""
    plan = LoadPlan(
        host="h", port=1, schedule=Schedule(concurrency=4, ramp_s=2.0), requests=tuple(plain(9))
    )
    parts = split_plan(plan, 2)
    begins = [offset for part in parts for offset in part.schedule.slot_offsets_s() or []]

    assert sorted(begins) == [0.0, 0.5, 1.0, 1.5]


def test_gangs_stay_in_one_process() -> None:
    """They wait for each other."""
    plan = LoadPlan(
        host="h", port=1, schedule=Schedule(concurrency=4, gang=True), requests=tuple(plain(9))
    )

    assert split_plan(plan, 3) == [plan]


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": 0},
        {"concurrency": None},
        {"concurrency": 1, "offsets_s": (2.0, 1.0)},
        {"concurrency": 1, "offsets_s": (-1.0, 1.0)},
        {"concurrency": 1, "offsets_s": (0.0, float("nan"))},
        {"concurrency": 2, "offsets_s": (1.0,), "gang": True},
        {"concurrency": 2, "gang": True, "ramp_s": 1.0},
        {"concurrency": 2, "ramp_s": -1.0},
        {"concurrency": None, "offsets_s": (1.0,), "ramp_s": 1.0},
    ],
)
def test_an_impossible_schedule_is_refused(values: dict[str, object]) -> None:
    """Times do not run backwards, no slot sends nothing, and gangs do not go by the clock."""
    with pytest.raises(InvalidInput):
        Schedule(**values)  # type: ignore[arg-type]
