"""Faults met by others, against the cases' stub engine: start, stop, and what the client notes."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from advisor.errors import EngineFailed
from advisor.measurement.records import Outcome, RequestRecord
from advisor.serving import ServingConfig
from advisor.states import FailureKind
from probes.load.plan import LoadPlan, PlannedRequest, ReplayRule, load_plan
from probes.load.runner import run_load
from probes.load.schedule import Schedule
from probes.vllm.command import TOKEN_VARIABLE
from probes.vllm.engine import RunningEngine
from probes.vllm.processes import (
    find_engines,
    kill_engines,
    listens,
    memory_bytes,
    shared_memory,
)
from probes.vllm.server import StartProgress, free_port, start_engine
from probes.vllm.watchdog import watched
from tests.fakes.engines import chat_request, planted_plan, stub_plan

pytestmark = pytest.mark.processes
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux shows it
SLOW = {"base_step_s": 0.1}
RULE = ReplayRule(cap_tokens=64, default_tokens=16, fixed=False)


@pytest.fixture
def stub(shared: Path) -> Path:
    """The stub engine's script."""
    return shared / "cases" / "stub_engine.py"


@contextmanager
def running(folder: Path, stub: str) -> Iterator[RunningEngine]:
    """The stub engine in one of its modes."""
    with start_engine(stub_plan(folder, stub)) as engine:
        yield engine


def _set_when(event: threading.Event, log: Path, words: str) -> None:
    """Set `event` when the stub's log says so, within 30 s."""
    for _ in range(300):
        if words in log.read_text():
            event.set()
            return
        time.sleep(0.1)


def answered(engine: RunningEngine, count: int = 1, concurrency: int = 1) -> list[RequestRecord]:
    """Records of `count` chat requests."""
    requests = [chat_request(i, f"question {i}") for i in range(count)]
    plan = load_plan(
        requests,
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        concurrency=concurrency,
        rule=RULE,
    )
    return list(run_load(plan).records)


def test_the_first_token_is_not_the_role_frame(stub: Path, tmp_path: Path) -> None:
    """Case S-01: 0.5 s until the first word, not the moment the stream opens."""
    with running(tmp_path, f"{stub} rolefirst --delay 0.5") as engine:
        (record,) = answered(engine)

    assert record.outcome is Outcome.OK
    assert record.ttft_s is not None
    assert record.ttft_s >= 0.5
    assert record.output_tokens == 3
    assert len(record.frame_times_s) == 3


def test_several_tokens_in_a_frame_are_counted_by_usage(stub: Path, tmp_path: Path) -> None:
    """Case S-03: 16 tokens in 5 frames; frames would make speculation look useless."""
    with running(tmp_path, f"{stub} packed") as engine:
        (record,) = answered(engine)

    assert (record.output_tokens, len(record.frame_times_s)) == (16, 5)
    assert record.tpot_s == pytest.approx(0.4 / 15, rel=0.5)
    assert record.token_ids is None


def test_cut_characters_arrive_whole(stub: Path, tmp_path: Path) -> None:
    """Case D-03: the stream's writes cut every character."""
    with running(tmp_path, f"{stub} utf8split") as engine:
        (record,) = answered(engine)

    assert (record.outcome, record.output_tokens) == (Outcome.OK, 8)


def test_messages_go_to_the_chat_route_once_with_usage(stub: Path, tmp_path: Path) -> None:
    """Cases E-28 and S-08: the stub's own log shows route, model name, usage and no retry."""
    log = tmp_path / "stub.log"
    with running(tmp_path, f"{stub} ok --log {log}") as engine:
        records = answered(engine, count=5, concurrency=2)
        name = engine.served_model_name
    posts = [
        entry
        for line in log.read_text().splitlines()
        if (entry := json.loads(line))["event"] == "post"
    ]

    assert [record.output_tokens for record in records] == [5] * 5
    assert len(posts) == 5
    assert {post["path"] for post in posts} == {"/v1/chat/completions"}
    assert {post["model"] for post in posts} == {name}
    assert all(post["stream_options"] == {"include_usage": True} for post in posts)


def test_a_refused_request_is_a_failure_with_its_status(stub: Path, tmp_path: Path) -> None:
    """Case S-07: failures are counted apart, without the server's message."""
    with running(tmp_path, f"{stub} strictname") as engine:
        plan = LoadPlan(
            host=engine.host,
            port=engine.port,
            schedule=Schedule(concurrency=1),
            requests=(
                PlannedRequest(
                    request_id="a",
                    label=None,
                    path="/v1/chat/completions",
                    body={"model": "other", "stream": True},
                ),
            ),
        )
        (record,) = run_load(plan).records

    assert (record.outcome, record.error) == (Outcome.FAILED, "http_404:404")
    assert record.ttft_s is None


def test_a_closed_port_is_a_quick_failure() -> None:
    """Case D-08: no limit is burnt on it."""
    plan = LoadPlan(
        host="127.0.0.1",
        port=free_port(),
        schedule=Schedule(concurrency=1),
        requests=(PlannedRequest(request_id="a", label=None, path="/v1/completions", body={}),),
    )
    (record,) = run_load(plan).records

    assert record.error == "transport:ConnectionRefusedError"
    assert record.end_s - record.sent_s < 2


def test_a_cancelled_load_drops_its_requests(stub: Path, tmp_path: Path) -> None:
    """Case D-01: the stub notices that its client left."""
    log = tmp_path / "stub.log"
    cancelled = threading.Event()
    with running(tmp_path, f"{stub} slowstream --log {log}") as engine:
        plan = load_plan(
            [chat_request(0, "q")],
            host=engine.host,
            port=engine.port,
            model=engine.served_model_name,
            concurrency=1,
            rule=RULE,
        )
        threading.Thread(target=_set_when, args=(cancelled, log, '"post"')).start()
        with pytest.raises(EngineFailed) as failure:
            run_load(plan, cancelled=cancelled)
        noticed = threading.Event()
        _set_when(noticed, log, '"client_gone"')

    assert failure.value.kind == FailureKind.CANCELLED
    assert noticed.is_set()


def test_a_slow_start_is_waited_for(stub: Path, tmp_path: Path) -> None:
    """Case E-24: health says "loading" for a while; the progress shows that it is waited for."""
    seen: list[StartProgress] = []
    plan = stub_plan(tmp_path, f"{stub} slowstart --delay 3")
    with start_engine(plan, on_progress=seen.append) as engine:
        alive = engine.alive

    assert alive
    assert seen[-1].elapsed_s >= 2.5
    assert seen[-1].limit_s > 400


def test_a_dead_start_is_not_waited_for(stub: Path, tmp_path: Path) -> None:
    """Case E-24: exit code 1 and the last log lines in less than 5 s."""
    began_s = time.monotonic()
    with pytest.raises(EngineFailed) as failure:
        start_engine(stub_plan(tmp_path, f"{stub} exit1"))

    assert time.monotonic() - began_s < 5
    assert failure.value.kind == FailureKind.NO_KV_MEMORY
    assert "exit code 1" in failure.value.detail
    assert "FATAL stub engine cannot start" in failure.value.detail


def test_a_start_beyond_its_limit_is_ended(stub: Path, tmp_path: Path) -> None:
    """The limit can be set; nothing is left of the engine."""
    plan = stub_plan(tmp_path, f"{stub} slowstart --delay 60", start_timeout_s=1.0)
    with pytest.raises(EngineFailed) as failure:
        start_engine(plan)

    assert failure.value.kind == FailureKind.START_TIMEOUT
    assert find_engines({plan.token}) == ()


def test_a_cancelled_start_is_ended(stub: Path, tmp_path: Path) -> None:
    """A study can be cancelled while its engine loads."""
    cancelled = threading.Event()
    plan = stub_plan(tmp_path, f"{stub} slowstart --delay 60")
    threading.Timer(0.7, cancelled.set).start()
    with pytest.raises(EngineFailed) as failure:
        start_engine(plan, cancelled=cancelled)

    assert failure.value.kind == FailureKind.CANCELLED
    assert find_engines({plan.token}) == ()


def test_a_child_in_a_session_of_its_own_is_ended_too(stub: Path, tmp_path: Path) -> None:
    """Case E-22: the front end's end leaves a worker that holds the device; it is found."""
    plan = stub_plan(tmp_path, f"{stub} orphan")
    engine = start_engine(plan)
    held = find_engines({plan.token})
    engine.stop()

    assert len(held) >= 3  # guardian, server, child
    assert find_engines({plan.token}) == ()


def test_the_kill_frees_memory_and_port_and_the_next_start_succeeds(
    stub: Path, tmp_path: Path
) -> None:
    """Case E-22: SIGKILL of the guardian itself; the sweep by token finds what is left of it."""
    engine = start_engine(stub_plan(tmp_path, f"{stub} orphan"))
    held = memory_bytes({engine.token})
    psutil.Process(engine.pid).kill()
    engine.process.wait(10)
    kill_engines({engine.token})
    left = (find_engines({engine.token}), memory_bytes({engine.token}))
    with running(tmp_path, f"{stub} orphan") as following:
        serves = following.healthy()

    assert held > 0
    assert left == ((), 0)
    assert not listens(engine.host, engine.port)
    assert serves


def test_a_taken_port_is_refused_and_a_free_one_is_found(stub: Path, tmp_path: Path) -> None:
    """Case E-23: a stranger's port is never used; without a wish another one is taken."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(EngineFailed) as failure:
            start_engine(stub_plan(tmp_path, f"{stub} ok", port=port))
        with start_engine(stub_plan(tmp_path, f"{stub} ok")) as engine:
            other = engine.port

    assert failure.value.kind == FailureKind.PORT_IN_USE
    assert other != port


def test_a_server_of_another_model_is_not_measured(stub: Path, tmp_path: Path) -> None:
    """Case E-23: what answers on the port must list the name of this start."""
    plan = stub_plan(tmp_path, f"{stub} ok --model left-over")
    with pytest.raises(EngineFailed, match="left-over") as failure:
        start_engine(plan)

    assert failure.value.kind == FailureKind.WRONG_SERVER
    assert find_engines({plan.token}) == ()


def test_an_engine_that_dies_is_noticed(stub: Path, tmp_path: Path) -> None:
    """Its end is an error with its log, not a hanging load."""
    with running(tmp_path, f"{stub} ok") as engine:
        server = next(item for item in find_engines({engine.token}) if item.pid != engine.pid)
        psutil.Process(server.pid).kill()
        engine.process.wait(10)
        with pytest.raises(EngineFailed) as failure:
            engine.snapshot()

    assert failure.value.kind == FailureKind.DIED


def busy_load(engine: RunningEngine) -> LoadPlan:
    """A load that takes far longer than the test waits for it."""
    return load_plan(
        [chat_request(index, "q", output_tokens=400) for index in range(4)],
        host=engine.host,
        port=engine.port,
        model=engine.served_model_name,
        concurrency=2,
        rule=ReplayRule(cap_tokens=400, default_tokens=400, fixed=True),
    )


def signalled(engine: RunningEngine, number: int) -> threading.Event:
    """Sends the signal to the engine's server 1.5 s from now; the event is set when it was sent."""
    sent = threading.Event()

    def send() -> None:
        for item in find_engines({engine.token}):
            if item.pid != engine.pid:
                psutil.Process(item.pid).send_signal(number)
        sent.set()

    threading.Timer(1.5, send).start()
    return sent


def under_load(engine: RunningEngine, sent: threading.Event) -> tuple[EngineFailed, float]:
    """How a watched load ended, and how long after the signal."""
    with (
        pytest.raises(EngineFailed) as failure,
        watched(engine, threading.Event()) as ended,
    ):
        run_load(busy_load(engine), cancelled=ended)
    assert sent.is_set()
    return failure.value, time.monotonic()


def test_an_engine_that_dies_under_load_is_noticed_at_once(tmp_path: Path) -> None:
    """Not at the requests' own limits, which are minutes."""
    with start_engine(planted_plan(tmp_path, SLOW, ServingConfig())) as engine:
        sent = signalled(engine, signal.SIGKILL)
        began_s = time.monotonic()
        error, ended_s = under_load(engine, sent)

    assert error.kind == FailureKind.DIED
    assert ended_s - began_s - 1.5 < 5  # 2 s on a machine that has nothing else to do


def test_an_engine_that_hangs_under_load_is_ended(tmp_path: Path) -> None:
    """It still has its port and its memory; the watchdog sees that nothing moves."""
    plan = planted_plan(tmp_path, SLOW, ServingConfig(), hang_s=2.0)
    with start_engine(plan) as engine:
        error, _ = under_load(engine, signalled(engine, signal.SIGSTOP))
        alive = engine.alive

    assert error.kind == FailureKind.HUNG
    assert "did not answer" in error.detail or "no token" in error.detail
    assert alive
    assert find_engines({engine.token}) == ()


def test_the_shared_memory_of_a_killed_process_is_given_back(tmp_path: Path) -> None:
    """A killed process leaves its segments to nobody; a stranger's segment stays."""
    token = f"rt-{tmp_path.name}"
    script = (
        "from multiprocessing import shared_memory as s, resource_tracker as r\n"
        "import time\n"
        "m = s.SharedMemory(create=True, size=1 << 20)\n"
        "r.unregister(m._name, 'shared_memory')\n"
        "print(m.name, flush=True); time.sleep(600)\n"
    )
    names = []
    for value in (token, "another"):
        argv = [sys.executable, "-c", script]
        process = subprocess.Popen(argv, env={TOKEN_VARIABLE: value}, stdout=subprocess.PIPE)
        assert process.stdout is not None
        names.append((process, SHARED_MEMORY / process.stdout.readline().decode().strip()))
    (_, segment), (_, foreign) = names
    seen = shared_memory({token})
    killed = kill_engines({token})
    gone, stays = not segment.exists(), foreign.exists()
    for process, path in names:
        process.kill()
        process.wait(10)
        process.stdout.close()  # type: ignore[union-attr]
        path.unlink(missing_ok=True)

    assert killed >= 1  # Python's own tracker process counts too
    assert (seen, gone, stays) == (frozenset({segment}), True, True)
