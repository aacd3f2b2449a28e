"""The flag dump that an installation left behind counts only while nothing changed since."""

import json
import os
from pathlib import Path

import pytest

from probes.engines import FLAGS_RECORD, Interpreter

DUMP = {"vllm_version": "0.32.0", "serve_module": ["-m", "vllm.entrypoints.cli.main", "serve"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An environment folder with a fresh record."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (tmp_path / FLAGS_RECORD).write_text(json.dumps(DUMP))
    return tmp_path


def asked(home: Path, launcher: Path | None = None) -> object:
    return Interpreter(python=home / "bin" / "python", launcher=launcher).recorded_flags()


def test_a_fresh_record_is_believed(home: Path) -> None:
    """Nothing was installed after it."""
    assert asked(home) == DUMP


def test_an_installation_after_it_makes_it_stale(home: Path) -> None:
    """Its folder is newer."""
    record = home / FLAGS_RECORD
    later = record.stat().st_mtime + 5
    os.utime(home / "lib" / "python3.11" / "site-packages", (later, later))

    assert asked(home) is None


def test_a_launcher_is_always_asked_itself(home: Path) -> None:
    """It stands in for the engine."""
    assert asked(home, home / "launcher.py") is None


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"serve_module": ["gone/serve.py"]})])
def test_a_record_that_says_nothing_is_not_used(home: Path, text: str) -> None:
    """Empty, no object, cut off, or about a script that is not there."""
    (home / FLAGS_RECORD).write_text(text)

    assert asked(home) is None


def test_without_a_record_the_engine_is_asked(home: Path) -> None:
    """An environment that was not made by `make setup`."""
    (home / FLAGS_RECORD).unlink()

    assert asked(home) is None
