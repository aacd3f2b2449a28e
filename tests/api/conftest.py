"""The API over a fresh database."""

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from api.cli import main
from db.identity import Principal, Role
from db.session import Sessions
from tests.api.front import KEY, PROJECT, Engine, Own, Run, Stub
from tests.api.world import World, settle
from tests.fakes.directory import PlantedDirectory


@pytest.fixture
def world(database_url: str, sessions: Sessions, tmp_path: Path) -> World:
    """An application on a fresh database; authors may not approve their own work."""
    return settle(database_url, sessions, tmp_path)


@pytest.fixture
def address(world: World) -> Iterator[str]:
    """The application behind a real server on a loopback port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = uvicorn.Config(world.app, host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def rooftune(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a command on an empty data folder: exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        words = [str(argument) for argument in arguments]
        code = main(["--data-dir", str(tmp_path / "data"), *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    """A dozen short requests."""
    file = tmp_path / "traffic.jsonl"
    rows = ({"prompt": f"question {i} of many", "output_tokens": 4} for i in range(12))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def directory() -> PlantedDirectory:
    """A table of deployments without a database, with one caller who has a key."""
    caller = Principal(
        user_id=uuid.uuid4(), name="ada", role=Role.VIEWER, project_ids=frozenset({PROJECT})
    )
    return PlantedDirectory(sessions=None, key_cache_s=60, callers={KEY: caller})  # type: ignore[arg-type]


StartEngine = Callable[..., Engine]


@pytest.fixture(params=["cases", "own"])
def engine_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartEngine]:
    """Starts an engine in a mode: the cases' stub as a process, and our own beside it."""
    started: list[Engine] = []

    def start(mode: str, *, delay_s: float | None = None) -> Engine:
        made: Engine
        if request.param == "own":
            made = Own(mode, delay_s=delay_s)
        else:
            script = request.getfixturevalue("shared") / "cases" / "stub_engine.py"
            made = Stub(script, mode, tmp_path / f"{len(started)}-{mode}.log", delay_s=delay_s)
        started.append(made)
        return made

    yield start
    for engine in started:
        engine.stop()
