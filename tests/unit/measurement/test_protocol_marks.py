"""What makes a point unusable beyond failures: the client, the rate, the neighbours; counters."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.measurement.protocol.client import judge_client
from advisor.measurement.protocol.counters import (
    growth,
    histogram_quantile,
    met_share,
)
from advisor.measurement.protocol.neighbours import disturbed
from advisor.measurement.protocol.reached import (
    in_flight_by_rates,
    little_gap,
    rate_reached,
    sent_rate_per_s,
)
from advisor.measurement.records import ClientHealth, OpenLoop, RequestRecord
from tests.fakes.records import point, record

HEALTHY = ClientHealth(
    processes=1,
    cpu_share=0.2,
    send_delay_p50_s=0.0002,
    send_delay_p99_s=0.002,
    send_delay_max_s=0.01,
    loop_delay_p99_s=0.002,
    frames=1000,
)


def case(shared: Path, name: str) -> Any:
    """The input of one user case."""
    return json.loads((shared / "cases" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "change,words",
    [
        ({"cpu_share": 0.9}, "90% of a core"),
        ({"send_delay_p99_s": 0.03}, "sends were up to 30.0 ms late"),
        ({"loop_delay_p99_s": 0.03}, "timers were 30.0 ms late"),
        ({"send_delay_p50_s": 0.003}, "half of the sends"),
    ],
)
def test_a_client_that_set_the_figures_is_marked(change: dict[str, float], words: str) -> None:
    """And the point is not used; what was judged limited before stays so."""
    judged = judge_client(replace(HEALTHY, **change), ttft_s=0.1)  # type: ignore[arg-type]
    found = point(record(0, 1), client=judged)

    assert judged.limited
    assert words in (judged.reason or "")
    assert found.flaws == (f"client-limited: {judged.reason}",)
    assert judge_client(judged) == judged


def test_a_quiet_client_is_not_marked() -> None:
    """What timers of a quiet machine do is below every limit."""
    assert judge_client(HEALTHY, ttft_s=0.02) == HEALTHY
    assert judge_client(HEALTHY) == HEALTHY
    assert point(record(0, 1), client=HEALTHY).usable


def test_the_limit_grows_with_the_time_to_first_token() -> None:
    """10 ms are half of 20 ms and nothing of a second."""
    late = replace(HEALTHY, send_delay_p99_s=0.01)

    assert judge_client(late, ttft_s=0.02).limited
    assert not judge_client(late, ttft_s=1.0).limited


@pytest.mark.parametrize(
    "cores,steal,told", [(0.19, 0.0, False), (0.21, None, True), (0.0, 0.06, True)]
)
def test_a_fifth_of_the_engines_core_disturbs(
    cores: float,
    steal: float | None,
    told: bool,  # noqa: FBT001
) -> None:
    """Or a twentieth of all time stolen by the hypervisor."""
    assert disturbed(neighbour_cpu_s=cores * 10, span_s=10, steal_share=steal) is told
    assert not disturbed(neighbour_cpu_s=1, span_s=0, steal_share=1.0)


def scheduled(shared: Path) -> tuple[list[RequestRecord], float]:
    """Case S-06: eight requests at 10 per second through a client that sends one at a time."""
    given = case(shared, "s06_schedule.json")
    service_s, rate = given["service_time_s"], given["target_rate_rps"]
    records = [
        record(at * service_s, (at + 1) * service_s, intended_s=at / rate)
        for at in range(given["n"])
    ]
    return records, rate


def test_case_s_06_a_rate_that_was_not_reached(shared: Path) -> None:
    """2.0 of 10 requests/s, not usable; latency from the schedule, its tail too."""
    records, rate = scheduled(shared)
    found = point(
        *records,
        concurrency=None,
        open_loop=OpenLoop(arrivals="constant", rate_per_s=rate, most_in_flight=1),
    )

    assert found.flaws == ("target rate not reached: 2.0 of 10.0 requests/s",)
    assert not found.usable
    assert found.requests_per_s == pytest.approx(2.0)
    assert found.e2e_s is not None
    assert found.e2e_s.mean == pytest.approx(1.9)
    assert found.e2e_s.max == pytest.approx(3.3)
    assert np.percentile([item.e2e_s for item in records], 99) == pytest.approx(3.272)
    assert sum(r.sent_s - r.intended_s for r in records) / 8 == pytest.approx(1.4)


def test_an_open_loop_that_kept_its_schedule_is_usable() -> None:
    """Its concurrency is what was in flight at most."""
    records = [record(at / 2, at / 2 + 1.2) for at in range(6)]
    found = point(*records, concurrency=None, open_loop=OpenLoop(arrivals="constant", rate_per_s=2))

    assert found.usable
    assert found.concurrency == 3
    assert (found.open_loop is not None, found.loaded_tokens_per_s) == (True, None)
    assert rate_reached(records[:1])
    assert sent_rate_per_s(records) == pytest.approx(2.0)


def test_a_closed_loop_has_a_concurrency() -> None:
    """Without one nothing says what was asked for."""
    with pytest.raises(InvalidInput, match="closed loop"):
        point(record(0, 1), concurrency=None)


def test_case_s_24_the_rates_say_how_many_ran(shared: Path) -> None:
    """323 of 384 predicted, 34.5 measured: nine tenths short of the plan by Little's law."""
    given = case(shared, "s24_little.json")
    ran = {
        name: in_flight_by_rates(
            given[name]["tok_s_per_gpu"] * given["gpus"], given[name]["tok_s_per_user"]
        )
        for name in ("predicted", "measured")
    }

    assert ran["predicted"] == pytest.approx(323, abs=0.5)
    assert ran["measured"] == pytest.approx(34.5, abs=0.05)
    assert little_gap(384, requests_per_s=ran["measured"], e2e_s=1.0) == pytest.approx(0.91, 0.01)
    assert little_gap(8, requests_per_s=4.0, e2e_s=2.0) == 0.0


def test_case_s_08_retries_are_seen(shared: Path) -> None:
    """Two requests, four attempts: latency as the user had it, and of the last attempt apart."""
    records = []
    for given in case(shared, "s08_retries.json")["logical_requests"]:
        first, last = given["attempts"][0], given["attempts"][-1]
        records.append(
            record(
                first["start"],
                last["end"],
                first_token_s=last["first_token"],
                last_token_s=last["end"],
                output_tokens=last["completion_tokens"],
                attempts=len(given["attempts"]),
                last_sent_s=last["start"],
            )
        )
    found = point(*records, concurrency=2)

    assert (found.requests, sum(item.attempts for item in records), found.retries) == (2, 4, 2)
    assert records[0].e2e_s == pytest.approx(4.2)
    assert records[0].ttft_s == pytest.approx(3.5)
    assert records[0].last_sent_s is not None
    assert records[0].end_s - records[0].last_sent_s == pytest.approx(1.0)
    assert "2 retries: latencies count from the first attempt" in found.flaws


def test_case_s_21_the_engines_usage_wins(shared: Path) -> None:
    """100 and 3 tokens, both at 20 ms, whatever the text would be cut into."""
    tpots = [
        record(
            0,
            given["e2e_s"],
            first_token_s=given["ttft_s"],
            output_tokens=given["usage"]["completion_tokens"],
        ).tpot_s
        for given in case(shared, "s21_retokenize.json")["requests"]
    ]

    assert tpots == pytest.approx([0.02, 0.02])


def test_case_s_03_gaps_between_frames_have_a_name_of_their_own(shared: Path) -> None:
    """100 ms from frame to frame beside 26.7 ms per token."""
    given = case(shared, "s03_multitoken_chunks.json")
    times = tuple(time for time, _ in given["events"])
    found = point(
        record(
            given["sent"],
            given["end"],
            first_token_s=times[0],
            last_token_s=times[-1],
            frame_times_s=times,
            output_tokens=given["usage"]["completion_tokens"],
        )
    )

    assert found.chunk_gap_s is not None
    assert found.tpot_s is not None
    assert found.chunk_gap_s.p50 == pytest.approx(0.1)
    assert found.tpot_s.p50 == pytest.approx(0.0267, abs=5e-5)


def test_what_does_not_fit_is_told() -> None:
    """By number, and the point can be used for the rest."""
    found = point(record(0, 1), not_fitting=3, energy_j=12.5)

    assert found.usable
    assert found.flaws == ("3 requests do not fit max_model_len and were not sent",)
    assert (found.not_fitting, found.energy_j) == (3, 12.5)


def buckets(shared: Path) -> list[tuple[float, float]]:
    """Case S-12: upper bounds and counts."""
    rows = []
    for line in (shared / "cases" / "s12_hist.prom").read_text().splitlines():
        if "_bucket" in line:
            bound = line.split('le="')[1].split('"')[0]
            rows.append((math.inf if bound == "+Inf" else float(bound), float(line.split()[-1])))
    return rows


def test_case_s_12_beyond_the_last_bound_nothing_is_known(shared: Path) -> None:
    """p95 is interpolated and says so, p99 is '> 60', and a limit of 90 s is undecided."""
    rows = buckets(shared)
    p95, p99 = histogram_quantile(rows, 0.95), histogram_quantile(rows, 0.99)

    assert not p95.beyond
    assert str(p95) == "48.75 (interpolated)"
    assert (str(p99), p99.beyond) == ("> 60", True)
    assert met_share(rows, 90.0) == (0.98, 1.0)
    assert met_share(rows, 30.0) == (0.9, 0.9)


@pytest.mark.parametrize("rows", [[], [(1.0, 5.0)], [(1.0, 0.0), (math.inf, 0.0)]])
def test_a_histogram_without_values_has_no_quantile(rows: list[tuple[float, float]]) -> None:
    """Nor one without its last bucket."""
    with pytest.raises(InvalidInput):
        histogram_quantile(rows, 0.5)


def test_counters_grow_through_a_restart() -> None:
    """What was counted before it and after it, and the place of the restart."""
    found = growth([{"a": 5.0, "b": 1.0}, {"a": 9.0, "b": 2.0}, {"a": 3.0, "b": 4.0, "c": 1.0}])

    assert found.totals == {"a": 7.0, "b": 5.0, "c": 1.0}
    assert (found.resets, found.complete) == ((2,), False)


def test_counters_without_a_restart_are_differences() -> None:
    """A counter that appears later stood at zero; one snapshot has no growth."""
    found = growth([{"a": 5.0}, {"a": 5.0, "b": 2.0}])

    assert found.totals == {"a": 0.0, "b": 2.0}
    assert found.complete
    with pytest.raises(InvalidInput):
        growth([{}])
