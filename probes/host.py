"""What else the machine does while a load is measured, so that a disturbed point is marked."""

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import psutil

from advisor.errors import InvalidInput
from advisor.measurement.protocol.neighbours import disturbed
from advisor.measurement.records import HostLoad
from probes.vllm.command import TOKEN_VARIABLE

# Named in the record when it took at least this share of one core.
_NAMED_CORES = 0.01
_NAMED_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    """CPU time of one process with that of its ended children."""

    name: str
    parent: int
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The machine at one time. Processes are keyed by (pid, start time)."""

    at_s: float
    load_average: float
    total_s: float
    steal_s: float | None
    neighbours: Mapping[tuple[int, float], _Usage]


@dataclass
class HostWatch:
    """Between `start` and `stop`: CPU time of processes that are not ours.

    Ours are the processes of `root_pids` (this process when empty), all below them, and all that
    carry one of `tokens` in their environment (engines). `ours` adds pids known only later.
    """

    root_pids: Collection[int] = ()
    tokens: Collection[str] = ()
    ours: Callable[[], Collection[int]] = tuple
    _begun: _Moment | None = field(default=None)

    def start(self) -> None:
        """Note the machine's state before the load."""
        self._begun = self._moment()

    def stop(self) -> HostLoad:
        """The load of others since `start`."""
        begun, ended = self._begun, self._moment()
        if begun is None:
            raise InvalidInput("host_watch", "it was not started")
        span_s = max(ended.at_s - begun.at_s, 1e-9)
        grown = _growth(begun.neighbours, ended.neighbours)
        neighbour_cpu_s = max(0.0, sum(grown.values()))
        steal_share = _steal_share(begun, ended)
        loud = sorted(grown.items(), key=lambda item: -item[1])
        return HostLoad(
            load_average_before=begun.load_average,
            load_average_after=ended.load_average,
            neighbour_cpu_s=neighbour_cpu_s,
            neighbours=tuple(
                name for name, cpu_s in loud[:_NAMED_MOST] if cpu_s / span_s >= _NAMED_CORES
            ),
            steal_share=steal_share,
            disturbed=disturbed(
                neighbour_cpu_s=neighbour_cpu_s, span_s=span_s, steal_share=steal_share
            ),
        )

    def _moment(self) -> _Moment:
        times = psutil.cpu_times()
        usages = {}
        parents = {}
        marked = set()
        for process in psutil.process_iter():
            try:
                with process.oneshot():
                    usage = _usage(process)
                    usages[process.pid, process.create_time()] = usage
                    parents[process.pid] = usage.parent
                    if self.tokens and process.environ().get(TOKEN_VARIABLE) in self.tokens:
                        marked.add(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                continue
        roots = {*(self.root_pids or (os.getpid(),)), *self.ours(), *marked}
        mine = _below(roots, parents)
        return _Moment(
            at_s=time.monotonic(),
            load_average=os.getloadavg()[0],
            total_s=float(sum(times)),
            steal_s=getattr(times, "steal", None),
            neighbours={key: usage for key, usage in usages.items() if key[0] not in mine},
        )


def _usage(process: psutil.Process) -> _Usage:
    times = process.cpu_times()
    # Ended children count with their parent, so one that came and went in between is not missed.
    own = times.user + times.system
    children = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return _Usage(name=process.name(), parent=process.ppid(), cpu_s=own + children)


def _below(roots: Collection[int], parents: Mapping[int, int]) -> set[int]:
    found = set(roots)
    fresh = set(roots)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


def _growth(
    before: Mapping[tuple[int, float], _Usage], after: Mapping[tuple[int, float], _Usage]
) -> dict[str, float]:
    """CPU seconds by process name.

    A process that ended handed all its time to its parent, also what it had used before: that part
    is taken off again, if the parent is one of those counted.
    """
    grown: dict[str, float] = {}
    alive = {pid for pid, _ in after}
    for key, usage in after.items():
        earlier = before[key].cpu_s if key in before else 0.0
        grown[usage.name] = grown.get(usage.name, 0.0) + usage.cpu_s - earlier
    for key, usage in before.items():
        if key not in after and usage.parent in alive:
            grown[usage.name] = grown.get(usage.name, 0.0) - usage.cpu_s
    return grown


def _steal_share(before: _Moment, after: _Moment) -> float | None:
    if before.steal_s is None or after.steal_s is None:
        return None
    total_s = after.total_s - before.total_s
    return (after.steal_s - before.steal_s) / total_s if total_s > 0 else 0.0
