"""The API over a fresh database."""

from pathlib import Path

import pytest

from db.session import Sessions
from tests.api.world import World, settle


@pytest.fixture
def world(database_url: str, sessions: Sessions, tmp_path: Path) -> World:
    """An application on a fresh database; authors may not approve their own work."""
    return settle(database_url, sessions, tmp_path)
