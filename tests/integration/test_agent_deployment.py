"""A whole agent process on the planted engine: deployments started, watched, replaced, stopped."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from advisor.serving import FunctionalSettings, Levers, ServingConfig, WeightQuantization
from advisor.states import DeploymentState, RunState, StudyState
from db import deployments, events
from db.identity import utc_now
from db.session import Sessions, transaction
from db.tables import DeploymentRow
from probes.targets import model_digest
from probes.vllm.processes import find_engines
from tests.fakes import stub_quantizer
from tests.fakes.agent_site import AgentSite

pytestmark = [pytest.mark.postgres, pytest.mark.processes]


@pytest.fixture
def site(tmp_path: Path, database_url: str, sessions: Sessions) -> Iterator[AgentSite]:
    """A host with a planted engine; its agents are ended afterwards."""
    place = AgentSite(folder=tmp_path, database_url=database_url, sessions=sessions)
    yield place
    place.close()


def ready_target(site: AgentSite) -> uuid.UUID:
    target_id = site.target()
    site.wait("the target is ready", lambda: site.target_row(target_id).state == "ready")
    return target_id


def stop(site: AgentSite, deployment_id: uuid.UUID) -> None:
    with transaction(site.sessions) as session:
        deployments.request_stop(session, deployment_id, None, actor=site.who.actor, now=utc_now())


def ask(row: DeploymentRow, max_tokens: int = 4) -> int:
    """Status of one chat request to the deployment's engine."""
    connection = HTTPConnection(str(row.host), int(row.port or 0), timeout=30)
    body = {
        "model": row.served_model_name,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": max_tokens,
    }
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        return connection.getresponse().status
    finally:
        connection.close()


def test_an_approved_configuration_serves_until_it_is_stopped(site: AgentSite) -> None:
    """Pending, starting, serving under its name with its levers, no development routes, stopped."""
    site.start()
    approved = site.approved(ready_target(site), site.workload())
    deployment_id = site.deploy("chat", approved)
    serving = site.wait_deployment(deployment_id, DeploymentState.SERVING)

    answered = ask(serving)
    connection = HTTPConnection(str(serving.host), int(serving.port or 0), timeout=10)
    connection.request("POST", "/reset_prefix_cache")
    development = connection.getresponse().status
    connection.close()
    stop(site, deployment_id)
    stopped = site.wait_deployment(deployment_id, DeploymentState.STOPPED)

    assert answered == 200
    assert development == 404
    assert serving.served_model_name == "chat"
    assert serving.device_id == site.device().id
    assert stopped.port is None
    assert [run.state for run in site.runs()] == [RunState.STOPPED]
    assert site.engines_left() == 0


def test_a_new_generation_replaces_the_old_one_after_a_drain(site: AgentSite) -> None:
    """The old one is stopped before the new one starts, since one device holds one engine."""
    site.start()
    approved = site.approved(ready_target(site), site.workload())
    first = site.deploy("chat", approved)
    site.wait_deployment(first, DeploymentState.SERVING)
    second = site.deploy("chat", approved)

    serving = site.wait_deployment(second, DeploymentState.SERVING)
    old = site.deployment(first)
    with transaction(site.sessions) as session:
        drains = [
            event.body
            for event in events.after(session, "deployment", str(first), 0)
            if event.kind == "drain"
        ]
    runs = site.runs()

    assert serving.generation == 2
    assert old.state == DeploymentState.STOPPED
    assert drains == [{"cut_requests": 0}]
    assert runs[0].ended_at is not None
    assert runs[0].ended_at <= runs[1].created_at


def test_a_dead_engine_is_restarted_and_counted(site: AgentSite) -> None:
    """Serving, unhealthy, starting, serving again on a fresh run."""
    site.start()
    approved = site.approved(ready_target(site), site.workload())
    deployment_id = site.deploy("chat", approved)
    site.wait_deployment(deployment_id, DeploymentState.SERVING)
    for process in find_engines({site.runs()[0].token}):
        os.kill(process.pid, signal.SIGKILL)
    site.wait("a second run is ready", lambda: [r.state for r in site.runs()][1:] == ["ready"])

    again = site.wait_deployment(deployment_id, DeploymentState.SERVING)

    assert again.restarts == 1
    assert site.runs()[0].state == RunState.FAILED
    assert ask(again) == 200


def test_an_engine_that_never_starts_gives_up_after_its_restarts(site: AgentSite) -> None:
    """The reason names the limit and the failure; the device is free again."""
    site.truth["failures"] = [{"when": {"dtype": "float32"}, "log": ["something odd"]}]
    site.start(max_restarts="1")
    approved = site.approved(ready_target(site), site.workload())
    deployment_id = site.deploy("chat", approved)

    failed = site.wait_deployment(deployment_id, DeploymentState.FAILED)

    assert failed.reason is not None
    assert "given up after 1 restarts" in failed.reason
    assert len(site.runs()) == 2
    assert site.engines_left() == 0


def test_a_deployment_survives_its_agent(site: AgentSite) -> None:
    """kill -9 of the agent takes the engine along; the next agent serves again."""
    first = site.start()
    approved = site.approved(ready_target(site), site.workload())
    deployment_id = site.deploy("chat", approved)
    site.wait_deployment(deployment_id, DeploymentState.SERVING)
    first.kill()
    site.start()
    site.wait("a second run is ready", lambda: [r.state for r in site.runs()][1:] == ["ready"])

    serving = site.wait_deployment(deployment_id, DeploymentState.SERVING)

    assert ask(serving) == 200
    assert site.runs()[0].failure_kind == "agent_lost"
    assert site.engines_left() >= 1


def test_a_study_waits_while_the_only_device_serves(site: AgentSite) -> None:
    """It is told why, stays queued, and runs once the deployment is stopped."""
    site.start()
    target_id, workload_id = ready_target(site), site.workload()
    deployment_id = site.deploy("chat", site.approved(target_id, workload_id))
    site.wait_deployment(deployment_id, DeploymentState.SERVING)
    study_id = site.study(target_id, workload_id, ["continuous_batching"])

    def told() -> list[str]:
        with transaction(site.sessions) as session:
            found = events.after(session, "study", str(study_id), 0)
        return [event.kind for event in found if event.kind == "waiting"]

    site.wait("the study is told", lambda: told() != [])
    waiting = site.study_state(study_id)
    stop(site, deployment_id)
    site.wait("the study begins", lambda: site.study_state(study_id) == StudyState.PROBING)

    assert waiting == StudyState.QUEUED
    assert told() == ["waiting"]


QUANTIZED = ServingConfig(
    functional=FunctionalSettings(max_model_len=2048),
    levers=Levers(quantization=WeightQuantization()),
)


def test_a_quantized_configuration_is_served_from_a_checkpoint_of_its_own(
    site: AgentSite, tmp_path: Path
) -> None:
    """Made at the first deployment, found at the second, and named by the engine's facts."""
    python = stub_quantizer.install(tmp_path / "quantizer")
    site.start(quantizer_python=str(python))
    approved = site.approved(ready_target(site), site.workload(), QUANTIZED)
    for _ in range(2):
        deployment_id = site.deploy("chat", approved)
        site.wait_deployment(deployment_id, DeploymentState.SERVING)
        stop(site, deployment_id)
        site.wait_deployment(deployment_id, DeploymentState.STOPPED)
    (checkpoint,) = (tmp_path / "data" / "checkpoints").glob("*/model")
    facts = [run.facts for run in site.runs() if run.facts is not None]

    assert [held.checkpoint_digest for held in facts] == [model_digest(checkpoint)] * 2
    assert len(stub_quantizer.calls(python)) == 1


def test_without_a_quantizer_the_deployment_says_what_to_install(
    site: AgentSite, tmp_path: Path
) -> None:
    """No engine is started, and the target's own weights are not served in their place."""
    site.start(quantizer_python=str(tmp_path / "absent" / "bin" / "python"))
    approved = site.approved(ready_target(site), site.workload(), QUANTIZED)
    failed = site.wait_deployment(site.deploy("chat", approved), DeploymentState.FAILED)

    assert "quantizer_missing" in str(failed.reason)
    assert "make quantizer" in str(failed.reason)
    assert site.runs() == []
