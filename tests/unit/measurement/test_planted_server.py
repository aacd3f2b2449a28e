"""The planted engine of the protocol's proof does what it says, and the proof can fail."""

import numpy as np
import pytest

from advisor.estimate import Estimate, Source
from advisor.measurement.capacity import Capacity
from tests.fakes.planted_server import PlantedServer, closed_loop, open_loop
from tests.fakes.records import point
from tests.validate.measurement.coverage import _holds, _within, quantities
from tests.validate.measurement.marks import Marked, through_client
from tests.validate.measurement.worlds import WORLDS, truth


def test_a_full_loop_without_prompts_is_known_in_closed_form() -> None:
    """Every step has all eight requests: its time is the time per token, of all of them."""
    server = PlantedServer(fixed_s=0.02, request_s=0.001, prompt_s=0.0, noise=0.0)
    served = closed_loop(server, concurrency=8, requests=60, rng=np.random.default_rng(0))
    full = [item for item in served.records if item.sent_s < served.records[40].sent_s]

    assert [item.tpot_s for item in full] == pytest.approx([0.028] * len(full))
    assert [item.ttft_s for item in full] == pytest.approx([0.028] * len(full))
    assert served.counters.peak_running == 8


def test_drafts_hold_as_planted() -> None:
    """By position, and every token that was accepted is counted once."""
    server = PlantedServer(survival=(0.8, 0.4), noise=0.0)
    served = closed_loop(server, concurrency=4, requests=600, rng=np.random.default_rng(1))
    counters = served.counters
    shares = [count / counters.drafts for count in counters.accepted_per_position]

    assert shares == pytest.approx([0.8, 0.4], abs=0.02)
    assert counters.accepted == sum(counters.accepted_per_position)
    assert counters.generation_tokens == counters.accepted + counters.drafts + 600


def test_a_full_cache_holds_requests_back() -> None:
    """The tokens of what runs never exceed it."""
    server = PlantedServer(kv_tokens=800, noise=0.0)
    served = closed_loop(server, concurrency=32, requests=60, rng=np.random.default_rng(2))

    counters = served.counters

    assert counters.peak_running is not None
    assert counters.peak_waiting is not None
    assert 3 <= counters.peak_running < 12
    assert counters.peak_waiting > 20


def test_an_open_loop_sends_when_it_is_to() -> None:
    """The rate asked for, from intended times, and an idle engine waits."""
    server = PlantedServer(noise=0.0)
    served = open_loop(server, rate_per_s=2.0, requests=400, rng=np.random.default_rng(3))
    last_s = max(item.sent_s for item in served.records)

    assert 400 / last_s == pytest.approx(2.0, rel=0.15)
    assert all(item.sent_s == item.intended_s for item in served.records)


def test_noise_has_mean_one() -> None:
    """So that a noisy engine is as fast as a quiet one in the mean."""
    spans = []
    for noise in (0.0, 0.08):
        server = PlantedServer(noise=noise)
        served = closed_loop(server, concurrency=4, requests=800, rng=np.random.default_rng(4))
        spans.append(max(item.end_s for item in served.records))

    assert spans[1] == pytest.approx(spans[0], rel=0.02)


def test_a_slow_client_sees_what_it_is_late_by() -> None:
    """Each frame costs it half of what there is between two of them: it keeps up; twice: not."""
    server = PlantedServer(noise=0.0)
    served = open_loop(server, rate_per_s=4.0, requests=100, rng=np.random.default_rng(5))
    per_frame_s = 1 / (4.0 * 26)
    quick, slow = (through_client(served, share * per_frame_s)[1] for share in (0.5, 2.0))

    assert quick.cpu_share == pytest.approx(0.5, rel=0.1)
    assert slow.cpu_share > 0.95
    assert slow.send_delay_p99_s > 1 > quick.send_delay_p99_s


def test_the_proof_counts_what_does_not_hold() -> None:
    """Intervals beside the truth, brackets beside it, and missing ones apart."""
    beside = Estimate(value=1.0, low=0.9, high=1.1, source=Source.MEASURED, basis="t")
    bracket = Capacity(load=2.0, fails_at=3.0, undecided=(), tries=3, reason="")
    told: list[dict[str, bool | None]] = [
        {"a": _holds(beside, 1.2), "b": _within(bracket, 2.5)},
        {"a": _holds(beside, 1.0), "b": _within(bracket, 3.5)},
        {"a": _holds(None, 1.0), "b": _within(bracket, 1.5)},
    ]

    assert list(quantities(told)) == [("a", 0.5, 2, 1), ("b", pytest.approx(1 / 3), 3, 0)]


def test_a_planted_point_without_its_mark_is_missed() -> None:
    """And a faultless one that is marked is told apart."""
    served = closed_loop(
        PlantedServer(noise=0.02), concurrency=4, requests=40, rng=np.random.default_rng(6)
    )
    clean = point(*served.records, concurrency=4)
    reached = point(*served.records, concurrency=8)

    assert Marked(kind="x", wanted="disturbed", point=clean).missed
    assert not Marked(kind="x", wanted="load not reached", point=reached).missed
    assert Marked(kind="x", wanted=None, point=reached).false
    assert not Marked(kind="x", wanted=None, point=clean).false


def test_the_truth_of_a_world_is_that_of_its_constants() -> None:
    """One request at a time: a step of 21 ms, of which each yields 1.85 tokens in the mean."""
    world = WORLDS[-1]
    true = truth(world)

    assert true.acceptance_length == pytest.approx(1.85)
    assert true.tokens_per_s == pytest.approx(1.85 / 0.021, rel=0.06)
    assert true.ttft_p50_s == pytest.approx(0.0233, rel=0.02)
