"""A planted slowdown: a share of the time an engine's processes stand still (SIGSTOP, SIGCONT)."""

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import psutil

from advisor.errors import EngineFailed
from advisor.states import FailureKind
from probes.vllm.engine import RunningEngine

PERIOD_S = 0.1


@contextmanager
def slowed(pids: Collection[int], share: float) -> Iterator[None]:
    """While inside, the processes stand still for `share` of the time; at the end all run.

    By the clock, not by counting sleeps: each pause is made up for by how long it really was, so
    that the share holds on a busy machine too.
    """
    ended = threading.Event()
    worker = threading.Thread(target=_pauses, args=(tuple(pids), share, ended), daemon=True)
    worker.start()
    try:
        yield
    finally:
        ended.set()
        worker.join()
        _signal_all(pids, signal.SIGCONT)


def _pauses(pids: Collection[int], share: float, ended: threading.Event) -> None:
    while not ended.is_set():
        stopped_s = time.monotonic()
        _signal_all(pids, signal.SIGSTOP)
        time.sleep(PERIOD_S * share)
        _signal_all(pids, signal.SIGCONT)
        paused_s = time.monotonic() - stopped_s
        ended.wait(paused_s * (1 - share) / share)


def computing(engine: RunningEngine) -> tuple[int, ...]:
    """What a real engine's front end started: its core and its workers.

    The front end itself, the guardian's child, only passes frames on.
    """
    below = [
        child.pid
        for front in psutil.Process(engine.pid).children()
        for child in front.children(recursive=True)
    ]
    if not below:
        raise EngineFailed(FailureKind.DIED, "no core process of the engine was found")
    return tuple(below)


def _signal_all(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it ended; what measures the engine says so
