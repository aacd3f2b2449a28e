"""The guardian on real processes: nothing outlives whoever asked for it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from db import guardian

pytestmark = pytest.mark.processes

# Starts a grandchild in a session of its own, writes both pids to a file, sleeps; says on SIGTERM.
TREE = """
import os, signal, subprocess, sys, time
grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(sys.argv[1] + ".part", "w") as file:
    file.write(f"{os.getpid()} {grandchild.pid}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
def polite(*_):
    open(sys.argv[1] + ".polite", "w").close()
    sys.exit(7)
if sys.argv[2] == "polite":
    signal.signal(signal.SIGTERM, polite)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(1000)
"""
# A parent that starts the guardian and waits; it is killed without notice.
PARENT = """
import subprocess, sys
from db import guardian
subprocess.Popen(guardian.command(sys.argv[1:], grace_s=0.5)).wait()
"""


def gone(pid: int) -> bool:
    """Whether a process has ended (one that waits to be collected has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def within(limit_s: float, true: Callable[[], bool]) -> bool:
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        if true():
            return True
        time.sleep(0.02)
    return true()


def tree(file: Path, manner: str) -> list[str]:
    return [sys.executable, "-c", TREE, str(file), manner]


def pids(file: Path) -> list[int]:
    assert within(20, file.exists)
    return [int(pid) for pid in file.read_text().split()]


def test_the_tree_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    """`kill -9` of the parent: child and its session-leading grandchild are gone in 3 s."""
    file = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *tree(file, "stubborn")])
    family = pids(file)
    parent.kill()
    parent.wait()

    assert within(3, lambda: all(gone(pid) for pid in family))


def test_a_stop_is_passed_on_and_waited_for(tmp_path: Path) -> None:
    """SIGTERM reaches the command, whose own exit code comes back; its leftovers are killed."""
    file = tmp_path / "pids"
    process = subprocess.Popen(guardian.command(tree(file, "polite"), grace_s=20))
    family = pids(file)
    process.terminate()
    code = process.wait(timeout=15)

    assert code == 7
    assert Path(f"{file}.polite").exists()
    assert all(gone(pid) for pid in family)


def test_a_command_that_does_not_stop_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    """After the grace time SIGKILL: the code says so, and not before."""
    file = tmp_path / "pids"
    process = subprocess.Popen(guardian.command(tree(file, "stubborn"), grace_s=0.4))
    family = pids(file)
    began = time.monotonic()
    process.terminate()
    code = process.wait(timeout=15)

    assert code == 128 + signal.SIGKILL
    assert time.monotonic() - began >= 0.4
    assert all(gone(pid) for pid in family)


def test_the_stop_signal_can_be_chosen() -> None:
    """PostgreSQL wants SIGINT: the command ends by it, and the code is 128 + 2."""
    argv = guardian.command(["sleep", "1000"], stop_signal=signal.SIGINT)
    process = subprocess.Popen(argv)
    assert within(10, lambda: bool(guardian.descendants(process.pid)))
    time.sleep(0.2)  # the command is there before it has become `sleep`
    process.terminate()

    assert process.wait(timeout=10) == 128 + signal.SIGINT


@pytest.mark.parametrize("code", [0, 3, 77])
def test_the_exit_code_is_the_commands(code: int) -> None:
    """A command that ends by itself hands its code through."""
    argv = guardian.command([sys.executable, "-S", "-c", f"raise SystemExit({code})"])

    assert subprocess.run(argv, check=False).returncode == code


def test_leftovers_of_a_command_that_ended_are_killed(tmp_path: Path) -> None:
    """A front end that dies alone does not leave its workers behind."""
    file = tmp_path / "pid"
    script = f"setsid sleep 1000 & echo $! > {file}.part; mv {file}.part {file}"
    done = subprocess.run(guardian.command(["sh", "-c", script]), check=False)

    assert done.returncode == 0
    assert gone(int(file.read_text()))


def test_a_command_that_is_not_there_is_127() -> None:
    """The guardian says on stderr what it could not run."""
    argv = guardian.command(["no-such-command-of-ours"])
    done = subprocess.run(argv, check=False, capture_output=True, text=True)

    assert done.returncode == 127
    assert "no-such-command-of-ours" in done.stderr


def test_a_parent_that_died_first_means_nothing_is_started(tmp_path: Path) -> None:
    """The race: the parent is gone before the guardian asked to be told of its death."""
    argv = guardian.command(["touch", str(tmp_path / "started")])
    argv[argv.index("--parent") + 1] = "1"

    assert subprocess.run(argv, check=False).returncode == 128 + signal.SIGTERM
    assert not (tmp_path / "started").exists()


def test_the_end_of_the_spawning_thread_is_not_the_end_of_the_parent(tmp_path: Path) -> None:
    """PR_SET_PDEATHSIG fires when a thread ends; the guardian looks whether the parent lives."""
    script = (
        "import subprocess, sys, threading, time\n"
        "from db import guardian\n"
        "held = []\n"
        "def spawn():\n"
        "    held.append(subprocess.Popen(guardian.command(sys.argv[1:])))\n"
        "    time.sleep(0.5)\n"
        "thread = threading.Thread(target=spawn)\n"
        "thread.start(); thread.join()\n"
        "sys.exit(held[0].wait())\n"
    )
    argv = [sys.executable, "-c", script, "sh", "-c", "sleep 1.2; exit 5"]

    assert subprocess.run(argv, check=False).returncode == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_runs_the_command_as_the_user_it_names() -> None:
    """No group of root is kept."""
    argv = guardian.command(["id"], uid=65534, gid=65534)
    done = subprocess.run(argv, check=True, capture_output=True, text=True)

    assert "uid=65534" in done.stdout
    assert "(root)" not in done.stdout
