"""Load points from records: what counts, what does not, and what makes a point unusable."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.acceptance import figures, wilson
from advisor.measurement.latency import quantiles
from advisor.measurement.points import prefix_hit_share
from advisor.measurement.protocol.reached import load_reached
from advisor.measurement.records import (
    Outcome,
    RequestRecord,
)
from tests.fakes.planted_world import QUIET
from tests.fakes.records import NOTHING, point, record


def test_throughput_is_tokens_over_first_send_to_last_end() -> None:
    """Two requests back to back."""
    found = point(record(0, 1), record(1, 2))

    assert found.usable
    assert found.throughput_tokens_per_s.value == pytest.approx(10.0)
    assert (found.requests_per_s, found.duration_s) == (1.0, 2.0)
    assert (found.output_tokens, found.prompt_tokens) == (20, 10)
    assert found.in_flight_mean == pytest.approx(1.0)


def test_an_even_stream_has_a_narrower_interval_than_a_burst() -> None:
    """Equal time blocks see how unevenly tokens came."""
    even = point(record(0, 10, frame_times_s=tuple(i + 0.5 for i in range(10))))
    burst = point(record(0, 10, frame_times_s=(9.9,)))

    assert even.throughput_tokens_per_s.high == pytest.approx(even.throughput_tokens_per_s.value)
    assert burst.throughput_tokens_per_s.high > 2 * burst.throughput_tokens_per_s.value
    assert "blocks" in burst.throughput_tokens_per_s.basis


def test_failures_make_a_point_unusable_and_enter_no_figure() -> None:
    """Case S-07: fast failures are not fast successes."""
    failed = record(2, 2.01, outcome=Outcome.FAILED, error="engine_error", first_token_s=None)
    cancelled = record(2, 2.02, outcome=Outcome.CANCELLED, output_tokens=7)
    found = point(record(0, 2), failed, cancelled)

    assert (found.requests, found.succeeded, found.failed) == (3, 1, 2)
    assert found.failures == {"engine_error": 1, "cancelled": 1}
    assert found.throughput_tokens_per_s.value == pytest.approx(5.0)
    assert found.e2e_s is not None
    assert found.e2e_s.count == 1
    assert "2 of 3 requests failed" in found.flaws
    assert not found.usable


def test_a_point_without_a_success_has_no_latency() -> None:
    """No token was seen: zero throughput is what was measured, latencies are unknown."""
    found = point(record(0, 1, outcome=Outcome.FAILED, output_tokens=None))

    assert found.throughput_tokens_per_s.value == 0.0
    assert (found.ttft_s, found.tpot_s, found.e2e_s, found.classes) == (None, None, None, ())


def test_a_success_without_a_count_makes_throughput_unknown() -> None:
    """Counting its tokens as none would be a lie about speed."""
    found = point(record(0, 1), record(1, 2, output_tokens=None))

    assert found.flaws == ("1 of 2 successes without a token count",)


def test_a_load_that_was_not_reached_is_flagged() -> None:
    """Case S-24: requests one after another are no concurrency of 4."""
    serial = [record(start, start + 1) for start in range(8)]
    found = point(*serial, concurrency=4)

    assert found.flaws == ("load not reached: 1.0 of 4 requests in flight",)
    assert not found.usable


def test_the_draining_tail_does_not_count_as_missing_load() -> None:
    """While the last long answer drains, nothing can be sent."""
    found = point(record(0, 1), record(0, 1), record(1, 2), record(1, 20), concurrency=2)

    assert found.usable
    assert found.in_flight_mean < 1.2


def test_too_few_requests_cannot_reach_a_load() -> None:
    """Three sent at once are three in flight, not sixteen."""
    found = point(*(record(0, 1) for _ in range(3)), concurrency=16)

    assert found.flaws == ("load not reached: 3.0 of 16 requests in flight",)


def test_neighbours_make_a_point_unusable() -> None:
    """The host was measured beside the engine."""
    found = point(record(0, 1), host=replace(QUIET, disturbed=True))

    assert found.flaws == ("disturbed by neighbours",)


def test_a_record_runs_forwards() -> None:
    """Intended, sent, ended."""
    with pytest.raises(InvalidInput, match="backwards"):
        record(1, 0)


def test_classes_are_told_apart() -> None:
    """By label; a request without one has a class of its own."""
    found = point(record(0, 1), record(1, 3, label="code"), record(3, 4, label=None))

    assert [(item.label, item.requests) for item in found.classes] == [
        ("chat", 1),
        ("code", 1),
        ("unlabelled", 1),
    ]


def test_steps_and_acceptance_are_taken_from_the_counters() -> None:
    """And are None where the engine did not count or nothing speculated."""
    counted = replace(NOTHING, generation_tokens=100, engine_steps=25)
    plain = point(record(0, 1))
    speculating = point(record(0, 1), counters=counted, num_speculative_tokens=4)

    assert (plain.tokens_per_engine_step, plain.acceptance) == (None, None)
    assert speculating.tokens_per_engine_step == 4.0
    assert speculating.acceptance is not None


def test_a_point_without_records_is_refused() -> None:
    """As is one that took no time."""
    with pytest.raises(InvalidInput, match="at least one"):
        point()
    with pytest.raises(InvalidInput, match="one instant"):
        point(record(0, 0))


def test_unknown_times_are_counted_and_never_zero() -> None:
    """Case S-04: two of three saw a token."""
    known = quantiles([0.4, None, 0.6])

    assert known is not None
    assert (known.count, known.unknown, known.mean) == (2, 1, 0.5)
    assert quantiles([None]) is None
    assert quantiles([]) is None


def case(shared: Path, name: str) -> Any:
    """The input of one user case."""
    return json.loads((shared / "cases" / name).read_text(encoding="utf-8"))


def streamed(given: dict[str, Any], token_times_s: list[float]) -> RequestRecord:
    """The record of a stream whose token frames came at these times."""
    return record(
        given["sent"],
        given["end"],
        first_token_s=token_times_s[0],
        last_token_s=token_times_s[-1],
        frame_times_s=tuple(token_times_s),
        output_tokens=given["usage"]["completion_tokens"],
    )


def test_case_s_01_a_role_only_frame_is_no_token(shared: Path) -> None:
    """TTFT from the first frame with text."""
    given = case(shared, "s01_role_chunk.json")
    seen = streamed(given, [time for time, frame in given["events"] if frame.get("content")])

    assert seen.ttft_s == pytest.approx(0.9)
    assert seen.tpot_s == pytest.approx(0.02)


def test_case_s_03_frames_are_not_tokens(shared: Path) -> None:
    """The engine's usage counts them."""
    given = case(shared, "s03_multitoken_chunks.json")
    seen = streamed(given, [time for time, _ in given["events"]])
    found = point(seen)

    assert seen.tpot_s == pytest.approx(0.0267, abs=5e-5)
    assert found.throughput_tokens_per_s.value == pytest.approx(32.0)


def test_case_s_04_no_token_was_seen(shared: Path) -> None:
    """TTFT over the two that saw one."""
    records = [
        record(
            given["sent"],
            given["end"],
            first_token_s=given["first_token"],
            last_token_s=None if given["first_token"] is None else given["end"],
            output_tokens=given["completion_tokens"],
        )
        for given in case(shared, "s04_no_token_stream.json")["requests"]
    ]
    found = point(*records)

    assert found.ttft_s is not None
    assert found.tpot_s is not None
    assert found.ttft_s.mean == pytest.approx(0.5)
    assert found.ttft_s.unknown == 1
    assert found.tpot_s.mean == pytest.approx(0.02)


def test_case_s_06_latency_counts_from_the_schedule(shared: Path) -> None:
    """A client that falls behind must not look fast."""
    given = case(shared, "s06_schedule.json")
    service, count = given["service_time_s"], given["n"]
    records = [
        record(
            index * service,
            (index + 1) * service,
            intended_s=index / given["target_rate_rps"],
        )
        for index in range(count)
    ]
    latency = quantiles([item.e2e_s for item in records])

    assert latency is not None
    assert latency.mean == pytest.approx(1.9)
    assert latency.p50 == pytest.approx(1.9)
    assert latency.max == pytest.approx(3.3)


def test_case_s_07_failures_hidden_in_http_200(shared: Path) -> None:
    """Two successes, latency from them alone, the point not comparable."""
    records = [
        record(0, given["e2e_s"], output_tokens=given["completion_tokens"])
        if given.get("stream_end") == "done"
        else record(0, given["e2e_s"], outcome=Outcome.FAILED, error="in_band")
        for given in case(shared, "s07_inband_error.json")["requests"]
    ]
    found = point(*records, concurrency=4)

    assert (found.succeeded, found.failed, found.output_tokens) == (2, 2, 200)
    assert found.e2e_s is not None
    assert found.e2e_s.p50 == pytest.approx(2.1)
    assert "2 of 4 requests failed" in found.flaws


def test_case_s_10_hits_are_differences_of_counters(shared: Path) -> None:
    """98 % of the second run, not 49 % since the start."""
    shares = []
    for run in case(shared, "s10_two_runs.json")["runs"]:
        queries = run["after"]["queries"] - run["before"]["queries"]
        hits = run["after"]["hits"] - run["before"]["hits"]
        shares.append(prefix_hit_share(replace(NOTHING, prefix_queries=queries, prefix_hits=hits)))

    assert shares == [0.0, 0.98]
    assert prefix_hit_share(NOTHING) is None


def test_case_s_11_recomputed_work_is_no_hit(shared: Path) -> None:
    """After preemptions nothing is credited, and the point says why."""
    delta = case(shared, "s11_preempt_hits.json")["delta"]
    found = point(record(0, 1), counters=replace(NOTHING, **delta))

    assert found.prefix_hit_share is None
    assert found.usable
    assert "150 preemptions" in found.flaws[0]


def test_case_s_14_steps_without_a_draft_count(shared: Path) -> None:
    """2.96 tokens per step, not the 4.59 per drafted one."""
    given = case(shared, "s14_ngram_counters.json")
    counters = replace(
        NOTHING,
        generation_tokens=given["completion_tokens"],
        drafts=given["num_drafts"],
        draft_tokens=given["num_draft_tokens"],
        accepted=given["num_accepted_tokens"],
        accepted_per_position=(800, 750, 700, 690, 622),
    )
    found = figures(counters, num_speculative_tokens=5)

    assert found.acceptance_rate == pytest.approx(0.718, abs=5e-4)
    assert found.acceptance_length == pytest.approx(4.59, abs=5e-3)
    assert found.tokens_per_step == pytest.approx(2.96, abs=5e-3)
    assert found.coverage == pytest.approx(0.547, abs=5e-4)
    assert found.per_position is not None
    assert [round(share.value, 3) for share in found.per_position] == [
        0.806,
        0.755,
        0.705,
        0.695,
        0.626,
    ]
    assert found.reason is None


def test_case_s_18_nothing_was_drafted(shared: Path) -> None:
    """No rate, a reason, and one token per step."""
    given = case(shared, "s18_no_drafts.json")
    counters = replace(NOTHING, generation_tokens=given["completion_tokens"])
    found = figures(counters, num_speculative_tokens=4)

    assert (found.acceptance_rate, found.per_position, found.coverage) == (None, None, None)
    assert found.reason == "nothing was drafted in 900 tokens"
    assert found.tokens_per_step == 1.0


def test_case_s_19_tpot_leaves_the_first_token_out(shared: Path) -> None:
    """(10 - 2) / 100, one definition everywhere."""
    given = case(shared, "s19_tpot_defs.json")
    seen = record(
        0,
        given["e2e_s"],
        first_token_s=given["ttft_s"],
        output_tokens=given["completion_tokens"],
    )

    assert seen.tpot_s == pytest.approx(0.08)


def test_case_s_24_the_load_that_really_ran(shared: Path) -> None:
    """Total rate over per-user rate gives it: 34.5 of 384."""
    given = case(shared, "s24_little.json")
    measured = given["measured"]
    in_flight = measured["tok_s_per_gpu"] * given["gpus"] / measured["tok_s_per_user"]

    assert in_flight == pytest.approx(34.5, abs=0.05)
    assert not load_reached(in_flight, given["planned_concurrency"])


def test_a_share_keeps_its_interval_inside_zero_and_one() -> None:
    """Wilson's interval holds at the ends, where the plain one collapses."""
    none, all_of_them = wilson(0, 20), wilson(20, 20)

    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high > 0.1
    assert (all_of_them.value, all_of_them.high) == (1.0, 1.0)
    assert all_of_them.low < 0.9


@pytest.mark.parametrize("successes,trials", [(1, 0), (3, 2), (-1, 2)])
def test_a_share_needs_trials(successes: int, trials: int) -> None:
    """Never 0 / 0."""
    with pytest.raises(InvalidInput):
        wilson(successes, trials)


def test_an_engine_that_counts_nothing_has_no_tokens_per_step() -> None:
    """Zero steps is unknown, not infinite."""
    found = figures(replace(NOTHING, drafts=1, draft_tokens=1), num_speculative_tokens=1)

    assert (found.tokens_per_step, found.coverage) == (None, None)
