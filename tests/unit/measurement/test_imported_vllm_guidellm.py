"""Results of `vllm bench serve` and GuideLLM, in our units and under our definitions."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.measurement.imports import read_result
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution
from tests.fakes.tool_results import (
    by_status,
    guidellm,
    guidellm_benchmark,
    mean,
    only,
    vllm_bench,
    vllm_bench_detailed,
    written,
)


def test_vllm_times_are_milliseconds_and_its_gaps_between_chunks_are_no_time_per_token() -> None:
    """Case S-03: twice as long where a chunk holds two tokens, and under a name of their own."""
    point = only(written(vllm_bench()))

    assert (point.kind, point.concurrency, point.rate_per_s) == (LoopKind.CLOSED, 2, None)
    assert mean(point.ttft_s) == pytest.approx(0.1)
    assert mean(point.tpot_s) == pytest.approx(0.1)
    assert mean(point.chunk_gap_s) == pytest.approx(0.2)
    assert point.chunk_gap_s is not None
    assert point.chunk_gap_s.percentiles == pytest.approx({50: 0.198, 99: 0.3, 99.9: 0.31})
    assert point.input_tokens_per_s == pytest.approx(10.0)
    assert mean(point.e2e_s) == pytest.approx(2.0)
    assert point.normalised_latency_s is None
    assert point.usable


def test_the_two_engines_releases_are_read_alike() -> None:
    """0.31 and 0.32 write the same fields; older ones have no count of failures."""
    older = {name: value for name, value in vllm_bench().items() if name != "failed"}
    point = only(written(older | {"num_prompts": 5}))

    assert (point.requests, point.failed) == (5, 1)
    assert not point.usable


@pytest.mark.parametrize(
    "changes, kind, concurrency, rate",
    [
        ({"request_rate": 3.5, "max_concurrency": None}, LoopKind.OPEN, None, 3.5),
        ({"request_rate": 3.5}, LoopKind.OPEN, None, 3.5),
        ({"max_concurrency": None}, LoopKind.OPEN, None, None),
        ({"ramp_up_strategy": "linear", "request_rate": 1.0}, LoopKind.OPEN, None, None),
    ],
)
def test_a_vllm_load_is_what_was_asked_for(
    changes: Mapping[str, object], kind: LoopKind, concurrency: float | None, rate: float | None
) -> None:
    """A rate is an open loop, also where a limit held it back; no limit and no rate is a burst."""
    point = only(written(vllm_bench(**changes)))

    assert (point.kind, point.concurrency, point.rate_per_s) == (kind, concurrency, rate)


def test_runs_that_were_appended_are_points_of_one_report() -> None:
    """--append-result writes a line each."""
    report = read_result(written(vllm_bench(max_concurrency=1), vllm_bench()))

    assert [point.concurrency for point in report.points] == [1, 2]
    with pytest.raises(InvalidInput, match="2 models"):
        read_result(written(vllm_bench(), vllm_bench(model_id="another")))


def test_lengths_come_from_single_requests_only_where_all_of_them_are_there() -> None:
    """A trimmed list is not the run; then the totals still give the mean."""
    whole = only(written(vllm_bench_detailed()))
    trimmed = only(written(vllm_bench_detailed(input_lens=[8])))

    assert whole.prompt_tokens is not None
    assert (whole.prompt_tokens.minimum, whole.prompt_tokens.maximum) == (8, 12)
    assert trimmed.prompt_tokens == Distribution(count=4, mean=10.0)


def test_no_p99_is_computed_of_few_requests() -> None:
    """Handbook 11.2: what a tool states stays, ours begins at 300 requests."""
    few = only(written(vllm_bench_detailed()))
    many = {"completed": 300, "num_prompts": 300, "latencies": [2.0 + n / 300 for n in range(300)]}
    enough = only(written(vllm_bench(**many)))

    assert few.e2e_s is not None
    assert enough.e2e_s is not None
    assert 99.0 not in few.e2e_s.percentiles
    assert enough.e2e_s.percentiles[99.0] == pytest.approx(2.9867, abs=1e-3)


def test_a_time_that_no_request_had_is_not_zero() -> None:
    """Case S-04: an answer of one token has no time per token; the tool writes 0."""
    zero = {f"{name}_tpot_ms": 0.0 for name in ("mean", "median", "std", "p99")}
    point = only(written(vllm_bench(**zero)))

    assert point.tpot_s is None
    assert point.ttft_s is not None


def test_a_run_without_a_success_has_no_times() -> None:
    """The figures of nothing are left out, and the point is of no use."""
    point = only(
        written(vllm_bench(completed=0, failed=4, total_output_tokens=0, output_throughput=0.0))
    )

    assert (point.ttft_s, point.e2e_s, point.usable) == (None, None, False)
    assert "no request succeeded" in point.remarks


def test_a_closed_loop_that_was_not_filled_is_not_usable() -> None:
    """Case S-24, by Little's law: 1 request/s of 2 s each is 2 in flight and not 8."""
    point = only(written(vllm_bench(max_concurrency=8)))

    assert not point.usable
    assert "2.0 of 8" in point.remarks[0]


def test_guidellms_time_per_output_token_holds_the_first_token_and_is_not_ours() -> None:
    """Case S-19: theirs is our normalised latency; their inter-token latency is our TPOT."""
    point = only(written(guidellm(guidellm_benchmark({"type_": "synchronous"}))))

    assert mean(point.tpot_s) == pytest.approx(0.2)
    assert mean(point.normalised_latency_s) == pytest.approx(0.25)
    assert mean(point.e2e_s) == pytest.approx(2.0)
    assert point.chunk_gap_s is None
    assert point.tpot_s is not None
    assert point.tpot_s.count is None, "its count is of tokens"
    assert point.output_tokens_per_s == pytest.approx(80 / 20)
    assert point.requests_per_s == pytest.approx(0.5)


@pytest.mark.parametrize(
    "strategy, kind, concurrency, rate",
    [
        ({"type_": "synchronous"}, LoopKind.CLOSED, 1, None),
        ({"type_": "concurrent", "streams": 1}, LoopKind.CLOSED, 1, None),
        ({"type_": "throughput", "max_concurrency": None}, LoopKind.OPEN, None, None),
        ({"type_": "throughput", "max_concurrency": 1}, LoopKind.CLOSED, 1, None),
        ({"type_": "constant", "rate": 4.0}, LoopKind.OPEN, None, 4.0),
        ({"type_": "poisson", "rate": 4.0}, LoopKind.OPEN, None, 4.0),
        ({"type_": "trace"}, LoopKind.OPEN, None, None),
        ({"type_": "of tomorrow"}, None, None, None),
    ],
)
def test_a_guidellm_strategy_is_a_loop(
    strategy: Mapping[str, object], kind: LoopKind | None, concurrency: int, rate: float | None
) -> None:
    """A strategy that is not known is not guessed at."""
    point = only(written(guidellm(guidellm_benchmark(strategy))))

    assert (point.kind, point.concurrency, point.rate_per_s) == (kind, concurrency, rate)


def test_requests_that_the_end_cut_off_are_told_and_not_counted() -> None:
    """They neither succeeded nor failed."""
    cut = guidellm_benchmark({"type_": "synchronous"}, incomplete=3, errored=2)
    point = only(written(guidellm(cut)))

    assert (point.requests, point.failed) == (12, 2)
    assert any("3 requests were cut off" in remark for remark in point.remarks)


def test_two_tools_that_saw_one_answer_say_one_tpot(shared: Path) -> None:
    """Case S-19: each file is written by its tool's own definitions, and both are read as ours."""
    case = json.loads((shared / "cases" / "s19_tpot_defs.json").read_text())
    ttft_s, total_s, tokens = case["ttft_s"], case["e2e_s"], case["completion_tokens"]
    per_token_ms = 1e3 * (total_s - ttft_s) / (tokens - 1)
    benchmark = guidellm_benchmark({"type_": "synchronous"})
    metrics = benchmark["metrics"]
    assert isinstance(metrics, dict)
    metrics["time_per_output_token_ms"] = by_status(1e3 * total_s / tokens, tokens)
    metrics["inter_token_latency_ms"] = by_status(per_token_ms, tokens - 1)
    names = [f"{name}_tpot_ms" for name in ("mean", "median", "p99")]
    bench = only(written(vllm_bench(**dict.fromkeys(names, per_token_ms))))
    guide = only(written(guidellm(benchmark)))

    assert mean(bench.tpot_s) == pytest.approx(0.080)
    assert mean(guide.tpot_s) == pytest.approx(0.080)
    assert mean(guide.normalised_latency_s) == pytest.approx(0.0990, abs=1e-4)
    assert bench.normalised_latency_s is None
