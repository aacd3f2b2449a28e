"""`rooftune up`: comes up on an empty folder, and leaves no process and no port behind."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from api.client import Client
from tests.fakes.whole_service import ROOT, WholeService, soon, whole_service

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
GONE_WITHIN_S = 5.0


@pytest.fixture
def service() -> Iterator[WholeService]:
    """A service on an empty folder."""
    with whole_service() as started:
        yield started


def alive(processes: list[psutil.Process]) -> list[str]:
    """Command lines of those that still run."""
    found = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:200])
        except psutil.NoSuchProcess:
            continue
    return found


def test_up_serves_and_a_terminated_one_leaves_nothing(service: WholeService) -> None:
    """All parts answer, the key opens the API, modes are private; SIGTERM ends everything."""
    state = service.ready()
    key_file = service.folder / "admin.key"
    with Client(f"http://127.0.0.1:{service.port_base}", key_file.read_text().strip()) as client:
        me = client.whoami()
    proxy = httpx.get(f"http://127.0.0.1:{service.port_base + 1}/healthz")
    dashboard = httpx.get(f"http://127.0.0.1:{service.port_base + 2}/_stcore/health")
    written = json.loads((service.folder / "service.json").read_text())
    below = service.below()

    assert (me.role, me.single_user) == ("admin", True)
    assert (proxy.status_code, dashboard.status_code) == (200, 200)
    assert written == state
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert len(below) >= 9

    service.process.send_signal(signal.SIGTERM)

    assert service.ended(90) == 0
    assert alive(below) == []
    assert service.taken_ports() == []
    assert not (service.folder / "service.json").exists()


def test_a_killed_supervisor_leaves_nothing_and_starts_again(service: WholeService) -> None:
    """SIGKILL: within 5 s no process and no port is left; the folder can be used at once."""
    service.ready()
    below = service.below()

    service.process.kill()
    service.ended(10)

    assert soon(lambda: alive(below) == [], GONE_WITHIN_S), alive(below)
    assert service.taken_ports() == []

    service.process = service.supervisor()

    assert service.ready()["pid"] == service.process.pid


def test_a_taken_port_is_said_before_anything_starts() -> None:
    """Exit 3, the port and the way out in the message; no database was started."""
    folder = Path(tempfile.mkdtemp(prefix="rooftune-up-"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [sys.executable, "-m", "api.cli", "up", "--data-dir", str(folder)]
        done = subprocess.run(
            [*argv, "--port-base", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    left = sorted(path.name for path in folder.iterdir())
    shutil.rmtree(folder)

    assert done.returncode == 3
    assert str(port) in done.stderr
    assert "--port-base" in done.stderr
    assert left == ["service.lock"]
