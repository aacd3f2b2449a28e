"""`rooftune measure`: loads on a running server, as its users call it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from advisor.errors import InvalidInput
from advisor.measurement.asked import MeasurePlan
from advisor.measurement.capacity import Capacity
from advisor.measurement.findings import Findings
from advisor.measurement.records import LoopKind
from advisor.measurement.report import MeasurementReport, Rank, measured_point
from advisor.measurement.slo import Slo
from advisor.serving import ServingConfig
from api.cli.answer import Exit
from api.cli.measure import ending
from api.cli.measure_options import numbers, seconds
from api.cli.measured_text import number, print_measured
from probes.vllm.server import start_engine
from tests.api.front import Run
from tests.fakes.engines import PLANTED_LAUNCHER, planted_plan
from tests.fakes.model_configs import LLAMA_32_1B
from tests.fakes.model_folder import write_model_folder
from tests.fakes.values import load_point

# Long steps: a busy machine's late timers do not matter beside them.
TRUTH = {"base_step_s": 0.1, "token_s": 1e-5}
LOADS = ("--concurrency", "2", "--requests", "4", "--budget", "1s", "--max-tokens", "4")
SLO = Slo(ttft_s=1.0)
PLAN = MeasurePlan(kind=LoopKind.CLOSED, levels=(2,))


@pytest.fixture
def run(rooftune: Run) -> Run:
    """Run `rooftune measure`: exit code, standard output, standard error."""
    return partial(rooftune, "measure")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A planted engine that serves `demo`."""
    plan = planted_plan(tmp_path, TRUTH, ServingConfig(), served_model_name="demo")
    with start_engine(plan) as engine:
        yield engine.base_url


def report(**changes: Any) -> MeasurementReport:
    """A report of one level with two loads."""
    loads = (load_point(2, 1), load_point(2, 2))
    made = MeasurementReport(
        rank=Rank.CLIENT_SIDE,
        tool="rooftune",
        tool_version="0",
        model="demo",
        engine="vllm 0.32.0",
        started_epoch_s=0.0,
        points=tuple(measured_point(load) for load in loads),
        loads=loads,
        findings=Findings(),
    )
    return replace(made, **changes)


def found(load: float | None, fails_at: float | None) -> Findings:
    capacity = Capacity(load=load, fails_at=fails_at, undecided=(), tries=3, reason="because")
    return Findings(capacity=capacity)


@pytest.mark.processes
def test_a_report_says_where_every_number_comes_from(run: Run, server: str, traffic: Path) -> None:
    """Rank, model, engine, each load in full, and the source in the figures themselves."""
    code, out, err = run(server, "--workload", traffic, *LOADS, "--json")
    held = json.loads(out)

    assert code in {Exit.OK, Exit.INCONCLUSIVE}, err
    assert (held["rank"], held["tool"], held["model"]) == ("client side", "rooftune", "demo")
    assert held["engine"].startswith("vllm ")
    assert len(held["points"]) == len(held["loads"]) >= 1
    assert {load["throughput_tokens_per_s"]["source"] for load in held["loads"]} == {
        "measured from outside"
    }
    assert all(load["client"]["processes"] == 1 for load in held["loads"])
    assert "question" not in out, "no text of the user's is in a report"


@pytest.mark.processes
def test_a_kept_report_is_gone_on_with_and_not_mixed_with_another(
    run: Run, server: str, traffic: Path, tmp_path: Path
) -> None:
    """A larger budget adds loads to the same file; another plan is refused."""
    out = tmp_path / "report.json"
    arguments = (server, "--workload", traffic, *LOADS, "--out", out)
    run(*arguments, "--budget", "0.01s")
    first = json.loads(out.read_text())
    run(*arguments, "--budget", "5s", "--precision", "0.000001")
    second = json.loads(out.read_text())
    code, _, err = run(*arguments, "--seed", "5")

    assert len(first["loads"]) == 1
    assert second["loads"][0] == first["loads"][0]
    assert len(second["loads"]) > 1
    assert (code, "another measurement" in err) == (Exit.USAGE, True)


@pytest.mark.processes
def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(
    server: str, traffic: Path, tmp_path: Path
) -> None:
    """The report on disk and on the screen is of the loads that were whole."""
    out = tmp_path / "report.json"
    argv = [sys.executable, "-m", "api.cli", "measure", server, "--workload", str(traffic)]
    argv += ["--concurrency", "1,2", "--requests", "4", "--max-tokens", "4", "--out", str(out)]
    argv += ["--precision", "0.0001"]  # it would go on for long after the first load
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end_s = time.monotonic() + 60
        while not out.exists() and time.monotonic() < end_s:
            time.sleep(0.1)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[0].decode()
    held = json.loads(out.read_text())

    assert process.returncode == Exit.INCONCLUSIVE
    assert held["complete"] is False
    assert len(held["loads"]) >= 1
    assert "not complete" in printed
    assert below
    assert psutil.wait_procs(below, timeout=10)[1] == []


@pytest.mark.processes
def test_an_engine_is_started_measured_and_gone_afterwards(
    run: Run, traffic: Path, tmp_path: Path
) -> None:
    """With its start time and its memory, which its log tells; the numbers are measured here."""
    model = write_model_folder(tmp_path / "model", LLAMA_32_1B)
    code, out, err = run(
        *("--engine", sys.executable, "--launcher", PLANTED_LAUNCHER, "--model-folder", model),
        *("--serve", "vllm serve m --max-num-seqs 4", "--workload", traffic, *LOADS, "--json"),
    )
    held = json.loads(out)

    assert code in {Exit.OK, Exit.INCONCLUSIVE}, err
    assert held["rank"] == "own engine"
    assert held["findings"]["start_s"] > 0
    assert held["findings"]["memory"]["weight_bytes"] == 256 << 20
    assert held["loads"][0]["throughput_tokens_per_s"]["source"] == "measured here"


@pytest.mark.processes
def test_every_trouble_is_one_sentence_with_a_remedy(run: Run, server: str, traffic: Path) -> None:
    """A closed port, a model that is not served."""
    refused = run("http://127.0.0.1:9", "--workload", traffic)
    unknown = run(server, "--workload", traffic, "--model", "nobody")

    assert (refused[0], "start the server" in refused[2]) == (Exit.UNAVAILABLE, True)
    assert (unknown[0], "known: demo" in unknown[2]) == (Exit.USAGE, True)
    assert all("Traceback" not in said for _, _, said in (refused, unknown))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("http://h", "--rate", "1", "--concurrency", "2"),
        ("http://h", "--rate", "one"),
        ("http://h", "--rate", "1", "--arrivals", "recorded"),
        ("http://h", "--rate", "1", "--arrivals", "gamma"),
        ("http://h", "--budget", "soon"),
        ("http://h", "--concurrency", "0"),
        ("http://h", "--slo-ttft", "-1"),
        ("http://h", "--engine", "python"),
        ("--engine", "python"),
    ],
    ids=" ".join,
)
def test_options_that_cannot_be_meant_are_refused_before_anything_starts(
    run: Run, traffic: Path, arguments: tuple[str, ...]
) -> None:
    """With the option's name."""
    code, out, err = run(*arguments, "--workload", traffic)

    assert code == Exit.USAGE
    assert out == ""
    assert "error:" in err


def test_a_key_file_holds_one_key(run: Run, traffic: Path, tmp_path: Path) -> None:
    """The key itself is never part of an error."""
    file = tmp_path / "key"
    file.write_text("se cret\nother\n")
    code, out, err = run("http://h", "--workload", traffic, "--api-key-file", file)

    assert code == Exit.USAGE
    assert "cret" not in out + err


@pytest.mark.parametrize(
    "made, plan, code",
    [
        (report(), PLAN, Exit.OK),
        (report(complete=False), PLAN, Exit.INCONCLUSIVE),
        (report(loads=()), PLAN, Exit.INCONCLUSIVE),
        (report(findings=found(4.0, 8.0)), replace(PLAN, slo=SLO), Exit.OK),
        (report(findings=found(4.0, None)), replace(PLAN, slo=SLO), Exit.OK),
        (report(findings=found(None, 1.0)), replace(PLAN, slo=SLO), Exit.NEGATIVE),
        (report(findings=found(None, None)), replace(PLAN, slo=SLO), Exit.INCONCLUSIVE),
    ],
)
def test_the_exit_code_answers_the_question(
    made: MeasurementReport, plan: MeasurePlan, code: Exit
) -> None:
    """Measured, no load keeps the limits, or open."""
    assert ending(made, plan) is code


def test_a_person_reads_figures_with_intervals_what_was_found_and_what_they_rest_on() -> None:
    """And that a report is not complete."""
    out = Console(width=80, record=True, highlight=False)
    remarks = ("it was interrupted",)
    print_measured(out, report(complete=False, findings=found(4.0, 8.0), remarks=remarks))
    said = " ".join(out.export_text().split())

    assert "measured from outside: 2 loads" in said
    assert "not complete" in said
    assert "The limits are kept up to 4 requests in flight; at 8 they are not" in said
    assert "222 (" in said
    assert "It was interrupted." in said


def test_lists_and_times_are_read_as_people_write_them() -> None:
    """A bare number is seconds; numbers keep three digits."""
    assert numbers("--rate", "0.5, 1,2") == (0.5, 1.0, 2.0)
    assert [seconds("--budget", text) for text in ("90", "90s", "1.5m", "1h")] == [
        *(90.0, 90.0, 90.0),
        3600.0,
    ]
    assert [number(value) for value in (0.01234, 1.234, 123.4, 12345.6, 0)] == [
        *("0.0123", "1.23", "123", "12,346"),
        "0",
    ]
    with pytest.raises(InvalidInput):
        seconds("--budget", "-1s")
