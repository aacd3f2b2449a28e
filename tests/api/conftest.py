"""The API over a fresh database."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from db.session import Sessions
from tests.api.world import World, settle


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
