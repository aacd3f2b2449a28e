"""`rooftune up`: comes up on an empty folder, and leaves no process and no port behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import psutil
import pytest

from api.client import Client
from api.settings import child_environment

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "tests" / "fakes" / "planted_engine.py"
GONE_WITHIN_S = 5.0


class Service:
    """A supervisor in a process of its own, and everything below it."""

    def __init__(self, folder: Path, port_base: int) -> None:
        self.folder = folder
        self.port_base = port_base
        self.process = self.supervisor()

    def supervisor(self) -> subprocess.Popen[str]:
        """Start `rooftune up` on the folder and the ports."""
        argv = [sys.executable, "-m", "api.cli", "up", "--json"]
        argv += ["--data-dir", str(self.folder), "--port-base", str(self.port_base)]
        ours = {"ROOFTUNE_ENGINE_LAUNCHER": str(LAUNCHER), "ROOFTUNE_MICROBENCH_S": "0.5"}
        ours |= {"ROOFTUNE_ENGINE_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**child_environment(), **ours},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ready(self) -> Mapping[str, object]:
        """What `up --json` says once everything answers."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        state: Mapping[str, object] = json.loads(line)
        return state

    def ended(self, within_s: float) -> int:
        """Wait for the supervisor's end; its exit code."""
        assert self.process.stdout is not None
        code = self.process.wait(within_s)
        self.process.stdout.close()
        return code

    def below(self) -> list[psutil.Process]:
        """Every process below the supervisor."""
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found

    def taken_ports(self) -> list[int]:
        """Our ports on which somebody listens."""
        return [self.port_base + n for n in range(3) if _listens(self.port_base + n)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _three_free_ports() -> int:
    """The first of three neighbouring free ports."""
    for base in range(21_000 + os.getpid() % 5_000, 30_000, 3):
        if not any(_listens(base + n) for n in range(3)):
            return base
    pytest.skip("no three neighbouring ports are free")


@pytest.fixture
def service() -> Iterator[Service]:
    """A service on an empty folder that an unprivileged database server can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rooftune-up-"))
    folder.chmod(0o711)
    started = Service(folder, _three_free_ports())
    yield started
    if started.process.returncode is None:
        started.process.terminate()
        started.ended(120)
    shutil.rmtree(folder)


def soon(check: Callable[[], bool], within_s: float) -> bool:
    """Whether `check` becomes true in time."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        if check():
            return True
        time.sleep(0.05)
    return check()


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


def test_up_serves_and_a_terminated_one_leaves_nothing(service: Service) -> None:
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


def test_a_killed_supervisor_leaves_nothing_and_starts_again(service: Service) -> None:
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
