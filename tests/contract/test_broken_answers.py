"""The load client over sockets, against servers that break off, refuse and cut."""

import itertools
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.measurement.records import Outcome, RequestRecord
from probes.load.plan import COMPLETION_PATH, LoadPlan
from probes.load.runner import run_load
from probes.load.schedule import Schedule
from tests.fakes.loads import DONE, ONE, USAGE, ask, event
from tests.fakes.scripted_server import HEAD, Script, scripted_server

pytestmark = pytest.mark.processes


def against(script: Script, **values: Any) -> RequestRecord:
    """What the client records of one request that is answered so."""
    with scripted_server(lambda _, __: script) as server:
        plan = LoadPlan(
            host="127.0.0.1", port=server.port, schedule=ONE, requests=(ask(0),), **values
        )
        (record,) = run_load(plan).records
    return record


WHOLE = HEAD + event("hé 🙂", token_ids=None) + event(" ok") + USAGE + DONE
CHUNKED = (
    HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    + b"".join(
        b"%x\r\n%b\r\n" % (len(part), part) for part in (event("hé 🙂"), event(" ok"), USAGE, DONE)
    )
    + b"0\r\n\r\n"
)


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["until close", "chunked"])
def test_bytes_cut_anywhere_make_the_same_record(answer: bytes) -> None:
    """40 requests, each answer cut at other places, one of them after every byte."""
    rng = np.random.default_rng(7)

    def script(number: int, _: bytes) -> Script:
        count = len(answer) - 1 if number == 0 else int(rng.integers(1, 30))
        places = sorted(rng.choice(len(answer) - 1, count, replace=False) + 1)
        edges = [0, *places, len(answer)]
        return Script(parts=[answer[a:b] for a, b in itertools.pairwise(edges)])

    with scripted_server(script) as server:
        plan = LoadPlan(
            host="127.0.0.1",
            port=server.port,
            schedule=Schedule(concurrency=4),
            requests=tuple(ask(i) for i in range(40)),
        )
        records = run_load(plan).records

    assert {record.error for record in records} == {None}
    assert {record.output_tokens for record in records} == {9}
    assert {len(record.frame_times_s) for record in records} == {2}


TORN = Script(parts=[HEAD, event("a")], reset=True, hold_s=0.1)
REFUSED = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
BUSY = b'{"error": {"message": "secret", "type": "overloaded"}}'


@pytest.mark.parametrize(
    "script, error",
    [
        (Script(parts=[HEAD, event("a")]), "stream:truncated"),
        (TORN, "transport:ConnectionResetError"),
        (Script(parts=[CHUNKED[:-40]]), "stream:truncated"),
        (Script(parts=[]), "transport:closed"),
        (Script(parts=[b"SSH-2.0-x\r\n\r\n"]), "transport:not_http"),
        (Script(parts=[REFUSED % (b"429 Too Many", len(BUSY), BUSY)]), "http_429:overloaded"),
        (Script(parts=[REFUSED % (b"200 OK", len(BUSY), BUSY)]), "in_band:overloaded"),
        (Script(parts=[REFUSED % (b"200 OK", 2, b"{}")]), "not_a_stream"),
        (Script(parts=[HEAD, event("a"), b"data: " + BUSY + b"\n\n"]), "in_band:overloaded"),
        (Script(parts=[HEAD, event("a")], hold_s=3.0), "timeout:idle"),
    ],
    ids=[
        "cut", "reset", "cut in a chunk", "closed", "not http", "429", "error as document",
        "not a stream", "error in the stream", "silence",
    ],
)  # fmt: skip
def test_an_answer_without_its_end_is_a_failure_with_a_name(script: Script, error: str) -> None:
    """Cases S-07 and D-08: never a fast success, and never the message."""
    record = against(script, idle_timeout_s=0.5)

    assert (record.outcome, record.error) == (Outcome.FAILED, error)
    assert record.end_s >= record.sent_s


def test_an_answer_may_end_without_usage_and_without_a_blank_line() -> None:
    """Case S-04: what was not counted stays unknown; the latency counts all the same."""
    record = against(Script(parts=[HEAD, event("a"), b"data: [DONE]"]))

    assert (record.outcome, record.output_tokens, record.prompt_tokens) == (Outcome.OK, None, None)
    assert record.ttft_s is not None
    assert record.tpot_s is None


def test_a_success_without_a_token_has_no_first_token() -> None:
    """Case S-04: null, not 0."""
    record = against(Script(parts=[HEAD, USAGE, DONE]))

    assert (record.outcome, record.ttft_s, record.tpot_s) == (Outcome.OK, None, None)


def test_a_long_answer_that_is_never_silent_is_not_cut() -> None:
    """Case D-08: the idle limit starts again with every byte."""
    words = [event(f"w{i} ") for i in range(8)]
    record = against(Script(parts=[HEAD, *words, USAGE, DONE], gap_s=0.15), idle_timeout_s=0.8)

    assert record.error is None
    assert record.end_s - record.sent_s > 0.8


def test_a_limit_on_the_whole_request_ends_it_and_tells_the_engine() -> None:
    """Its connection is closed at once."""
    script = Script(parts=[HEAD, *[event("w")] * 100], gap_s=0.05)
    with scripted_server(lambda _, __: script) as server:
        plan = LoadPlan(
            host="127.0.0.1",
            port=server.port,
            schedule=ONE,
            requests=(ask(0),),
            request_timeout_s=0.5,
        )
        (record,) = run_load(plan).records
        deadline = time.monotonic() + 3
        while not server.gone_s and time.monotonic() < deadline:
            time.sleep(0.05)

    assert record.error == "timeout:request"
    assert record.end_s - record.sent_s == pytest.approx(0.5, abs=0.2)
    assert server.gone_s


def test_retries_are_counted_and_never_hide_the_wait() -> None:
    """Case S-08: refused twice, then served; latency from the first sending, attempts told."""
    refused = Script(parts=[REFUSED % (b"429 Too Many", len(BUSY), BUSY)])
    served = Script(parts=[HEAD, event("a"), USAGE, DONE])

    def script(number: int, _: bytes) -> Script:
        return refused if number % 3 < 2 else served

    with scripted_server(script) as server:
        plan = LoadPlan(
            host="127.0.0.1",
            port=server.port,
            schedule=ONE,
            requests=(ask(0),),
            retries=2,
            retry_wait_s=0.1,
        )
        (patient,) = run_load(plan).records
        (once,) = run_load(replace(plan, retries=0)).records
        count = len(server.requests)

    assert (patient.outcome, patient.attempts, count) == (Outcome.OK, 3, 4)
    assert patient.e2e_s > 0.3
    assert patient.last_attempt_s < 0.2
    assert (once.attempts, once.error, once.last_sent_s) == (1, "http_429:overloaded", None)


def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    """Its tokens were made: another try would count them twice."""
    record = against(TORN, retries=3)

    assert record.attempts == 1
    assert record.outcome is Outcome.FAILED


def test_endpoints_elsewhere_get_their_key_and_path() -> None:
    """The key goes into its header, and nowhere else."""
    script = Script(parts=[HEAD, event("a"), USAGE, DONE])
    with scripted_server(lambda _, __: script) as server:
        plan = LoadPlan(
            host="localhost",
            port=server.port,
            schedule=ONE,
            requests=(ask(0, path=COMPLETION_PATH),),
            api_key="sk-1",
            base_path="/openai",
        )
        (record,) = run_load(plan).records
        head = server.requests[0].partition(b"\r\n\r\n")[0].decode()

    assert record.outcome is Outcome.OK
    assert head.startswith("POST /openai/v1/completions HTTP/1.1\r\n")
    assert f"Host: localhost:{server.port}\r\n" in head
    assert head.endswith("Authorization: Bearer sk-1")
    assert "sk-1" not in repr(plan) + repr(record)


def test_with_tls_a_server_that_cannot_show_who_it_is_is_refused() -> None:
    """Its certificate is verified; a plain server has none."""
    record = against(Script(parts=[WHOLE]), tls=True, connect_timeout_s=5)

    assert record.error is not None
    assert record.error.startswith(("transport:", "timeout:connect"))
