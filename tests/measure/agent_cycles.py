"""An agent that is killed in mid trial, again and again, on one study of a real engine."""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import select

from advisor.states import RunState
from db import runs
from db.embedded import EmbeddedPostgres
from db.migrate import upgrade
from db.session import close_sessions, open_sessions, transaction
from db.tables import LoadPointRow
from tests.fakes.agent_site import Agent, AgentSite
from tests.fakes.process_trees import kill_host
from tests.measure.engine import CONFIG, Installed

LIVE = {RunState.STARTING, RunState.READY}
WAIT_S = 300.0
GONE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutcome:
    """How many agents were killed, and what was left or lost, each thing in words."""

    kills: int
    left: tuple[str, ...]


def _killed(agent: Agent) -> None:
    agent.kill()


def _killed_with_all_below(agent: Agent) -> None:
    kill_host(agent.process.pid)
    agent.process.wait(30)


# What is waited for, and how the agent is then ended. The study's next agent goes on with it.
AgentKill: TypeAlias = tuple[str, Callable[[Agent], None]]
KILLS: tuple[AgentKill, ...] = (
    ("starting", _killed),
    ("ready", _killed),
    ("point", _killed),
    ("starting", _killed_with_all_below),
    ("point", _killed_with_all_below),
)
AGENT_KILLS = len(KILLS)


def agent_cycles(found: Installed, folder: Path) -> AgentOutcome:
    """The kills on the real engine, with a database of their own."""
    # The database's server may run as another user, which must be able to pass through.
    home = Path(tempfile.mkdtemp(prefix="rooftune-cycles-"))
    home.chmod(0o711)
    try:
        with EmbeddedPostgres(home / "service") as server:
            upgrade(server.url)
            sessions = open_sessions(server.url)
            try:
                site = AgentSite(
                    folder=folder / "agents",
                    database_url=server.url,
                    sessions=sessions,
                    baseline=CONFIG,
                )
                settings = {
                    "engine_launcher": "",
                    "engine_python": found.spec.interpreter,
                    "model_roots": str(found.model.parent),
                }
                return killed_agents(site, str(found.model), settings)
            finally:
                close_sessions(sessions)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def killed_agents(
    site: AgentSite,
    model: str | None,
    settings: Mapping[str, str],
    kills: Sequence[AgentKill] = KILLS,
) -> AgentOutcome:
    """Kill one agent after the other in mid trial; the last one sweeps and is stopped."""
    left: list[str] = []
    began = 0
    try:
        agent = site.start(**settings)
        target_id = site.target(model)
        study_id = site.study(target_id, site.workload(), ["continuous_batching"])
        points = _points(site)
        for number, (moment, end) in enumerate(kills):
            earlier, measured = len(site.runs()), len(points)
            come = partial(_come, site, moment, earlier=earlier, measured=measured)
            site.wait(f"kill {number}: {moment}", come, WAIT_S)
            end(agent)
            began = len(site.runs())
            left += _engine_left(site, moment)
            points = _points(site)
            agent = site.start(**settings)
        site.wait("the last agent begins a run", lambda: len(site.runs()) > began, WAIT_S)
        code = agent.stop()
        left += [f"the stopped agent's exit code {code}"] if code else []
        left += _lost(site, points)
        left += [f"study {site.study_state(study_id)}"] if not _points(site) else []
    finally:
        site.close()
    return AgentOutcome(kills=len(kills), left=tuple(left))


def _come(site: AgentSite, moment: str, *, earlier: int, measured: int) -> bool:
    """Whether a new run, or a run of this agent, is where it is to be killed."""
    found = site.runs()
    if len(found) <= earlier and earlier:
        return False
    newest = found[-1] if found else None
    if newest is None or newest.pid is None:
        return False
    if moment == "starting":
        return newest.state == RunState.STARTING
    if moment == "ready":
        return newest.state == RunState.READY
    return len(_points(site)) > measured


def _points(site: AgentSite) -> Counter[tuple[object, ...]]:
    with transaction(site.sessions) as session:
        rows = session.scalars(select(LoadPointRow)).all()
    return Counter((row.trial_id, row.role, row.concurrency, row.repeat) for row in rows)


def _open_runs(site: AgentSite) -> int:
    return sum(run.state in LIVE for run in site.runs())


def _engine_left(site: AgentSite, moment: str) -> list[str]:
    """Processes of the engine that outlive the killed agent by more than the guardian's grace."""
    limit_s = time.monotonic() + GONE_S
    while (left := site.engines_left()) and time.monotonic() < limit_s:
        time.sleep(0.2)
    return [f"{left} processes after the kill at {moment}"] if left else []


def _lost(site: AgentSite, points: Counter[tuple[object, ...]]) -> list[str]:
    """Records that are not as they should be after all of it."""
    after = _points(site)
    found = [f"{_open_runs(site)} open runs"] if _open_runs(site) else []
    found += [f"point {key} lost" for key in points if key not in after]
    found += [f"point {key} twice" for key, count in after.items() if count > 1]
    with transaction(site.sessions) as session:
        for run in site.runs():
            if run.pid is not None and runs.log(session, run.id) is None:
                found.append(f"the log of run {run.attempt} ({run.failure_kind})")
    processes = site.engines_left()
    return [*found, f"{processes} processes"] if processes else found
