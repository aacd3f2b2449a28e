"""The console command: offline inspection, exit codes, JSON answers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from api.cli import main
from tests.api.world import TWO_REQUESTS

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command on an empty data folder: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["--data-dir", str(tmp_path), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_inspect_reports_rows_and_rejects_by_line(run: Run, shared: Path) -> None:
    """Case T-12 without a service: exit 0, strict JSON."""
    code, out, _ = run("workload", "inspect", str(shared / "cases/t12_bad_lines.jsonl"), "--json")
    held = json.loads(out)

    assert code == 0
    assert held["report"]["accepted"] == 2
    assert [item["line"] for item in held["report"]["rejects"]] == [2, 3, 4, 5, 6]


def test_inspect_is_readable_by_people(run: Run, tmp_path: Path) -> None:
    """Format, rows and what cannot be said from this file."""
    path = tmp_path / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)

    code, out, _ = run("workload", "inspect", str(path))

    assert code == 0
    assert "2 accepted, 0 rejected" in out
    assert "unknown" in out


def test_a_file_without_usable_rows_is_a_negative_answer(run: Run, shared: Path) -> None:
    """Exit 1; the columns are named, in JSON as data."""
    path = str(shared / "cases/t01b_unmappable.jsonl")

    code, _, err = run("workload", "inspect", path)
    json_code, out, _ = run("workload", "inspect", path, "--json")

    assert (code, json_code) == (1, 1)
    assert "foo" in err
    assert json.loads(out)["error"]["found"] == ["foo", "bar"]


def test_wrong_usage_exits_2(run: Run) -> None:
    """An unknown option, a missing file, no subcommand."""
    codes = [
        run("workload", "list", "--nonsense")[0],
        run("workload", "inspect", "no-such-file")[0],
        run("nonsense")[0],
    ]

    assert codes == [2, 2, 2]


def test_no_service_exits_3(run: Run) -> None:
    """Nothing listens on the discard port."""
    code, _, err = run("--url", "http://127.0.0.1:9", "study", "show", "x")

    assert code == 3
    assert "rooftune up" in err


def test_every_command_explains_itself(run: Run) -> None:
    """Each of the prescribed subcommands has a help text and `--json`."""
    commands = [
        "up",
        "demo",
        "workload inspect",
        "workload upload",
        "workload list",
        "workload show",
        "workload delete",
        "engine list",
        "target add",
        "target list",
        "study start",
        "study watch",
        "study show",
        "study cancel",
        "recommendation show",
        "review approve",
        "review reject",
        "deploy",
        "deployment list",
        "deployment show",
        "deployment stop",
        "user add",
        "key create",
        "key revoke",
    ]
    found = {command: run(*command.split(), "--help") for command in commands}

    assert {command for command, (code, _, _) in found.items() if code} == set()
    assert {command for command, (_, out, _) in found.items() if "--json" not in out} == set()
