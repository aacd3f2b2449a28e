"""The private server: its folders, its end with its owner, and nobody else's folders touched."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from advisor.errors import Unavailable
from db.embedded import EmbeddedPostgres
from db.postgres import account, binaries, reachable
from tests.fakes.postgres import QUICK

pytestmark = [pytest.mark.postgres, pytest.mark.processes]
ROOT = os.geteuid() == 0
OWNER = """
import sys, time
from pathlib import Path
from db.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off"}).start(), flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that every user may pass (pytest's own are 0700)."""
    folder = Path(tempfile.mkdtemp(prefix="rooftune-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def data_dir(open_folder: Path) -> Path:
    """A data folder that was initialised once; each test leaves it stopped."""
    folder = open_folder / "service"
    with EmbeddedPostgres(folder, settings=QUICK) as server, psycopg.connect(server.url) as used:
        used.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    return folder


def modes(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode, owner and group of a folder and all folders above it."""
    found = {}
    for folder in (path, *path.parents):
        status = folder.stat()
        found[folder] = (status.st_mode, status.st_uid, status.st_gid)
    return found


def answer(url: str) -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT answer FROM kept").fetchone()
    assert row is not None
    return row[0]


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres/data/postmaster.pid").read_text().splitlines()[0])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_data_survive_a_restart_and_folders_are_private(data_dir: Path) -> None:
    """0700 for the data and the socket, 0600 for the password, no TCP port."""
    before = modes(data_dir.parent)
    with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        kept = answer(server.url)
        home = server.home
        with psycopg.connect(server.url) as connection:
            listening = connection.execute("SHOW listen_addresses").fetchone()

    assert kept == 42
    assert listening == ("",)
    assert [mode(home / name) for name in ("data", "run")] == [0o700, 0o700]
    assert [mode(home / name) for name in ("password", "server.log")] == [0o600, 0o600]
    assert modes(data_dir.parent) == before


def test_a_wrong_password_is_refused(data_dir: Path) -> None:
    """The socket's folder is not the only lock."""
    with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        head, _, tail = server.url.partition("@")
        guess = f"{head.rpartition(':')[0]}:guess@{tail}"
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(guess)


def test_a_second_server_on_the_same_folder_is_refused(data_dir: Path) -> None:
    """A clear error, and the first one goes on undisturbed."""
    with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        second = EmbeddedPostgres(data_dir, settings=QUICK)
        with pytest.raises(Unavailable, match="already running"):
            second.start()

        assert answer(server.url) == 42


def test_stopping_leaves_no_process_socket_or_lock(data_dir: Path) -> None:
    """After a clean stop nothing is left but the files."""
    server = EmbeddedPostgres(data_dir, settings=QUICK)
    server.start()
    pid = server_pid(data_dir)
    server.stop()

    assert not Path(f"/proc/{pid}").exists()
    assert list((data_dir / "postgres/run").iterdir()) == []
    assert not server.running
    server.start()  # the lock is free again
    server.stop()


def test_the_server_ends_with_its_killed_owner_and_starts_again(data_dir: Path) -> None:
    """`kill -9` of the owner: the server is gone in seconds; the next start finds its data."""
    argv = [sys.executable, "-c", OWNER, str(data_dir)]
    owner = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    owner.stdout.readline()
    pid = server_pid(data_dir)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    with EmbeddedPostgres(data_dir, settings=QUICK) as server:  # at once, while the old one ends
        kept = answer(server.url)
        old_is_gone = server_pid(data_dir) != pid

    assert kept == 42
    assert old_is_gone


def test_a_stale_pid_file_of_a_reused_pid_does_not_matter(data_dir: Path) -> None:
    """The pid in it may belong to anybody by now; that process is not touched."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    pid_file = data_dir / "postgres/data/postmaster.pid"
    pid_file.write_text(f"{bystander.pid}\n{pid_file.parent}\n0\n5432\n")
    with EmbeddedPostgres(data_dir, settings=QUICK) as server:
        kept = answer(server.url)
    still_there = bystander.poll() is None
    bystander.kill()
    bystander.wait()

    assert kept == 42
    assert still_there


def test_a_killed_postmaster_is_recovered(data_dir: Path) -> None:
    """The server's log tells of a crash; committed data are there."""
    server = EmbeddedPostgres(data_dir, settings=QUICK)
    server.start()
    os.kill(server_pid(data_dir), signal.SIGKILL)
    limit = time.monotonic() + 10
    while server.running and time.monotonic() < limit:
        time.sleep(0.05)
    server.stop()
    with EmbeddedPostgres(data_dir, settings=QUICK) as again:
        assert answer(again.url) == 42


def test_an_interrupted_initialisation_is_done_again_under_a_long_path(open_folder: Path) -> None:
    """Half-made data are thrown away; a long path gets its socket in the temporary folder."""
    data_dir = open_folder / ("long" * 12) / ("path" * 12)
    server = EmbeddedPostgres(data_dir, settings=QUICK)
    server.start()
    server.stop()
    (data_dir / "postgres/initialised").unlink()
    (data_dir / "postgres/data/PG_VERSION").unlink()
    url = server.start()
    with psycopg.connect(url) as connection:
        told = connection.execute("SHOW unix_socket_directories").fetchone()
    assert told is not None
    folder = Path(str(told[0]))
    used = mode(folder)
    server.stop()

    assert used == 0o700
    assert folder.parent == Path(tempfile.gettempdir())
    assert not folder.exists()


@pytest.mark.skipif(not ROOT, reason="only root starts the server as another user")
def test_under_a_closed_folder_no_mode_changes_and_the_files_go_elsewhere(
    open_folder: Path,
) -> None:
    """A data folder in somebody's 0700 home: nothing of theirs is opened to the server's user."""
    home = open_folder / "home"
    home.mkdir(mode=0o700)
    given = home / "project"
    given.mkdir(mode=0o755)
    data_dir = given / ".service"
    before = modes(given)
    state_root = open_folder / "state"
    server = EmbeddedPostgres(data_dir, state_root=state_root, settings=QUICK)
    with server, psycopg.connect(server.url) as connection:
        told = connection.execute("SHOW data_directory").fetchone()
    pointer = (data_dir / "postgres.location").read_text().strip()

    assert modes(given) == before
    assert told == (f"{pointer}/postgres/data",)
    assert Path(pointer).parent == state_root


@pytest.mark.skipif(not ROOT, reason="only root starts the server as another user")
def test_a_folder_that_somebody_made_keeps_its_mode(open_folder: Path) -> None:
    """An existing 0700 data folder is not opened either."""
    data_dir = open_folder / "made"
    data_dir.mkdir(mode=0o700)
    before = modes(data_dir)
    server = EmbeddedPostgres(data_dir, state_root=data_dir / "inside", settings=QUICK)
    with pytest.raises(Unavailable, match="can reach neither"):
        server.start()

    assert modes(data_dir) == before


@pytest.mark.skipif(not ROOT, reason="only root starts the server as another user")
def test_copied_binaries_run_as_the_unprivileged_user(open_folder: Path) -> None:
    """Where the wheel is out of the user's reach, a copy of it with its libraries is used."""
    who = account("nobody")
    copy = binaries(None).copied(open_folder / "binaries")
    done = subprocess.run(
        [str(copy.folder / "initdb"), "--version"],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
        **who.arguments(),
    )

    assert all(reachable(part, who) for part in copy.parts())
    assert done.stdout.startswith("initdb (PostgreSQL)")
    assert binaries(None).copied(open_folder / "binaries") == copy


def test_the_socket_is_no_tcp_port(data_dir: Path) -> None:
    """Nothing answers on PostgreSQL's port because of us."""
    with (
        EmbeddedPostgres(data_dir, settings=QUICK) as server,
        psycopg.connect(server.url) as connection,
    ):
        row = connection.execute("SELECT inet_server_addr()").fetchone()
        host = connection.pgconn.host

    assert row == (None,)
    assert host.startswith(b"/")
