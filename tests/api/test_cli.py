"""The console command: offline inspection, exit codes, JSON answers."""

import json
from pathlib import Path

import pytest

from tests.api.front import Run
from tests.api.world import TWO_REQUESTS, World


def test_inspect_reports_rows_and_rejects_by_line(rooftune: Run, shared: Path) -> None:
    """Case T-12 without a service: exit 0, strict JSON."""
    code, out, _ = rooftune(
        "workload", "inspect", str(shared / "cases/t12_bad_lines.jsonl"), "--json"
    )
    held = json.loads(out)

    assert code == 0
    assert held["report"]["accepted"] == 2
    assert [item["line"] for item in held["report"]["rejects"]] == [2, 3, 4, 5, 6]


def test_inspect_is_readable_by_people(rooftune: Run, tmp_path: Path) -> None:
    """Format, rows and what cannot be said from this file."""
    path = tmp_path / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)

    code, out, _ = rooftune("workload", "inspect", str(path))

    assert code == 0
    assert "2 accepted, 0 rejected" in out
    assert "unknown" in out


def test_a_file_without_usable_rows_is_a_negative_answer(rooftune: Run, shared: Path) -> None:
    """Exit 1; the columns are named, in JSON as data."""
    path = str(shared / "cases/t01b_unmappable.jsonl")

    code, _, err = rooftune("workload", "inspect", path)
    json_code, out, _ = rooftune("workload", "inspect", path, "--json")

    assert (code, json_code) == (1, 1)
    assert "foo" in err
    assert json.loads(out)["error"]["found"] == ["foo", "bar"]


def test_wrong_usage_exits_2(rooftune: Run) -> None:
    """An unknown option, a missing file, no subcommand."""
    codes = [
        rooftune("workload", "list", "--nonsense")[0],
        rooftune("workload", "inspect", "no-such-file")[0],
        rooftune("nonsense")[0],
    ]

    assert codes == [2, 2, 2]


def test_no_service_exits_3(rooftune: Run) -> None:
    """Nothing listens on the discard port."""
    code, _, err = rooftune("--url", "http://127.0.0.1:9", "study", "show", "x")

    assert code == 3
    assert "rooftune up" in err


def test_every_command_explains_itself(rooftune: Run) -> None:
    """Each of the prescribed subcommands has a help text and `--json`."""
    commands = [
        "up",
        "demo",
        "workload inspect",
        "workload upload",
        "workload list",
        "workload show",
        "workload delete",
        "forecast",
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
        "measurement inspect",
        "measurement import",
        "measurement list",
        "measurement show",
        "measurement export",
        "measurement delete",
        "user add",
        "key create",
        "key revoke",
    ]
    found = {command: rooftune(*command.split(), "--help") for command in commands}

    assert {command for command, (code, _, _) in found.items() if code} == set()
    assert {command for command, (_, out, _) in found.items() if "--json" not in out} == set()


@pytest.mark.postgres
def test_a_whole_round_through_a_service(
    rooftune: Run, world: World, address: str, tmp_path: Path
) -> None:
    """Upload, list, study, cancel, watch: JSON on standard output, the ending as exit code."""
    path = tmp_path / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)
    target = world.ready_target(world.client())

    def ask(*arguments: str) -> tuple[int, str]:
        code, out, _ = rooftune("--url", address, "--key", world.admin_key, *arguments, "--json")
        return code, out

    code, out = ask("workload", "upload", str(path), "--name", "two")
    workload = json.loads(out)
    listed = json.loads(ask("workload", "list")[1])
    begun = ask(
        *("study", "start", "s", "--workload", workload["id"], "--target", target.id),
        *("--baseline", "vllm serve demo --dtype float32 --port 80", "--ladder-top", "8"),
        *("--no-confirm", "--min-top1-agreement", "0.75"),
    )
    study = json.loads(begun[1])
    cancelled = ask("study", "cancel", study["id"])
    watched = ask("study", "watch", study["id"])
    missing = ask("workload", "show", study["id"])
    shown = rooftune("--url", address, "--key", world.admin_key, "study", "show", study["id"])[1]

    assert [code, begun[0], cancelled[0]] == [0, 0, 0]
    assert listed["items"] == [workload]
    assert study["baseline"]["levers"]["dtype"] == "float32"
    assert study["goal"]["min_top1_agreement"] == 0.75
    assert (study["options"]["ladder_top"], study["options"]["confirm"]) == (8, False)
    assert "not kept: --port (a number) is ignored" in shown
    assert watched[0] == 1
    assert json.loads(watched[1].splitlines()[-1])["state"] == "cancelled"
    assert missing[0] == 1
    assert json.loads(missing[1])["error"]["status"] == 404
