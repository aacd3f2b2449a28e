"""The load client over sockets, against a server of known pace."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest

from advisor.canonical import Json
from advisor.errors import EngineFailed
from advisor.measurement.records import Outcome
from advisor.states import FailureKind
from probes.load.plan import (
    CHAT_PATH,
    COMPLETION_PATH,
    EarlierAnswer,
    LoadPlan,
    PlannedRequest,
)
from probes.load.runner import run_load
from probes.load.schedule import Schedule
from tests.fakes.loads import DONE, ONE, USAGE, ask, by_id, event
from tests.fakes.paced_server import Pace, Paced, paced_server
from tests.fakes.scripted_server import HEAD, Script, scripted_server

pytestmark = pytest.mark.processes
TTFT_S, GAP_S = 0.1, 0.01


@pytest.fixture(scope="module")
def paced() -> Iterator[Paced]:
    """First token after 0.1 s, then one every 10 ms."""
    with paced_server(Pace(ttft_s=TTFT_S, gap_s=GAP_S)) as server:
        yield server


def load(
    server: Paced, requests: list[PlannedRequest], schedule: Schedule, **values: Any
) -> LoadPlan:
    """A load on the paced server."""
    return LoadPlan(
        host=server.host, port=server.port, schedule=schedule, requests=tuple(requests), **values
    )


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETION_PATH])
def test_a_known_pace_is_what_is_measured(paced: Paced, path: str) -> None:
    """TTFT and time per token, ids and usage, one frame a token."""
    paced.lateness()
    loaded = run_load(load(paced, [ask(i, 20, path=path) for i in range(3)], ONE))
    late_s = paced.lateness().late_max_s
    slack_s = 0.02 + late_s

    for record in loaded.records:
        assert record.outcome is Outcome.OK
        assert TTFT_S <= (record.ttft_s or 0) < TTFT_S + slack_s + loaded.health.send_delay_max_s
        assert record.tpot_s == pytest.approx(GAP_S, abs=slack_s / 19)
        assert record.output_tokens == len(record.token_ids or ()) == record.wanted_tokens == 20
        assert record.frame_tokens == (1,) * 20
    assert loaded.health.processes == 1
    assert loaded.health.frames >= 60


def test_packed_tokens_are_counted_as_tokens() -> None:
    """Case S-03: 16 tokens in frames of 4; the gap of the frames is not the time per token."""
    with paced_server(Pace(ttft_s=0.05, gap_s=0.02, packed=4)) as server:
        (record,) = run_load(load(server, [ask(0, 16)], ONE)).records

    assert record.frame_tokens == (4, 4, 4, 4)
    assert record.output_tokens == 16
    assert record.tpot_s == pytest.approx(0.24 / 15, rel=0.25)


def test_an_open_loop_sends_at_its_times_whatever_is_in_flight(paced: Paced) -> None:
    """Ten requests in half a second although each takes longer than that."""
    offsets = tuple(i * 0.05 for i in range(10))
    schedule = Schedule(concurrency=None, offsets_s=offsets)
    loaded = run_load(load(paced, [ask(i, 60) for i in range(10)], schedule))
    records = by_id(loaded)
    start_s = records["r0"].intended_s

    for place, offset in enumerate(offsets):
        record = records[f"r{place}"]
        assert record.intended_s - start_s == pytest.approx(offset)
        assert record.sent_s - record.intended_s <= loaded.health.send_delay_max_s + 0.05
    assert max(r.sent_s for r in records.values()) < min(r.end_s for r in records.values())


def test_a_slot_that_was_waited_for_is_part_of_the_latency(paced: Paced) -> None:
    """Case S-06 on a socket: all wanted at once, one slot; the third waits for two others."""
    schedule = Schedule(concurrency=1, offsets_s=(0.0, 0.0, 0.0))
    loaded = run_load(load(paced, [ask(i, 2) for i in range(3)], schedule))
    last = by_id(loaded)["r2"]

    assert last.sent_s - last.intended_s > 2 * TTFT_S
    assert (last.ttft_s or 0) > 3 * TTFT_S
    # The wait was for the engine, not for the client.
    assert loaded.health.send_delay_max_s < TTFT_S


def test_turns_quote_what_the_engine_said() -> None:
    """The second turn goes after the first answer and the thinking, with the real answer."""
    first: list[Json] = [{"role": "user", "content": "one"}]
    second: list[Json] = [
        *first,
        {"role": "assistant", "content": "recorded"},
        {"role": "user", "content": "2"},
    ]
    plans = (
        ask(0, session="s", turn=0),
        ask(1, session="s", turn=1, think_s=0.2, history=(EarlierAnswer(message=1, turn=0),)),
    )
    requests = tuple(
        replace(plan, body={**plan.body, "messages": messages})
        for plan, messages in zip(plans, (first, second), strict=True)
    )
    script = Script(parts=[HEAD, event("really "), event("said"), USAGE, DONE])
    with scripted_server(lambda _, __: script) as server:
        plan = LoadPlan(
            host="127.0.0.1",
            port=server.port,
            schedule=Schedule(concurrency=None, offsets_s=(0.0, 0.0)),
            requests=requests,
        )
        records = by_id(run_load(plan))
        sent = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]

    assert sent[0]["messages"] == first
    assert sent[1]["messages"][1] == {"role": "assistant", "content": "really said"}
    assert sent[1]["messages"][2] == second[2]
    assert records["r1"].intended_s == pytest.approx(records["r0"].end_s + 0.2)
    assert (records["r1"].session, records["r1"].turn) == ("s", 1)


def test_processes_share_a_load_and_its_start(paced: Paced) -> None:
    """Two processes: every request once, times on one clock, sessions in order."""
    requests = [ask(i, 4, session=f"s{i % 3}", turn=i // 3) for i in range(12)]
    offsets = tuple(i * 0.02 for i in range(12))
    schedule = Schedule(concurrency=None, offsets_s=offsets)
    loaded = run_load(load(paced, requests, schedule), processes=2)
    records = by_id(loaded)
    start_s = records["r0"].intended_s

    assert sorted(records) == sorted(f"r{i}" for i in range(12))
    assert loaded.health.processes == 2
    for place in range(12):
        record = records[f"r{place}"]
        assert record.intended_s >= start_s + offsets[place] - 1e-9
        if place >= 3:
            assert record.intended_s >= records[f"r{place - 3}"].end_s


def test_what_was_asked_stands_in_the_record() -> None:
    """Cases S-22 and T-23: the temperature that went out, or none; and the limit."""
    drafts = {"speculative_decoding": {"acceptance_histogram": [2, 1, 5]}}
    usage = event("", usage={"prompt_tokens": 3, "completion_tokens": 12}, metrics=drafts)
    script = Script(parts=[HEAD, event("a"), usage, DONE])
    cold, default = ask(0, 12), ask(1, 8)
    cold = replace(cold, body={**cold.body, "temperature": 0})
    with scripted_server(lambda _, __: script) as server:
        plan = LoadPlan(host="127.0.0.1", port=server.port, schedule=ONE, requests=(cold, default))
        records = by_id(run_load(plan))
        sent = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in server.requests]

    assert (sent[0]["temperature"], "temperature" in sent[1]) == (0, False)
    assert (records["r0"].temperature, records["r1"].temperature) == (0.0, None)
    assert (records["r0"].wanted_tokens, records["r1"].wanted_tokens) == (12, 8)
    assert records["r0"].accepted_histogram == (2, 1, 5)


def test_progress_is_told_after_each_request(paced: Paced) -> None:
    """Done and total."""
    seen: list[tuple[int, int]] = []
    run_load(
        load(paced, [ask(i, 1) for i in range(3)], Schedule(concurrency=3)),
        on_progress=lambda done, total: seen.append((done, total)),
    )

    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_cancelled_load_closes_its_connections(paced: Paced) -> None:
    """The engine notices that its clients left, and no client process stays."""
    cancelled = threading.Event()

    def cancel() -> None:
        while not paced.lateness().frames:
            time.sleep(0.1)
        cancelled.set()

    paced.lateness()
    threading.Thread(target=cancel).start()
    with pytest.raises(EngineFailed) as failure:
        run_load(
            load(paced, [ask(i, 5000) for i in range(4)], Schedule(concurrency=4)),
            cancelled=cancelled,
            processes=2,
        )
    time.sleep(0.5)

    assert failure.value.kind == FailureKind.CANCELLED
    assert paced.lateness().cut == 4
    assert not [
        child
        for child in psutil.Process().children(recursive=True)
        if "probes.load" in child.cmdline()
    ]
