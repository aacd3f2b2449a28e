"""A private PostgreSQL from the binaries of a PyPI wheel, for machines without a server.

Under the data folder (or, where the server's user cannot reach it, see `_base`):

    postgres/            0711: ours, passed through by the server's user
    postgres/lock        held while a server of ours runs
    postgres/password    0600
    postgres/server.log
    postgres/data        0700, the server's user
    postgres/run         0700, the server's user: the socket; there is no TCP port
    postgres/binaries    a copy of the wheel's binaries, only where the originals are out of reach

PostgreSQL refuses to run as root, so for root it runs as an unprivileged user. A folder that was
not made here keeps its mode and its owner, always.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self
from urllib.parse import quote

import psycopg

from advisor.errors import Unavailable
from db import guardian
from db.postgres import Binaries, account, binaries, private_folder, reachable

DATABASE = "rooftune"
SOCKET_NAME = ".s.PGSQL.5432.lock"
SOCKET_LIMIT_BYTES = 107
GRACE_S = 10.0
START_LIMIT_S = 60.0
ORPHAN_LIMIT_S = 15.0
MAJOR_SEEN = "PG_VERSION"
STATE_ROOT = Path("/var/lib/rooftune")
SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "max_connections": "100",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # A failing statement is not worth a line that might quote somebody's prompt.
    "log_min_error_statement": "panic",
}


def make_folder(path: Path) -> None:
    """Create `path` and what is missing above it, passable for other users (0711); else nothing."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        path.chmod(0o711)


class EmbeddedPostgres:
    """One private server on one data folder; the process that starts it owns it.

    `start` from a thread that lives as long as the server shall. `user` is who runs the server
    when the caller is root; `state_root` is where its files go when that user cannot reach
    `data_dir`; `settings` are extra lines for the server.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        user: str = "nobody",
        state_root: Path = STATE_ROOT,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = data_dir.absolute()
        self._account = account(user)
        self._state_root = state_root
        self._settings = {**SETTINGS, **(settings or {})}
        self._home = Path()
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def home(self) -> Path:
        """The folder with everything of this server; known after `start`."""
        return self._home

    @property
    def url(self) -> str:
        """Address of the running server's database."""
        return self._url(DATABASE)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Initialise if need be, start, wait until it answers; the address of the database."""
        if self.running:
            return self.url
        self._home = self._base() / "postgres"
        make_folder(self._home)
        self._take_lock()
        try:
            self._end_orphan()
            programs = self._programs()
            self._initialise(programs)
            self._run(programs)
            self._await_answer()
            self._create_database()
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self) -> None:
        """Fast shutdown: sessions are cut, data is safe. Does nothing when nothing runs."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(GRACE_S + 2 * guardian.KILL_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._lock is not None:
            self._remove_short_folder()
            self._lock.close()
            self._lock = None

    def _remove_short_folder(self) -> None:
        """The socket's folder, where it had to lie outside the data folder; empty by now."""
        folder = self._socket_path()
        if folder.parent != self._home:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _base(self) -> Path:
        """The data folder, or a folder of ours that the server's user can reach.

        A data folder under somebody's 0700 folder cannot be opened to another user without
        changing a mode that is not ours to change; then the files live under `state_root`, in a
        folder named by the hash of the data folder's path.
        """
        make_folder(self._data_dir)
        if reachable(self._data_dir, self._account):
            return self._data_dir
        name = hashlib.sha256(str(self._data_dir).encode()).hexdigest()[:16]
        base = self._state_root / name
        make_folder(base)
        if not reachable(base, self._account):
            raise Unavailable(
                f"user {self._account.name!r} can reach neither {self._data_dir} nor {base}",
                "choose another data folder, or give DATABASE_URL",
            )
        (self._data_dir / "postgres.location").write_text(f"{base}\n")
        return base

    def _take_lock(self) -> None:
        lock = (self._home / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise Unavailable(
                f"a database server is already running on {self._home}",
                "stop the service that uses this data folder, or choose another one",
            ) from None
        self._lock = lock

    def _end_orphan(self) -> None:
        """Wait for, then end, a server whose supervisor was killed; forget a stale pid file.

        We hold the lock, so a live server on this folder is one that is on its way out.
        """
        pid_file = self._home / "data" / "postmaster.pid"
        asked = False
        limit = time.monotonic() + ORPHAN_LIMIT_S
        while (pid := self._server_pid(pid_file)) is not None:
            left_s = limit - time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                if left_s < 0:
                    os.kill(pid, signal.SIGQUIT)
                elif left_s < ORPHAN_LIMIT_S / 2 and not asked:
                    os.kill(pid, signal.SIGINT)
                    asked = True
            time.sleep(0.05)
        pid_file.unlink(missing_ok=True)
        (self._socket_folder() / SOCKET_NAME).unlink(missing_ok=True)

    def _server_pid(self, pid_file: Path) -> int | None:
        """The live server that the pid file names, if that process really is ours."""
        try:
            pid = int(pid_file.read_text().splitlines()[0])
            started_in = Path(f"/proc/{pid}/cwd").readlink()
        except (OSError, ValueError, IndexError):
            return None
        return pid if started_in == pid_file.parent.resolve() else None

    def _programs(self) -> Binaries:
        """The wheel's binaries, or a copy of them that the server's user can reach."""
        seen = self._home / "data" / MAJOR_SEEN
        found = binaries(int(seen.read_text()) if seen.is_file() else None)
        if all(reachable(part, self._account) for part in found.parts()):
            return found
        return found.copied(self._home / "binaries")

    def _initialise(self, programs: Binaries) -> None:
        marker = self._home / "initialised"
        if marker.is_file():
            return
        data = self._home / "data"
        if data.exists():  # an initdb that was interrupted
            shutil.rmtree(data)
        private_folder(data, self._account)
        password = secrets.token_urlsafe(32)
        self._write_password(password)
        # initdb reads the password as the server's user: a file of that user, for this moment.
        with tempfile.NamedTemporaryFile("w", dir=self._socket_folder()) as handed:
            os.fchown(handed.fileno(), self._account.uid, self._account.gid)
            handed.write(password)
            handed.flush()
            argv = [
                *(str(programs.folder / "initdb"), "-D", str(data), "-U", DATABASE),
                *("-A", "scram-sha-256", "--pwfile", handed.name),
                *("-E", "UTF8", "--locale", "C"),
                *(["--no-sync"] if self._settings.get("fsync") == "off" else []),
            ]
            done = self._as_account(argv)
        if done.returncode:
            raise Unavailable("initdb failed", done.stderr.strip()[-1000:] or "it said nothing")
        marker.touch()

    def _as_account(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run one command of the server to its end, as its user."""
        return subprocess.run(
            argv,
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env=programs_environment(),
            **self._account.arguments(),
        )

    def _write_password(self, password: str) -> None:
        path = self._home / "password"
        path.unlink(missing_ok=True)
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w") as stream:
            stream.write(password)

    def _socket_folder(self) -> Path:
        """The server's own 0700 folder for the socket."""
        folder = self._socket_path()
        private_folder(folder, self._account)
        return folder

    def _socket_path(self) -> Path:
        """Where that folder is: short enough for a socket's address."""
        folder = self._home / "run"
        if len(os.fsencode(folder / SOCKET_NAME)) <= SOCKET_LIMIT_BYTES:
            return folder
        name = hashlib.sha256(str(self._home).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"rooftune-{name}"

    def _run(self, programs: Binaries) -> None:
        settings = {**self._settings, "unix_socket_directories": str(self._socket_folder())}
        argv = [str(programs.folder / "postgres"), "-D", str(self._home / "data")]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        owner = self._account if self._account.switch else None
        argv = guardian.command(
            argv,
            stop_signal=signal.SIGINT,
            grace_s=GRACE_S,
            uid=owner.uid if owner else None,
            gid=owner.gid if owner else None,
        )
        log_file = os.open(self._home / "server.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(log_file, "wb") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=programs_environment(),
            )

    def _await_answer(self) -> None:
        limit = time.monotonic() + START_LIMIT_S
        while True:
            try:
                psycopg.connect(self._url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if not self.running or time.monotonic() > limit:
                    log = (self._home / "server.log").read_text(errors="replace")
                    raise Unavailable("PostgreSQL did not start", log.strip()[-1000:]) from None
                time.sleep(0.02)
            else:
                return

    def _create_database(self) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            query = "SELECT 1 FROM pg_database WHERE datname = %s"
            if connection.execute(query, (DATABASE,)).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _url(self, database: str) -> str:
        password = (self._home / "password").read_text()
        socket = quote(str(self._socket_path()), safe="")
        return f"postgresql://{DATABASE}:{quote(password, safe='')}@/{database}?host={socket}"


def programs_environment() -> dict[str, str]:
    """What the server's programs get of the environment: nothing of ours."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
