"""`rooftune compare`: two servers or two settings, as its users call it."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from advisor.estimate import Source
from advisor.measurement.comparison import ComparedSide, ComparisonReport, compared_levels
from advisor.measurement.report import Rank
from advisor.serving import ServingConfig
from advisor.units import percent_text
from api.cli.answer import Exit
from api.cli.compare import ending
from api.cli.compared_text import print_compared
from probes.vllm.server import start_engine
from tests.api.front import Run
from tests.fakes.engines import PLANTED_LAUNCHER, planted_plan
from tests.fakes.model_configs import LLAMA_32_1B
from tests.fakes.model_folder import write_model_folder
from tests.unit.measurement.test_compared_levels import pairs

LOADS = ("--concurrency", "4", "--requests", "8", "--max-tokens", "4")


@pytest.fixture
def run(rooftune: Run) -> Run:
    """Run `rooftune compare`: exit code, standard output, standard error."""
    return partial(rooftune, "compare")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Two planted engines; the second one takes twice as long for a step."""
    urls = []
    plans = []
    for name, step_s in (("a", 0.05), ("b", 0.1)):
        (tmp_path / name).mkdir()
        truth = {"base_step_s": step_s, "token_s": 1e-5}
        plans.append(
            planted_plan(tmp_path / name, truth, ServingConfig(), served_model_name="demo")
        )
    with start_engine(plans[0]) as a, start_engine(plans[1]) as b:
        urls = [a.base_url, b.base_url]
        yield urls[0], urls[1]


@pytest.mark.processes
def test_two_servers_are_compared_and_what_hurts_is_the_exit_code(
    run: Run, servers: tuple[str, str], traffic: Path, tmp_path: Path
) -> None:
    """A pipeline can stop on it; the file holds every load, no text, and is gone on with."""
    out = tmp_path / "report.json"
    asked = (*servers, "--workload", traffic, *LOADS, "--out", out)
    _, text, err = run(*asked, "--pairs", 2, "--budget", "1s")
    code, said, _ = run(*asked, "--pairs", 3)
    held = json.loads(out.read_text())
    decided = held["levels"][0]["pairs"] >= 2  # on a busy machine late loads do not count

    assert "1 of 2 pairs" in " ".join(text.split()), err
    assert code == (Exit.NEGATIVE if decided else Exit.INCONCLUSIVE), said
    assert ("hurts" in said) == decided
    assert "measured from outside" in said
    assert [load["arm"] for load in held["loads"]] == ["A", "B", "B", "A", "A", "B"]
    sources = {item["gain"]["source"] for item in held["levels"][0]["figures"].values()}
    sources |= {load["point"]["throughput_tokens_per_s"]["source"] for load in held["loads"]}
    assert sources == {"measured from outside"}
    assert "question" not in out.read_text() + text


@pytest.mark.processes
def test_two_settings_of_one_engine_are_started_in_turn(
    run: Run, traffic: Path, tmp_path: Path
) -> None:
    """Every load has a start of its own; a quarter of the slots costs throughput."""
    model = write_model_folder(tmp_path / "model", LLAMA_32_1B)
    code, out, err = run(
        *("--engine", sys.executable, "--launcher", PLANTED_LAUNCHER, "--model-folder", model),
        *("--serve-a", "vllm serve m --max-num-seqs 4"),
        *("--serve-b", "vllm serve m --max-num-seqs 1"),
        *("--workload", traffic, *LOADS, "--pairs", 2, "--json"),
    )
    held = json.loads(out)

    assert code in {Exit.NEGATIVE, Exit.INCONCLUSIVE}, err
    assert held["rank"] == "own engine"
    assert held["a"]["title"] != held["b"]["title"]
    assert [load["arm"] for load in held["loads"]] == ["A", "B", "B", "A"]
    rates = {
        arm: [
            load["point"]["throughput_tokens_per_s"] for load in held["loads"] if load["arm"] == arm
        ]
        for arm in "AB"
    }
    assert {rate["source"] for arm in "AB" for rate in rates[arm]} == {"measured here"}
    assert max(rate["value"] for rate in rates["B"]) < min(rate["value"] for rate in rates["A"])


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("http://h",),
        ("http://h", "http://i", "--pairs", "1"),
        ("http://h", "http://i", "--engine", sys.executable),
        ("--engine", sys.executable),
        ("--engine", sys.executable, "--model-folder", "."),
    ],
)
def test_what_cannot_be_compared_is_a_usage_error(
    run: Run, traffic: Path, arguments: tuple[str, ...]
) -> None:
    """Before anything is asked or started, in one sentence."""
    code, out, err = run(*arguments, "--workload", traffic)

    assert (code, out) == (Exit.USAGE, "")
    assert "Traceback" not in err


def report(ratio: float) -> ComparisonReport:
    """A comparison of one level."""
    loads = tuple(pairs(ratio))
    side = ComparedSide(title="http://h", model="demo", engine="vllm 0.32.0")
    return ComparisonReport(
        rank=Rank.CLIENT_SIDE,
        tool_version="0",
        a=side,
        b=side,
        started_epoch_s=0.0,
        loads=loads,
        levels=compared_levels(loads, source=Source.MEASURED_OUTSIDE, caching_differs=False),
        remarks=("the sides took turns",),
        plan_digest="d",
        complete=True,
    )


@pytest.mark.parametrize(
    "ratio, code, word",
    [(1.3, Exit.OK, "helps"), (0.8, Exit.NEGATIVE, "hurts"), (1.0, Exit.OK, "neutral")],
)
def test_the_text_says_verdict_interval_and_what_could_be_seen(
    ratio: float, code: Exit, word: str
) -> None:
    """Each figure with its interval, its source and the smallest change it could show."""
    out = Console(record=True, width=120)
    shown = report(ratio)
    print_compared(out, shown)
    text = out.export_text()
    gain = shown.levels[0].figures["e2e_s p50"].gain

    assert ending(shown) == code
    assert word in text
    assert all(percent_text(end) in text for end in (gain.value, gain.low, gain.high))
    assert "6 of 6" in text
    assert "could show" in text.lower()
    assert "measured from outside" in text
