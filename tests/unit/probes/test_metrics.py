"""Counters of the engine and their differences."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from probes.vllm.metrics import (
    EngineSnapshot,
    GaugePeaks,
    GaugeSampler,
    UnusableCounters,
    difference,
    parse_metrics,
)
from tests.fakes.planted_core import PlantedCore
from tests.fakes.planted_text import metrics_text
from tests.fakes.planted_truth import Truth, settings


def snapshot(**totals: float) -> EngineSnapshot:
    """A snapshot with these vLLM counters, without prefix and suffix."""
    text = {
        "prompt_tokens": 0.0,
        "generation_tokens": 0.0,
        "prefix_cache_queries": 0.0,
        "prefix_cache_hits": 0.0,
        "num_preemptions": 0.0,
        **totals,
    }
    lines = [f'vllm:{name}_total{{engine="0"}} {value}' for name, value in text.items()]
    return parse_metrics("\n".join(lines) + "\n")


def test_vllms_own_text_is_read(shared: Path) -> None:
    """The figures of a real engine after 128 requests."""
    text = (shared / "engine" / "vllm-0.32.0-cpu-metrics.txt").read_text()
    counters = difference(snapshot(), parse_metrics(text), None)

    assert counters.generation_tokens == 5665
    assert counters.prompt_tokens == 29482
    assert counters.engine_steps == 1117
    assert (counters.prefix_queries, counters.prefix_hits) == (29482, 7040)
    assert (counters.drafts, counters.accepted_per_position) == (0, ())
    assert parse_metrics(text).cache_info["num_gpu_blocks"] == "728"


def test_the_hit_rate_of_a_run_is_a_difference(shared: Path) -> None:
    """Case S-10: counters go on from the first run; the second one's rate is 98 %, not 49 %."""
    case = json.loads((shared / "cases" / "s10_two_runs.json").read_text())
    snapshots = [
        snapshot(prefix_cache_queries=run[when]["queries"], prefix_cache_hits=run[when]["hits"])
        for run in case["runs"]
        for when in ("before", "after")
    ]
    first = difference(snapshots[0], snapshots[1], None)
    second = difference(snapshots[2], snapshots[3], None)

    assert first.prefix_hits / first.prefix_queries == 0
    assert second.prefix_hits / second.prefix_queries == pytest.approx(0.98)


def test_a_counter_that_went_down_makes_no_difference() -> None:
    """The engine was restarted in between."""
    with pytest.raises(UnusableCounters, match="restarted"):
        difference(snapshot(generation_tokens=5), snapshot(generation_tokens=4), None)


def test_a_server_without_vllms_counters_is_refused() -> None:
    """Zeroes would read as a measurement."""
    with pytest.raises(UnusableCounters, match="prompt_tokens"):
        parse_metrics("# stub\nstub_requests_running 0\n")


def test_accepted_tokens_are_counted_by_position() -> None:
    """In order of position, however many there are."""
    core = PlantedCore(Truth(), settings(Truth(), {"speculative_config": SPECULATION}))
    before = parse_metrics(metrics_text(core, "m"))
    core.counters.per_position = [9, 5, 2, 1] + [0] * 8
    core.counters.drafts = 12

    counted = difference(before, parse_metrics(metrics_text(core, "m")), None)

    assert counted.accepted_per_position == (9, 5, 2, 1, *[0] * 8)
    assert counted.drafts == 12


def test_steps_that_the_engine_does_not_report_are_unknown() -> None:
    """None, not zero."""
    assert difference(snapshot(), snapshot(), None).engine_steps is None


def test_peaks_are_the_highest_samples() -> None:
    """A gauge that was never sampled has no peak."""
    idle = replace(snapshot(), kv_usage=0.1, running=1, waiting=0)
    busy = replace(snapshot(), kv_usage=0.7, running=3, waiting=None)
    peaks = GaugePeaks().with_sample(idle).with_sample(busy).with_sample(idle)

    assert peaks == GaugePeaks(kv_usage=0.7, running=3, waiting=0)
    assert difference(snapshot(), snapshot(), None).peak_running is None


def test_a_short_load_shows_its_height_in_its_steps() -> None:
    """Whatever the samples missed: 144 tokens in 50 steps, of which 10 were accepted drafts."""
    counted = {"vllm:generation_tokens_total": 144.0, "vllm:iteration_tokens_total_count": 50.0}
    drafted = {"vllm:spec_decode_num_accepted_tokens_total": 50.0}
    before, after = snapshot(), snapshot()
    plain = replace(after, totals={**after.totals, **counted})
    missed = GaugePeaks(running=1)

    assert difference(before, plain, missed).peak_running == 3
    assert difference(before, plain, GaugePeaks(running=8)).peak_running == 8
    speculating = replace(plain, totals={**plain.totals, **drafted})
    assert difference(before, speculating, missed).peak_running == 2


def test_a_missed_sample_does_not_end_the_sampling() -> None:
    """Whoever drives the load notices a dead engine."""
    missed: list[int] = []
    sampled = threading.Event()

    def fetch() -> EngineSnapshot:
        if not missed:
            missed.append(1)
            raise UnusableCounters("x", "is missing")
        sampled.set()
        return replace(snapshot(), running=4)

    sampler = GaugeSampler(fetch, period_s=0.001)
    with sampler:
        sampled.wait(2)

    assert sampler.peaks.running == 4


SPECULATION = {"num_speculative_tokens": 12}


def test_names_of_earlier_versions_mean_the_same() -> None:
    """Before 0.11 the cache's gauges and counters named the device; today's name wins."""
    lines = (
        'vllm:prompt_tokens_total{engine="0"} 5.0',
        'vllm:generation_tokens_total{engine="0"} 7.0',
        'vllm:num_preemptions_total{engine="0"} 0.0',
        'vllm:gpu_prefix_cache_queries_total{engine="0"} 40.0',
        'vllm:gpu_prefix_cache_hits_total{engine="0"} 30.0',
        'vllm:gpu_cache_usage_perc{engine="0"} 0.25',
    )
    old = parse_metrics("\n".join(lines) + "\n")
    both = parse_metrics("\n".join((*lines, "vllm:kv_cache_usage_perc 0.5")) + "\n")

    assert old.kv_usage == 0.25
    assert old.totals["vllm:prefix_cache_queries_total"] == 40
    assert old.totals["vllm:prefix_cache_hits_total"] == 30
    assert both.kv_usage == 0.5
