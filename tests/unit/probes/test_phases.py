"""The phases of a start, and how long each took."""

import pytest

from probes.vllm.phases import PhaseClock, phase_of

LOADING = "INFO Starting to load model m...\n"
LOADED = LOADING + "INFO Loading weights took 0.80 seconds\n"
CACHE = LOADED + "INFO CPU KV cache size: 93,184 tokens\n"
WARM = CACHE + "INFO init engine (profile, create kv cache, warmup model) took 7.02 s\n"
SERVING = WARM + "INFO:     Application startup complete.\n"


class Clock:
    """A planted clock."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def __call__(self) -> float:
        return self.at_s


def test_a_log_names_the_last_phase_that_it_reached() -> None:
    """Earlier lines stay in it."""
    found = [phase_of(log) for log in ("", LOADING, LOADED, CACHE, WARM, SERVING)]

    assert found == ["launching", "loading", "profiling", "warming up", "opening", "serving"]


def test_the_phases_add_up_to_the_start() -> None:
    """Each lasts until the next was seen, the last one until the engine was ready."""
    clock = Clock()
    phases = PhaseClock(clock)
    for at_s, log in ((101.0, ""), (110.0, LOADING), (112.0, LOADED), (115.0, CACHE)):
        clock.at_s = at_s
        phases.look(log)
    for clock.at_s, log in ((121.0, WARM), (122.0, SERVING)):
        phases.look(log)

    assert phases.durations(22.5) == (
        ("launching", 10.0),
        ("loading", 2.0),
        ("profiling", 3.0),
        ("warming up", 6.0),
        ("opening", 1.5),
    )
    assert sum(seconds for _, seconds in phases.durations(22.5)) == pytest.approx(22.5)


def test_a_phase_that_was_not_seen_counts_for_the_one_before() -> None:
    """A start faster than the looks at it is all of one phase."""
    clock = Clock()
    phases = PhaseClock(clock)
    clock.at_s = 100.2
    phases.look(SERVING)

    ((name, seconds),) = phases.durations(0.3)

    assert name == "launching"
    assert seconds == pytest.approx(0.3)
