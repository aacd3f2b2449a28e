"""A dashboard whose session holds a planted client."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from streamlit.testing.v1 import AppTest

from tests.fakes.planted_client import PlantedClient

APP = Path(__file__).resolve().parent.parent.parent / "dashboard" / "app.py"
TIMEOUT_S = 120.0
Opened: TypeAlias = Callable[[PlantedClient, str], AppTest]


@pytest.fixture(scope="session")
def app_path() -> Path:
    """The script that `streamlit run` is given."""
    return APP


@pytest.fixture(scope="session")
def opened() -> Opened:
    """A page as the client's owner sees it."""

    def opened(client: PlantedClient, page: str) -> AppTest:
        at = AppTest.from_file(APP, default_timeout=TIMEOUT_S)
        at.session_state["client"] = client
        at.run()
        return at.switch_page(f"pages/{page}.py").run()

    return opened
