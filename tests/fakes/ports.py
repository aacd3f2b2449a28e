"""Free loopback ports for servers that tests start."""

import os
import socket

import pytest


def listens(port: int) -> bool:
    """Whether somebody answers on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_port_base() -> int:
    """The first of three neighbouring free ports."""
    for base in range(21_000 + os.getpid() % 5_000, 30_000, 3):
        if not any(listens(base + n) for n in range(3)):
            return base
    pytest.skip("no three neighbouring ports are free")
