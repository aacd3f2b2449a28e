"""Rows of `make measure-checks`: what they compare, and that a part that fails is shown as such."""

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from advisor.errors import EngineFailed, Unavailable
from advisor.estimate import Estimate, Source
from advisor.measurement.protocol.pairs import Change, Comparison
from advisor.states import FailureKind
from tests.bench.figures import Figure, meets, read_targets
from tests.measure.__main__ import PARTS, Workbench, run_part
from tests.measure.clients import (
    ALONE,
    LOADED,
    OURS,
    SECOND,
    VLLM_BENCH,
    Played,
    in_turn,
    play,
    ratio,
    rows_of,
)
from tests.measure.comparisons import no_change_row, slowdown_row
from tests.measure.contenders import Load, Seen, Site, read_aiperf, read_vllm_bench
from tests.measure.prefix import second_run_row
from tests.measure.prompts import prompts
from tests.measure.rows import unmeasured

LOAD = Load(prompts=("one", "two"), concurrency=1, tokens=8)
SITE = Site(host="h", port=1, model="m", tokenizer=Path("t"), reset=lambda: None)


def quiet(text: str) -> None:
    """Says nothing."""


def seen(factor: float) -> Seen:
    return Seen(ttft_s=0.2 * factor, tpot_s=0.02 * factor, tokens_per_s=40.0 / factor)


def rounds_of(*factors: float) -> Played:
    """Rounds in which ours measured so many times what the others did."""
    rounds = tuple(
        {
            (name, load): seen(factor if name == OURS else 1.0)
            for name in (OURS, VLLM_BENCH, SECOND)
            for load in (ALONE, LOADED)
        }
        for factor in factors
    )
    return Played(rounds=rounds, dropped={})


def compared(change: Change, value: float = 1.0) -> Comparison:
    gain = Estimate(
        value=value, low=value * 0.98, high=value * 1.02, source=Source.MEASURED, basis=""
    )
    return Comparison(gain=gain, change=change, pairs=3, blocks=3, detectable=0.05, chance=0.5)


def test_a_ratio_is_taken_within_each_round() -> None:
    """A machine that halves its speed between two rounds changes no ratio of theirs."""
    slow = {
        (name, ALONE): Seen(ttft_s=2.0 * at, tpot_s=0.1, tokens_per_s=5.0)
        for name, at in ((OURS, 1.1), (VLLM_BENCH, 1.0))
    }
    fast = {
        (name, ALONE): Seen(ttft_s=1.0 * at, tpot_s=0.05, tokens_per_s=9.0)
        for name, at in ((OURS, 1 / 1.1), (VLLM_BENCH, 1.0))
    }
    found = ratio([slow, fast], VLLM_BENCH, ALONE, "ttft")

    assert found.value == pytest.approx(1.0)
    assert found.low < 1 < found.high


def test_one_round_has_no_interval() -> None:
    """A single ratio says nothing of how ratios spread."""
    found = ratio(rounds_of(1.02).rounds, SECOND, LOADED, "tpot")

    assert found.value == pytest.approx(1.02)
    assert math.isinf(found.high)


def test_a_row_is_the_worse_of_both_loads() -> None:
    """All four rows of a client, each as far from 1 as its worst ratio."""
    rows = {row.name: row.value for row in rows_of(VLLM_BENCH, rounds_of(1.04), rounds_of(0.99))}

    assert rows == {
        "vllm_bench_ttft_error_at_1": pytest.approx(0.04),
        "vllm_bench_tpot_error": pytest.approx(0.04),
        "vllm_bench_throughput_error": pytest.approx(1 - 1 / 1.04),
        "vllm_bench_stub_error": pytest.approx(1 / 0.99 - 1),
    }


def test_a_client_that_fails_drops_out_and_the_others_play_on(tmp_path: Path) -> None:
    """Its rows have no value and say why; those of the other client have one."""

    def broken(site: Site, load: Load, folder: Path) -> Seen:
        raise Unavailable("AIPerf is not installed", "install it")

    def fine(site: Site, load: Load, folder: Path) -> Seen:
        return seen(1.0)

    contenders = {OURS: fine, VLLM_BENCH: fine, SECOND: broken}
    loads = {ALONE: LOAD, LOADED: LOAD}
    played = play(SITE, contenders, loads, rounds=3, folder=tmp_path, say=quiet)
    rows = [*rows_of(VLLM_BENCH, played, played), *rows_of(SECOND, played, played)]
    without = [row for row in rows if row.value is None]

    assert len(played.rounds) == 3
    assert {row.name for row in without} == set(PARTS["clients"][1][4:])
    assert all("AIPerf is not installed" in row.detail for row in without)
    assert not any(meets(row, read_targets()[row.name]) for row in without)


def test_our_own_client_may_not_drop_out(tmp_path: Path) -> None:
    """Without it there is nothing to compare."""

    def broken(site: Site, load: Load, folder: Path) -> Seen:
        raise Unavailable("it broke", "mend it")

    with pytest.raises(Unavailable):
        play(SITE, {OURS: broken}, {ALONE: LOAD}, rounds=1, folder=tmp_path, say=quiet)


def test_every_client_is_first_and_last_over_the_rounds() -> None:
    """So that what a load leaves behind falls on all alike."""
    orders = [in_turn(["a", "b", "c"], number) for number in range(3)]

    assert {order[0] for order in orders} == {order[-1] for order in orders} == {"a", "b", "c"}


def test_the_public_clients_results_are_read_in_seconds() -> None:
    """Medians of what both call TTFT, of `tpot` and of what AIPerf calls inter-token latency."""
    bench = {
        "completed": 2,
        "total_output_tokens": 16,
        "median_ttft_ms": 200.0,
        "median_tpot_ms": 20.0,
        "output_throughput": 40.0,
    }
    aiperf = {
        "request_count": {"avg": 2.0},
        "total_output_tokens": {"avg": 16.0},
        "time_to_first_token": {"p50": 200.0},
        "inter_token_latency": {"p50": 20.0},
        "output_token_throughput": {"avg": 40.0},
    }

    assert read_vllm_bench(json.dumps(bench), LOAD) == seen(1.0)
    assert read_aiperf(json.dumps(aiperf), LOAD) == seen(1.0)


def test_a_client_that_generated_less_is_not_compared() -> None:
    """Fewer tokens are another load."""
    bench = {"completed": 2, "total_output_tokens": 15}

    with pytest.raises(Unavailable, match="15 tokens"):
        read_vllm_bench(json.dumps(bench), LOAD)


def test_verdicts_are_counted() -> None:
    """Helps and hurts are false without a change; only hurts finds a slowdown."""
    found = [compared(Change.HELPS), compared(Change.HURTS, 0.9), compared(Change.UNKNOWN)]

    assert no_change_row(found, "").value == 2
    assert slowdown_row(found, "").value == 1


def test_the_second_runs_row_is_the_distance_from_1() -> None:
    """Faster or slower counts alike; the control without a reset is in the detail."""
    row = second_run_row([0.98, 0.98], [1.7])

    assert row.value == pytest.approx(0.02)
    assert "1.700" in row.detail


def test_a_part_that_fails_yields_its_rows_without_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others go on, and the run is red."""

    def dies(bench: Workbench, say: object) -> Sequence[Figure]:
        raise EngineFailed(FailureKind.DIED, "it is gone")

    with ExitStack() as held:
        bench = Workbench(folder=tmp_path, began_s=0.0, held=held)
        rows = PARTS["comparisons"][1]
        found = run_part("comparisons", dies, rows, bench=bench, say=quiet)

    assert [figure.name for figure in found] == list(rows)
    assert all(figure.value is None and "it is gone" in figure.detail for figure in found)
    assert "it is gone" in capsys.readouterr().err


def test_a_row_that_a_part_forgot_is_missed() -> None:
    """Not yielding a figure is no way around its target."""

    def forgets(bench: Workbench, say: object) -> Sequence[Figure]:
        return unmeasured(["slowdown_found"], "no time")

    with ExitStack() as held:
        bench = Workbench(folder=Path(), began_s=0.0, held=held)
        rows = PARTS["comparisons"][1]
        found = run_part("comparisons", forgets, rows, bench=bench, say=quiet)

    assert {figure.name for figure in found} == set(rows)


def test_every_part_yields_rows_that_have_targets() -> None:
    """And each row belongs to one part."""
    rows = [row for _, names in PARTS.values() for row in names]

    assert set(rows) <= set(read_targets())
    assert len(rows) == len(set(rows))


def test_prompts_share_no_beginning() -> None:
    """A prefix cache works on beginnings: two prompts of a load may not help each other."""
    found = prompts(30, 400)

    assert {len(prompt) for prompt in found} == {400}
    assert len({prompt[:12] for prompt in found}) == 30
    assert set(prompts(5, 400, first=30)).isdisjoint(found)
