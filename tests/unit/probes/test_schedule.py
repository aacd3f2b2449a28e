"""Intended send times."""

import json
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import InvalidInput
from probes.load.schedule import Schedule


def test_waiting_for_a_slot_counts_as_latency(shared: Path) -> None:
    """Case S-06: schedule-relative latency, not that of the client's own queue."""
    case = json.loads((shared / "cases" / "s06_schedule.json").read_text())
    count, service_s = case["n"], case["service_time_s"]
    schedule = Schedule(
        concurrency=case["client_concurrency"],
        offsets_s=tuple(i / case["target_rate_rps"] for i in range(count)),
    )
    free_s = 0.0
    latencies_s, waits_s = [], []
    for index in range(count):
        intended_s = schedule.intended_s(index, start_s=0.0, free_s=free_s)
        sent_s = max(free_s, intended_s)
        free_s = sent_s + service_s
        latencies_s.append(free_s - intended_s)
        waits_s.append(sent_s - intended_s)

    assert latencies_s == pytest.approx([0.5 + 0.4 * i for i in range(count)])
    assert np.mean(latencies_s) == pytest.approx(1.9)
    assert np.quantile(latencies_s, 0.99) == pytest.approx(3.272)
    assert np.mean(waits_s) == pytest.approx(1.4)
    assert count / free_s == pytest.approx(2.0)


def test_a_closed_loop_wants_its_request_when_a_slot_is_free() -> None:
    """There is no clock to be late against."""
    assert Schedule(concurrency=2).intended_s(5, start_s=1.0, free_s=7.5) == 7.5


@pytest.mark.parametrize(
    "values",
    [
        {"concurrency": 0},
        {"concurrency": 1, "offsets_s": (2.0, 1.0)},
        {"concurrency": 2, "offsets_s": (1.0,), "gang": True},
    ],
)
def test_an_impossible_schedule_is_refused(values: dict[str, object]) -> None:
    """Times do not run backwards, no slot sends nothing, and gangs do not go by the clock."""
    with pytest.raises(InvalidInput):
        Schedule(**values)  # type: ignore[arg-type]
