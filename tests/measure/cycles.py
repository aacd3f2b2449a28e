"""Thirty starts that are killed: nothing of an engine may be left, and no record lost.

Most kill while the engine still starts, at different moments, some after it is ready: front end,
core, worker, guardian, with SIGKILL and SIGTERM. The last ones kill an agent in mid trial, with and
without all that is below it (`tests/measure/agent_cycles.py`).
"""

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from advisor.errors import EngineFailed
from probes.vllm.command import HOST
from probes.vllm.engine import RunningEngine
from probes.vllm.phases import LAUNCHING, SERVING
from probes.vllm.processes import find_engines, kill_engines, listens, memory_bytes
from probes.vllm.server import Spawned, StartPlan, StartProgress, start_engine
from tests.bench.figures import Figure
from tests.measure.agent_cycles import AGENT_KILLS, agent_cycles
from tests.measure.engine import Installed, engine_plan
from tests.measure.progress import Say

GUARDIAN, FRONT_END, CORE, WORKER = "guardian", "front end", "core", "worker"
# Process titles that vLLM gives its own processes, as far as the kernel keeps them.
_TITLES = {CORE: "VLLM::EngineCor", WORKER: "VLLM::Worker"}
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - looked at, nothing is written there
_LEAST_SHARED_BYTES = 1 << 20
NOTICED_WITHIN_S = 30.0
# A victim that another version does not have by its title is not waited for beyond this.
_VICTIM_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Which process gets which signal: so long after the start, in or after that phase."""

    victim: str
    number: signal.Signals
    phase: str = LAUNCHING
    after_s: float = 0.0

    @property
    def text(self) -> str:
        """As it stands in the result."""
        return f"{self.number.name} {self.victim} {self.phase} {self.after_s:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One cycle: what it left behind, each thing in words; `struck` whether the victim was hit."""

    kill: Kill
    struck: bool
    left: tuple[str, ...]
    took_s: float


def _kills() -> tuple[Kill, ...]:
    """Twenty-six kills of an engine; the agent's are apart."""
    hard, soft = signal.SIGKILL, signal.SIGTERM
    early = [
        Kill(victim=victim, number=number, after_s=after_s)
        for after_s in (0.3, 1.5, 4.0, 8.0)
        for victim, number in (
            (GUARDIAN, hard),
            (FRONT_END, hard),
            (FRONT_END, soft),
            (GUARDIAN, soft),
        )
    ]
    loading = [
        Kill(victim=victim, number=hard, phase="loading")
        for victim in (GUARDIAN, FRONT_END, CORE, WORKER)
    ]
    warming = [Kill(victim=victim, number=hard, phase="warming up") for victim in (CORE, GUARDIAN)]
    ready = [
        Kill(victim=victim, number=hard, phase=SERVING)
        for victim in (FRONT_END, CORE, WORKER, GUARDIAN)
    ]
    return (*early, *loading, *warming, *ready)


KILLS = _kills()
_ORDER = (LAUNCHING, "loading", "profiling", "warming up", "opening", SERVING)


@dataclass(kw_only=True)
class Executioner:
    """Sends one kill's signal when its moment has come; told of a start's progress."""

    kill: Kill
    token: str
    pids: list[int] = field(default_factory=list)
    port: int | None = None
    struck: bool = False
    due_since_s: float | None = None

    def spawned(self, spawned: Spawned) -> None:
        """The start has its guardian and its port."""
        self.pids.append(spawned.pid)
        self.port = spawned.port

    def progress(self, progress: StartProgress) -> None:
        """Strike, if it is time."""
        reached = _ORDER.index(progress.phase) >= _ORDER.index(self.kill.phase)
        if self.struck or not reached or progress.elapsed_s < self.kill.after_s:
            return
        self.strike()

    def strike(self) -> None:
        """Send the signal to the victim; to the front end when the victim does not come."""
        self.due_since_s = time.monotonic() if self.due_since_s is None else self.due_since_s
        late = time.monotonic() - self.due_since_s > _VICTIM_LIMIT_S
        pid = victim_pid(self.token, self.pids[-1], FRONT_END if late else self.kill.victim)
        if pid is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).send_signal(self.kill.number)
                self.struck = True


def victim_pid(token: str, guardian_pid: int, victim: str) -> int | None:
    """The process of that role in the engine of `token`; None while it is not there.

    An engine that gives its processes no title has its deepest one taken for core and worker.
    """
    if victim == GUARDIAN:
        return guardian_pid
    parents: dict[int, int] = {}
    titled: dict[str, int] = {}
    for found in find_engines({token}):
        with contextlib.suppress(psutil.NoSuchProcess):
            parents[found.pid] = psutil.Process(found.pid).ppid()
            titled |= {role: found.pid for role, title in _TITLES.items() if found.name == title}
    front_end = next((pid for pid, parent in parents.items() if parent == guardian_pid), None)
    if victim == FRONT_END:
        return front_end
    deepest = max((pid for pid in parents if pid not in {guardian_pid, front_end}), default=None)
    return titled.get(victim, None if titled else deepest)


def cycle(plan: StartPlan, kill: Kill) -> Outcome:
    """Start, kill at the moment, stop what is left as the product does, look what stayed."""
    began_s = time.monotonic()
    before = _shared_files()
    agent = Executioner(kill=kill, token=plan.token)
    noted: list[str] = []
    try:
        engine = start_engine(plan, on_progress=agent.progress, on_spawned=agent.spawned)
    except EngineFailed:
        pass  # as it should: the killed start says so, and has cleaned up
    else:
        noted += _killed_ready(engine, agent)
    left = [*noted, *_left_behind(plan.token, agent.port, before)]
    kill_engines({plan.token})
    return Outcome(
        kill=kill, struck=agent.struck, left=tuple(left), took_s=time.monotonic() - began_s
    )


def _killed_ready(engine: RunningEngine, agent: Executioner) -> Iterable[str]:
    """Kill a ready engine, wait until its end is noticed, stop it; what went wrong."""
    limit_s = time.monotonic() + NOTICED_WITHIN_S
    while not agent.struck and time.monotonic() < limit_s:
        agent.strike()
        time.sleep(0.1)
    while engine.alive and time.monotonic() < limit_s:
        time.sleep(0.1)
    noticed = not engine.alive
    engine.stop()
    if not noticed:
        yield f"the end of the {agent.kill.victim} was not noticed in {NOTICED_WITHIN_S:g} s"


def _left_behind(token: str, port: int | None, shared: frozenset[str]) -> Iterable[str]:
    for process in find_engines({token}):
        yield f"process {process.pid} ({process.name})"
    if memory_bytes({token}):
        yield f"{memory_bytes({token})} bytes of memory"
    if port is not None and listens(HOST, port):
        yield f"port {port}"
    for name in sorted(_shared_files() - shared):
        yield f"shared memory {name}"


def _shared_files() -> frozenset[str]:
    """Shared memory of some size that is not the database's."""
    found = set()
    for file in _SHARED_MEMORY.glob("*") if _SHARED_MEMORY.is_dir() else ():
        with contextlib.suppress(OSError):
            if file.stat().st_size >= _LEAST_SHARED_BYTES and "PostgreSQL" not in file.name:
                found.add(file.name)
    return frozenset(found)


def run_cycles(
    plan_of: Callable[[Path], StartPlan],
    folder: Path,
    kills: Sequence[Kill],
    say: Say = lambda _text: None,
) -> list[Outcome]:
    """One start for each kill, each with a log of its own in `folder`."""
    outcomes = []
    for number, kill in enumerate(kills):
        outcomes.append(cycle(plan_of(folder / f"cycle-{number}.log"), kill))
        took_s = outcomes[-1].took_s
        say(f"{number + 1} of {len(kills)}: {kill.text}, {took_s:.0f} s, left {outcomes[-1].left}")
    return outcomes


def cycle_figures(found: Installed, folder: Path, say: Say) -> list[Figure]:
    """Rows `kill_cycles` and `kill_cycles_left_behind` on the real engine."""
    began_s = time.monotonic()

    def plan_of(log: Path) -> StartPlan:
        return engine_plan(found, log, stop_grace_s=5.0)

    outcomes = run_cycles(plan_of, folder, KILLS, say)
    say("agents")
    agents = agent_cycles(found, folder)
    struck = [outcome for outcome in outcomes if outcome.struck]
    left = [f"{o.kill.text}: {thing}" for o in outcomes for thing in o.left]
    left += list(agents.left)
    victims = Counter(outcome.kill.victim for outcome in struck)
    said = ", ".join(f"{count} x {victim}" for victim, count in victims.items())
    return [
        Figure(
            name="kill_cycles",
            value=float(len(struck) + agents.kills),
            unit="cycles",
            better="higher",
            detail=f"{said}, {agents.kills} x agent of {len(KILLS) + AGENT_KILLS};"
            f" {time.monotonic() - began_s:.0f} s",
        ),
        Figure(
            name="kill_cycles_left_behind",
            value=float(len(left)),
            unit="things",
            better="lower",
            detail="; ".join(left) or "processes, ports, memory, shared memory, runs, logs, points",
        ),
    ]
