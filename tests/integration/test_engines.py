"""Several engines on one host: each is a row with the flags of its own interpreter."""

import json
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from db import engines
from db.session import Sessions, transaction
from probes.registration import Registration
from probes.settings import AgentSettings
from probes.vllm.flags import read_schema

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
ENGINES = Path(__file__).resolve().parent.parent / "golden" / "engine"
OLD, NEW = "0.31.0", "0.32.0"


def interpreter(folder: Path, version: str) -> Path:
    """A program that answers as that version's interpreter does when it is asked for its flags."""
    dump = json.loads((ENGINES / f"flags-{version}-cpu.json").read_text())
    python = folder / version / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\nprint({json.dumps(dump)!r})\n")
    python.chmod(0o700)
    return python


def registration(
    sessions: Sessions, folder: Path, *, own: Path, more: str = "", hour: int = 0
) -> Registration:
    """The registration of an agent that starts at that hour."""
    settings = AgentSettings(
        database_url="", data_dir=folder, host_name="h", engine_python=own, more_engines=more
    )
    began = datetime(2026, 11, 30, tzinfo=UTC) + timedelta(hours=hour)
    ticks = count()
    return Registration(
        settings,
        sessions,
        stop=threading.Event(),
        now=lambda: began + timedelta(seconds=next(ticks)),
        base_env={},
    )


def test_each_engine_has_its_own_flags_and_the_agents_own_is_the_default(
    sessions: Sessions, tmp_path: Path
) -> None:
    """An older engine that is added later does not become what new targets get."""
    old, new = interpreter(tmp_path, OLD), interpreter(tmp_path, NEW)
    registration(sessions, tmp_path, own=new).engine()
    row = registration(sessions, tmp_path, own=new, more=str(old), hour=1).engine()
    with transaction(sessions) as session:
        rows = engines.page(session, limit=10, cursor=None).items
        newest = engines.newest(session)
    schemas = {read_schema(row.flags).version: read_schema(row.flags) for row in rows}

    assert {row.version: row.interpreter for row in rows} == {OLD: str(old), NEW: str(new)}
    assert newest is not None
    assert newest.id == row.id
    assert "--enable-hc-sp" in schemas[NEW].flags - schemas[OLD].flags


def test_a_further_engine_that_does_not_answer_is_left_out(
    sessions: Sessions, tmp_path: Path
) -> None:
    """The agent starts with the engines that work."""
    new, gone = interpreter(tmp_path, NEW), tmp_path / "gone" / "bin" / "python"
    row = registration(sessions, tmp_path, own=new, more=str(gone)).engine()

    assert row.version == NEW
    with transaction(sessions) as session:
        assert len(engines.page(session, limit=10, cursor=None).items) == 1
