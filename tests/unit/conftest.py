"""Unit tests open no network socket: pytest-socket makes an attempt an error."""

from collections.abc import Iterator

import pytest
import pytest_socket


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    """Block network sockets; an event loop's own Unix pair is no network."""
    pytest_socket.disable_socket(allow_unix_socket=True)
    yield
    pytest_socket.enable_socket()
