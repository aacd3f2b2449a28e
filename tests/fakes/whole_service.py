"""`rooftune up` in a process of its own, on a planted engine: for tests of the whole service."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from api.settings import child_environment

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = ROOT / "tests" / "fakes" / "planted_engine.py"
STOP_WITHIN_S = 120.0


class WholeService:
    """A supervisor in a process of its own, and everything below it.

    `settings` are names without their prefix; they come before those of the planted engine.
    """

    def __init__(
        self, folder: Path, port_base: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.port_base = port_base
        self._settings = dict(settings or {})
        self.process = self.supervisor()

    @property
    def dashboard(self) -> str:
        """Address of the dashboard."""
        return f"http://127.0.0.1:{self.port_base + 2}"

    @property
    def api(self) -> str:
        """Address of the API."""
        return f"http://127.0.0.1:{self.port_base}"

    @property
    def key(self) -> str:
        """The first admin's key."""
        return (self.folder / "admin.key").read_text(encoding="utf-8").strip()

    def supervisor(self) -> subprocess.Popen[str]:
        """Start `rooftune up` on the folder and the ports."""
        argv = [sys.executable, "-m", "api.cli", "up", "--json"]
        argv += ["--data-dir", str(self.folder), "--port-base", str(self.port_base)]
        chosen = {
            "ENGINE_LAUNCHER": str(LAUNCHER),
            "ENGINE_PYTHON": sys.executable,
            "MICROBENCH_S": "0.5",
            **self._settings,
        }
        ours = {f"ROOFTUNE_{name}": value for name, value in chosen.items()}
        return subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**child_environment(), **ours, "PYTHONPATH": str(ROOT)},
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

    def logs(self) -> str:
        """The ends of the logs, for a failing test's message."""
        parts = [
            f"--- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-3000:]}"
            for path in sorted((self.folder / "logs").glob("*.log"))
        ]
        return "\n".join(parts)


@contextmanager
def whole_service(settings: Mapping[str, str] | None = None) -> Iterator[WholeService]:
    """A service on an empty folder that an unprivileged database server can reach."""
    folder = Path(tempfile.mkdtemp(prefix="rooftune-up-"))
    folder.chmod(0o711)
    started = WholeService(folder, _three_free_ports(), settings)
    try:
        yield started
    finally:
        if started.process.returncode is None:
            started.process.terminate()
            started.ended(STOP_WITHIN_S)
        shutil.rmtree(folder)


def soon(check: Callable[[], bool], within_s: float) -> bool:
    """Whether `check` becomes true in time."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        if check():
            return True
        time.sleep(0.05)
    return check()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _three_free_ports() -> int:
    """The first of three neighbouring free ports."""
    for base in range(21_000 + os.getpid() % 5_000, 30_000, 3):
        if not any(_listens(base + n) for n in range(3)):
            return base
    pytest.skip("no three neighbouring ports are free")
