"""`rooftune up`: every process of the service on this machine, started, watched and ended in order.

Each child runs under `db.guardian`, so that a killed supervisor leaves nothing behind. A child that
ends is started again after a pause that doubles. Everything listens on loopback only.
"""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Self

from advisor.errors import NotAllowed, Unavailable
from api.children import Child, Plan, answers, check_free
from api.settings import UpSettings, inherited_environment
from db import identity, migrate
from db.embedded import EmbeddedPostgres, make_folder
from db.session import close_sessions, open_sessions, transaction

CHECKOUT = Path(__file__).resolve().parents[1]
ENGINE_PYTHON = CHECKOUT / ".venv-engine" / "bin" / "python"
AGENT_GRACE_S = 40.0
LOOK_S = 0.25
Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """Where the parts answer."""

    api: str
    proxy: str
    dashboard: str


class Supervisor:
    """The service on one data folder. `start` from a thread that lives as long as the service.

    `notify` is told of every step in a line. `data_dir` and `port_base` come before the settings'.
    `environment` is what the children inherit.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port_base: int | None = None,
        settings: UpSettings | None = None,
        environment: Mapping[str, str] | None = None,
        notify: Notify = lambda _: None,
    ) -> None:
        self.settings = settings or UpSettings()
        self.data_dir = (data_dir or self.settings.data_dir).absolute()
        base = self.port_base = port_base or self.settings.port_base
        self.urls = Urls(
            api=f"http://127.0.0.1:{base}",
            proxy=f"http://127.0.0.1:{base + 1}",
            dashboard=f"http://127.0.0.1:{base + 2}",
        )
        self._environment = dict(environment or inherited_environment())
        self._report = notify
        self._postgres: EmbeddedPostgres | None = None
        self._children: list[Child] = []
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def key_file(self) -> Path:
        """Where the first admin's key is (0600)."""
        return self.data_dir / "admin.key"

    @property
    def state_file(self) -> Path:
        """Addresses and process ids, for the command line and for people."""
        return self.data_dir / "service.json"

    @property
    def key(self) -> str:
        """The first admin's key."""
        return self.key_file.read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Database, migrations, key, processes; returns when all are started, not yet ready."""
        make_folder(self.data_dir)
        self._take_lock()
        try:
            self._check_ports()
            url = self._database()
            self._report("schema: migrating")
            migrate.upgrade(url)
            self._ensure_key(url)
            self._spawn(url)
        except BaseException:
            self.stop()
            raise

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Until API, proxy and dashboard answer; `Unavailable` names the one that does not."""
        limit = time.monotonic() + (timeout_s or self.settings.ready_timeout_s)
        for child in self._children:
            while child.plan.health_url is not None and not answers(child.plan.health_url):
                if time.monotonic() > limit or self._stopping.is_set():
                    raise Unavailable(
                        f"{child.plan.name} does not answer", f"see {child.plan.log_path}"
                    )
                time.sleep(LOOK_S)
            if child.plan.health_url is not None:
                self._report(f"{child.plan.name}: ready")

    def wait(self) -> None:
        """Until `KeyboardInterrupt` (Ctrl-C) or until another thread calls `stop`."""
        self._stopping.wait()

    def stop(self) -> None:
        """End everything in reverse order; does nothing the second time."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        for child in reversed(self._children):
            self._report(f"{child.plan.name}: stopping")
            child.stop()
        self._children = []
        if self._postgres is not None:
            self._report("database: stopping")
            self._postgres.stop()
            self._postgres = None
        if self._lock is not None:
            self.state_file.unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        lock = (self.data_dir / "service.lock").open("a", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Unavailable(
                f"a service is already running on {self.data_dir}",
                "stop it, or name another folder with --data-dir",
            ) from None
        self._lock = lock
        self._stopping.clear()

    def _check_ports(self) -> None:
        for offset, name in enumerate(("API", "proxy", "dashboard")):
            check_free(self.port_base + offset, name)

    def _database(self) -> str:
        if self.settings.database_url is not None:
            self._report("database: the given one")
            return self.settings.database_url
        self._report("database: starting a private PostgreSQL")
        self._postgres = EmbeddedPostgres(self.data_dir)
        return self._postgres.start()

    def _ensure_key(self, url: str) -> None:
        """Keep the first admin's key in a 0600 file; a lost one is replaced by hand."""
        sessions = open_sessions(url, pool_size=1)
        try:
            with transaction(sessions) as session:
                key = identity.bootstrap_admin(session, identity.utc_now())
                if key is not None:
                    self._write_key(key)
                    return
            self._check_key(url)
        finally:
            close_sessions(sessions)

    def _write_key(self, key: str) -> None:
        self.key_file.unlink(missing_ok=True)
        opened = os.open(self.key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as stream:
            stream.write(f"{key}\n")
        self._report(f"key: written to {self.key_file}")

    def _check_key(self, url: str) -> None:
        sessions = open_sessions(url, pool_size=1)
        try:
            with transaction(sessions) as session:
                identity.authenticate(session, self.key, identity.utc_now())
        except (FileNotFoundError, NotAllowed):
            self._report(f"key: {self.key_file} does not open this service; use a key of yours")
        finally:
            close_sessions(sessions)

    def _spawn(self, url: str) -> None:
        logs = self.data_dir / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        for plan in self._plans(url, logs):
            child = Child(plan)
            self._children.append(child)
            child.start()
            self._report(f"{plan.name}: started, log {plan.log_path}")
        self._write_state()
        self._watcher = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._watcher.start()

    def _plans(self, url: str, logs: Path) -> list[Plan]:
        """In the order of starting; stopping goes the other way."""
        environment = self._child_environment(url)
        python = [sys.executable, "-P", "-m"]
        dashboard = [*python, "streamlit", "run", str(CHECKOUT / "dashboard" / "app.py")]
        dashboard += ["--server.address", "127.0.0.1", "--server.headless", "true"]
        dashboard += ["--server.port", str(self.port_base + 2)]
        dashboard += ["--browser.gatherUsageStats", "false", "--server.fileWatcherType", "none"]
        dashboard += ["--client.toolbarMode", "minimal", "--client.showErrorLinks", "false"]
        without_database = {
            name: value for name, value in environment.items() if "DATABASE_URL" not in name
        }
        if self.settings.single_user:  # nobody else is on this machine: no need to sign in
            without_database.setdefault("ROOFTUNE_KEY_FILE", str(self.key_file))

        def plan(name: str, argv: list[str], health_url: str | None, grace_s: float) -> Plan:
            return Plan(
                name=name,
                argv=tuple(argv),
                environment=without_database if name == "dashboard" else environment,
                log_path=logs / f"{name}.log",
                health_url=health_url,
                grace_s=grace_s,
            )

        return [
            plan("api", [*python, "api"], f"{self.urls.api}/readyz", 10.0),
            plan("proxy", [*python, "api.proxy"], f"{self.urls.proxy}/healthz", 10.0),
            plan("agent", [*python, "probes"], None, AGENT_GRACE_S),
            plan("dashboard", dashboard, f"{self.urls.dashboard}/_stcore/health", 5.0),
        ]

    def _child_environment(self, url: str) -> dict[str, str]:
        engine = self.settings.engine_python or (ENGINE_PYTHON if ENGINE_PYTHON.exists() else None)
        ours = {
            "ROOFTUNE_DATABASE_URL": url,
            "ROOFTUNE_DATA_DIR": str(self.data_dir),
            "ROOFTUNE_API_PORT": str(self.port_base),
            "ROOFTUNE_PROXY_PORT": str(self.port_base + 1),
            "ROOFTUNE_PROXY_URL": self.urls.proxy,
            "ROOFTUNE_URL": self.urls.api,
            "ROOFTUNE_SINGLE_USER": str(self.settings.single_user).lower(),
            "ROOFTUNE_SERVICE_PID": str(os.getpid()),  # what is below it is no neighbour of a probe
            "PYTHONPATH": _path_with(CHECKOUT, self._environment.get("PYTHONPATH")),
            "PYTHONUNBUFFERED": "1",
        }
        if engine is not None:
            ours["ROOFTUNE_ENGINE_PYTHON"] = str(engine.absolute())
        inherited = {name: v for name, v in self._environment.items() if name != "DATABASE_URL"}
        return {**inherited, **ours}

    def state(self) -> dict[str, object]:
        """What the state file says: addresses, process ids, where the key is."""
        return {
            "pid": os.getpid(),
            "urls": asdict(self.urls),
            "key_file": str(self.key_file),
            "children": {child.plan.name: child.pid for child in self._children},
        }

    def _write_state(self) -> None:
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text(json.dumps(self.state(), indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.state_file)

    def _watch(self) -> None:
        """Start again what ended, until told to stop."""
        while not self._stopping.wait(LOOK_S):
            for child in self._children:
                if child.restart_if_due():
                    self._report(f"{child.plan.name}: ended, started again")
                    self._write_state()


def _path_with(first: Path, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else str(first)


def run_until_signal(supervisor: Supervisor, when_ready: Callable[[], None]) -> None:
    """Start, say so, wait for SIGTERM or SIGINT, stop. Call it from the main thread."""
    with interrupted_by_signals(), suppress(KeyboardInterrupt), supervisor:
        supervisor.wait_ready()
        when_ready()
        supervisor.wait()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """The first SIGTERM or SIGINT raises `KeyboardInterrupt`; later ones are ignored."""
    signals = (signal.SIGTERM, signal.SIGINT)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
