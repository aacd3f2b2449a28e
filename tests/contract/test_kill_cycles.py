"""The kill cycles of `make measure-checks`, on the planted engine: the small part of it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.serving import ServingConfig
from db.session import Sessions
from probes.vllm.phases import SERVING
from probes.vllm.server import StartPlan
from tests.fakes.agent_site import AgentSite
from tests.fakes.engines import planted_plan
from tests.measure.agent_cycles import AGENT_KILLS, killed_agents
from tests.measure.agent_cycles import KILLS as AGENTS
from tests.measure.cycles import CORE, FRONT_END, GUARDIAN, KILLS, Kill, run_cycles

pytestmark = pytest.mark.processes
# As vLLM's: a core that is a process of its own, and a start that takes a moment.
TRUTH = {"core_process": True, "start_s": 1.0}
SMALL = (
    Kill(victim=GUARDIAN, number=signal.SIGKILL, after_s=0.3),
    Kill(victim=FRONT_END, number=signal.SIGTERM, after_s=0.6),
    Kill(victim=FRONT_END, number=signal.SIGKILL, phase=SERVING),
    Kill(victim=GUARDIAN, number=signal.SIGKILL, phase=SERVING),
)


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """A host with a planted engine; its agents are ended afterwards."""
    found = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield found
    found.close()


def test_the_kills_of_the_real_engine_are_thirty_with_every_victim() -> None:
    """Most while it starts; SIGKILL of front end, core, worker, guardian and agent among them."""
    hard = {kill.victim for kill in KILLS if kill.number == signal.SIGKILL}
    starting = [kill for kill in KILLS if kill.phase != SERVING]

    assert len(KILLS) + AGENT_KILLS >= 30
    assert hard == {GUARDIAN, FRONT_END, CORE, "worker"}
    assert len(starting) > len(KILLS) / 2


def test_a_killed_start_leaves_nothing(tmp_path: Path) -> None:
    """No process, no port, no memory, whoever was killed and when."""

    def plan(log: Path) -> StartPlan:
        return planted_plan(tmp_path, TRUTH, ServingConfig(), log_path=log, stop_grace_s=1.0)

    outcomes = run_cycles(plan, tmp_path, SMALL)

    assert [outcome.struck for outcome in outcomes] == [True] * len(SMALL)
    assert [outcome.left for outcome in outcomes] == [()] * len(SMALL)


@pytest.mark.postgres
def test_killed_agents_lose_no_record(site: AgentSite) -> None:
    """One agent killed after a point, one with all below it: runs end, logs and points stay."""
    site.truth |= {**TRUTH, "base_step_s": 0.02}

    outcome = killed_agents(site, None, {}, AGENTS[2:4])

    assert outcome.left == ()
    assert outcome.kills == 2
