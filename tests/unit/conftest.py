"""Unit tests open no socket: pytest-socket makes an attempt an error."""

import pytest


@pytest.fixture(autouse=True)
def no_sockets(socket_disabled: None) -> None:
    """Ask pytest-socket for its block in every test of this folder."""
