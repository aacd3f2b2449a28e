"""`rooftune doctor` the whole way through both processes: what it finds, and its exit codes."""

import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.cli import main

LAUNCHER = Path(__file__).resolve().parents[1] / "fakes" / "planted_engine.py"
Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ports() -> Iterator[int]:
    """The first of three neighbouring ports, the middle one taken by a socket of ours."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1] - 1


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Ask for JSON about an installation on a planted engine: exit code, standard output."""
    monkeypatch.setenv("ROOFTUNE_ENGINE_PYTHON", sys.executable)
    monkeypatch.setenv("ROOFTUNE_ENGINE_LAUNCHER", str(LAUNCHER))
    monkeypatch.delenv("DATABASE_URL", raising=False)

    def call(*arguments: str) -> tuple[int, str]:
        code = main(["--data-dir", str(tmp_path / "data"), "doctor", *arguments])
        return code, capsys.readouterr().out

    return call


def levels(out: str) -> dict[str, str]:
    """The level of every check."""
    return {item["name"]: item["level"] for item in json.loads(out)["checks"]}


def test_a_missing_interpreter_fails_with_its_remedy(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit 1; the path that is not there is named, and what makes it."""
    monkeypatch.setenv("ROOFTUNE_ENGINE_PYTHON", str(tmp_path / "no-python"))

    code, out = ask("--json")
    found = next(item for item in json.loads(out)["checks"] if item["name"] == "engine")

    assert code == 1
    assert found["level"] == "fail"
    assert "no-python" in found["found"]
    assert "make setup" in found["remedy"]


def test_a_data_folder_open_to_others_fails_and_a_closed_one_does_not(
    ask: Ask, tmp_path: Path
) -> None:
    """The same installation, before and after what the remedy says."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    before = ask("--json")
    folder.chmod(0o711)
    after = ask("--json")

    assert before[0] == 1
    assert levels(before[1])["data folder"] == "fail"
    assert levels(after[1])["data folder"] == "ok"
    assert levels(after[1])["engine"] == "ok"


def test_a_port_that_somebody_else_has_fails(ask: Ask, ports: int) -> None:
    """No service of ours runs on the folder, so whoever listens is in the way."""
    code, out = ask("--json", "--port-base", str(ports))

    assert code == 1
    assert levels(out)["proxy port"] == "fail"


def test_people_get_a_table_and_a_summary(ask: Ask, tmp_path: Path) -> None:
    """The remedy stands with the check."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)

    _, out = ask()

    assert "chmod 0711" in out
    assert " checks: " in out.splitlines()[-1]


def test_it_says_so_when_it_cannot_look(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3: the agent refuses its settings before it looks at anything."""
    monkeypatch.setenv("ROOFTUNE_DEVICE_KIND", "abacus")

    code, out = ask("--json")

    assert code == 3
    assert "device_kind" in json.loads(out)["error"]["message"]
