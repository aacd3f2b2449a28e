"""Where memory went, and from which load on the cache was too small."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.hardware import datasheet
from advisor.measurement.memory import breakdown, preemption_onset, requests_held
from advisor.measurement.records import LoadPoint, OpenLoop
from advisor.serving import EngineFacts
from advisor.units import GIB
from tests.fakes.records import NOTHING, point, record

GPU = EngineFacts(
    device_memory_bytes=80 * GIB,
    weight_bytes=15 * GIB,
    consumed_bytes=17 * GIB,
    kv_cache_bytes=50 * GIB,
    activation_bytes=2 * GIB,
    graph_bytes=1 * GIB,
    headroom_bytes=8 * GIB,
)


def loaded(concurrency: int, preemptions: int = 0, usage: float | None = None) -> LoadPoint:
    """A closed loop of requests of 5 and 10 tokens."""
    counters = replace(NOTHING, preemptions=preemptions, peak_kv_usage=usage)
    return point(record(0, 1), concurrency=concurrency, counters=counters)


def test_a_gpu_is_accounted_for_to_the_last_byte() -> None:
    """What no part explains is called so."""
    found = breakdown(GPU, points=[loaded(1, usage=0.2), loaded(2, usage=0.6), loaded(4)])

    assert found.runtime_bytes == 2 * GIB
    assert found.other_bytes == 2 * GIB
    assert found.kv_peak_share == 0.6
    assert found.kv_peak_bytes == 30 * GIB


def test_what_an_engine_does_not_say_stays_unknown() -> None:
    """vLLM's CPU build states its cache and little else."""
    found = breakdown(EngineFacts(kv_cache_bytes=GIB), device=datasheet("h100-sxm"))

    assert found.device_bytes == datasheet("h100-sxm").memory_bytes
    assert (found.weight_bytes, found.runtime_bytes, found.other_bytes) == (None, None, None)
    assert (found.kv_peak_share, found.kv_peak_bytes) == (None, None)
    assert breakdown(EngineFacts()).device_bytes is None


def test_the_onset_is_the_smallest_load_that_preempted() -> None:
    """And the largest below it that did not."""
    found = preemption_onset([loaded(16, 3), loaded(4), loaded(8), loaded(8, 1), loaded(32, 9)])

    assert found is not None
    assert (found.measured, found.clear, found.safe) == (8, 4, 4)
    assert found.text == "preemptions from 8 requests in flight on"


def test_a_quiet_load_is_no_promise_above_what_the_cache_holds() -> None:
    """Requests of 15 tokens in blocks of 16: 19 usable blocks hold 19 of them."""
    facts = EngineFacts(num_blocks=20, block_size=16)
    found = preemption_onset([loaded(8), loaded(64)], facts)

    assert found is not None
    assert (found.measured, found.clear, found.predicted, found.safe) == (None, 64, 19, 19)
    assert found.text == "no preemption up to 64 requests in flight; the cache holds 19 of them"


def test_tokens_stand_for_blocks_where_those_are_not_stated() -> None:
    """And nothing stands for an engine that states no cache, or for a load without successes."""
    facts = EngineFacts(kv_cache_tokens=320, block_size=16)
    found = preemption_onset([loaded(1)], facts, request_tokens=64)
    unknown = preemption_onset([loaded(1)], EngineFacts(block_size=16))
    empty = preemption_onset([loaded(1, 1)], EngineFacts())

    assert found is not None
    assert unknown is not None
    assert empty is not None
    assert (found.predicted, unknown.predicted, empty.predicted) == (4, None, None)
    assert empty.safe is None


def test_only_closed_loops_with_the_engines_counters_tell() -> None:
    """An open loop has no load of its own; a closed port has no counters."""
    opened = replace(loaded(4, 2), open_loop=OpenLoop(arrivals="poisson", rate_per_s=1.0))
    unseen = replace(loaded(4), counters=replace(NOTHING, known=False))

    assert preemption_onset([opened, unseen]) is None


def test_case_e16_the_cache_holds_what_ran(shared: Path) -> None:
    """E-16: 77,088 tokens hold 75 requests of 1,024; 72 ran, the rest waited or was preempted."""
    case = json.loads((shared / "cases" / "e16_preempt.json").read_text())
    held = requests_held(
        num_blocks=case["kv_tokens"] // case["block_size"],
        block_size=case["block_size"],
        request_tokens=case["avg_prompt_tokens"] + case["avg_output_tokens"],
    )

    assert held == 75
    assert case["observed"]["running"] <= held < case["offered_concurrency"]
    with pytest.raises(InvalidInput):
        requests_held(num_blocks=0, block_size=16, request_tokens=1)
