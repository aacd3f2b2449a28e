"""The steady part of a load: what is left out, and what is told as not steady."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.measurement.protocol.flow import token_curve
from advisor.measurement.protocol.steady import (
    inside,
    mser,
    peak_in_flight,
    steady_window,
    under_load,
    why_unsteady,
)
from advisor.measurement.records import Outcome, RequestRecord
from tests.fakes.planted_server import PlantedServer, closed_loop, open_loop
from tests.fakes.records import record

SERVER = PlantedServer(noise=0.03)


def loop(
    server: PlantedServer = SERVER, *, requests: int = 160, seed: int = 0
) -> list[RequestRecord]:
    """A closed loop of 8."""
    rng = np.random.default_rng(seed)
    return closed_loop(server, concurrency=8, requests=requests, rng=rng).records


def test_mser_cuts_what_differs_at_the_front() -> None:
    """Three of twenty batches, none of equal ones, and never more than half."""
    rng = np.random.default_rng(0)
    noise = 0.01 * rng.standard_normal(20)

    assert mser(np.concatenate((np.full(3, 2.0), np.ones(17))) + noise) == 3
    assert mser(np.ones(20)) == 0
    assert mser(np.concatenate((np.full(13, 2.0), np.ones(7))) + noise) is None


def test_the_window_begins_after_the_first_ends_and_ends_with_the_last_send() -> None:
    """So that ramp and drain are outside."""
    records = loop()
    window = steady_window(records, concurrency=8)
    ends = sorted(item.end_s for item in records)
    sends = sorted(item.sent_s for item in records)

    assert window.steady
    assert window.since_s >= ends[7]
    assert window.until_s == sends[-1]
    assert window.left_out == len(records) - len(inside(records, window))
    assert why_unsteady(records, window, concurrency=8) is None


def test_too_few_requests_are_told_not_judged() -> None:
    """The whole load then; nobody says that it was not steady."""
    records = loop(requests=16)
    window = steady_window(records, concurrency=8)

    assert (window.steady, window.left_out, window.since_s) == (False, 0, 0.0)
    assert window.rule.startswith("too few requests to tell: 16")
    assert why_unsteady(records, window, concurrency=8) is None


def test_few_requests_are_cut_by_the_ends_alone() -> None:
    """Twenty requests one after another, one frame each."""
    records = [record(float(at), at + 1.0) for at in range(20)]
    window = steady_window(records, concurrency=1)

    assert (window.steady, window.since_s, window.until_s) == (True, 1.0, 19.0)
    assert "too few of them" in window.rule
    assert why_unsteady(records, window, concurrency=1) is None


def test_answers_that_end_while_the_load_drains_are_cut_by_their_sending() -> None:
    """No answer is left out for its length, and a load that would lose most keeps all."""
    records = [record(float(at), at + 2.5) for at in range(10)]

    assert [item.sent_s for item in under_load(records, 9.0)] == list(range(7))
    assert under_load(records, 3.0) == records
    assert under_load(records, 99.0) == records


@pytest.mark.parametrize("seed", range(3))
def test_an_engine_that_slows_down_is_told(seed: int) -> None:
    """By a third from the middle on."""
    span_s = max(item.end_s for item in loop(seed=seed))
    slower = replace(SERVER, slowed=((span_s / 2, np.inf, 1.33),))
    records = loop(slower, seed=seed)
    told = why_unsteady(records, steady_window(records, concurrency=8), concurrency=8)

    assert told is not None
    assert told.startswith("not steady: ")


def test_a_stall_is_told() -> None:
    """A tenth of the load at a tenth of the speed, late: no batch of time before it differs."""
    span_s = max(item.end_s for item in loop())
    stalled = replace(SERVER, slowed=((0.7 * span_s, 0.8 * span_s, 10.0),))
    records = loop(stalled)
    told = why_unsteady(records, steady_window(records, concurrency=8), concurrency=8)

    assert told is not None
    assert "not steady" in told


def test_an_engine_that_warms_up_is_cut_and_steady() -> None:
    """Slow for the first eighth: that is no fault of the rest."""
    span_s = max(item.end_s for item in loop())
    cold = replace(SERVER, slowed=((0.0, span_s / 5, 1.6),))
    records = loop(cold)
    window = steady_window(records, concurrency=8)

    assert window.steady
    assert why_unsteady(records, window, concurrency=8) is None
    assert window.since_s >= 0.95 * span_s / 5


def test_an_open_loop_has_a_window_too() -> None:
    """Its slots are the highest number that was in flight."""
    rng = np.random.default_rng(2)
    records = open_loop(SERVER, rate_per_s=6, requests=300, rng=rng).records
    window = steady_window(records, concurrency=None)

    assert peak_in_flight(records) > 4
    assert window.steady
    assert why_unsteady(records, window, concurrency=None) is None


def test_tokens_flow_between_frames() -> None:
    """Two frames with known tokens, one request without any, one that failed."""
    records = [
        record(0, 2, frame_times_s=(1.0, 2.0), frame_tokens=(2, 8)),
        record(0, 1, output_tokens=None),
        record(0, 1, outcome=Outcome.FAILED),
    ]
    curve = token_curve(records)

    assert curve.between(np.array([0.0, 0.5, 1.0, 1.5, 2.0])) == pytest.approx([1, 1, 4, 4])
    assert token_curve(records[1:]).between(np.array([0.0, 1.0])) == pytest.approx([0])


def test_frames_that_do_not_add_up_share_the_tokens_evenly() -> None:
    """Usage wins over what frames seemed to carry."""
    even = [record(0, 2, frame_times_s=(1.0, 2.0), frame_tokens=(2, 9))]

    assert token_curve(even).between(np.array([0.0, 1.0, 2.0])) == pytest.approx([5, 5])
