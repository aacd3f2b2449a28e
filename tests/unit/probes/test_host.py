"""CPU time of processes that are not ours."""

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from probes.host import HostWatch, _growth, _Usage
from probes.vllm.command import TOKEN_VARIABLE

SPIN = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
NAME = "rt-spinning"
# No process has this id (the kernel's limit lies below), so nothing is ours.
NOBODY = (2**22 + 1,)


@contextmanager
def spinning(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """A process below this one, with a name of its own, that keeps a core busy."""
    program = folder / NAME
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-I", "-S", "-c", SPIN], env=env) as process:
        try:
            yield
        finally:
            process.kill()


def test_a_busy_process_of_ours_is_no_neighbour(tmp_path: Path) -> None:
    """It hangs below the process that watches."""
    watch = HostWatch()
    watch.start()
    with spinning(tmp_path):
        time.sleep(0.5)
        load = watch.stop()

    assert NAME not in load.neighbours


def test_an_engine_of_ours_is_no_neighbour_wherever_it_hangs(tmp_path: Path) -> None:
    """Its token names it: it may have been left by an earlier parent."""
    watch = HostWatch(root_pids=NOBODY, tokens={"run-1"})
    watch.start()
    with spinning(tmp_path, {TOKEN_VARIABLE: "run-1"}):
        time.sleep(0.5)
        load = watch.stop()

    assert NAME not in load.neighbours


def test_a_busy_neighbour_is_counted_and_named_without_its_arguments(tmp_path: Path) -> None:
    """An argument can hold a secret; what it took can disturb the point."""
    watch = HostWatch(root_pids=NOBODY)
    watch.start()
    with spinning(tmp_path):
        time.sleep(0.5)
        load = watch.stop()

    assert NAME in load.neighbours
    assert load.neighbour_cpu_s > 0.1


def usage(cpu_s: float, *, name: str = "x", parent: int = 1) -> _Usage:
    """CPU time of one process."""
    return _Usage(name=name, parent=parent, cpu_s=cpu_s)


def test_a_process_that_came_and_went_is_counted_through_its_parent() -> None:
    """The parent inherits the time of a child that it waited for."""
    before = {(5, 0.0): usage(1.0, name="shell")}
    after = {(5, 0.0): usage(3.5, name="shell")}

    assert _growth(before, after) == {"shell": 2.5}


def test_time_from_before_the_watch_is_not_counted_when_its_process_ends() -> None:
    """100 s of an old child move to its parent when it ends; only what came on top is new."""
    before = {(5, 0.0): usage(1.0, name="shell"), (6, 0.0): usage(100.0, name="old", parent=5)}
    after = {(5, 0.0): usage(101.5, name="shell")}

    assert sum(_growth(before, after).values()) == pytest.approx(0.5)


def test_a_new_process_under_an_old_number_is_another_process() -> None:
    """Numbers are used again: the start time tells them apart."""
    before = {(5, 0.0): usage(50.0, parent=99)}
    after = {(5, 7.0): usage(2.0)}

    assert _growth(before, after) == {"x": 2.0}


def test_a_watch_that_was_not_started_has_no_answer() -> None:
    """Rather than the load since the machine's start."""
    with pytest.raises(InvalidInput):
        HostWatch().stop()
