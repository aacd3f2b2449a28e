"""The proxy over the real table of deployments, beside the management API (case D-10)."""

import uuid
from collections.abc import Iterator

import httpx
import pytest

from advisor.states import DeploymentState
from api.client import DeploymentView
from api.proxy.endpoints import Directory
from db import deployments, identity
from db.session import transaction
from tests.api.front import serving, until
from tests.api.world import AGENT, World
from tests.fakes.small_engine import SmallEngine

pytestmark = pytest.mark.postgres


@pytest.fixture
def engine() -> Iterator[SmallEngine]:
    """An engine that is about to die."""
    with SmallEngine() as made:
        yield made


@pytest.fixture
def deployed(world: World, engine: SmallEngine) -> DeploymentView:
    """A deployment that an agent has brought to serve."""
    submitter, operator = (world.client(world.key_of(role)) for role in ("submitter", "operator"))
    _, study = world.study(submitter)
    found = submitter.recommendation(str(world.recommended(study.id).id))
    best = found.body.best.config_hash
    reviewer = world.client(world.key_of("reviewer"))
    reviewer.review(found.id, decision="approve", config_hash=best, recommendation_hash=found.hash)
    made = operator.deploy(name="prod", recommendation_id=found.id, config_hash=best)
    move(world, made, DeploymentState.STARTING)
    with transaction(world.sessions) as session:
        row = deployments.one(session, uuid.UUID(made.id), None)
        deployments.set_endpoint(
            session, row, host="127.0.0.1", port=engine.port, served_model_name="internal-x"
        )
    move(world, made, DeploymentState.SERVING)
    return operator.deployment(made.id)


def move(
    world: World, made: DeploymentView, state: DeploymentState, why: str | None = None
) -> None:
    """What the agent writes."""
    with transaction(world.sessions) as session:
        row = deployments.one(session, uuid.UUID(made.id), None)
        now = identity.utc_now()
        deployments.transition(session, row, state, actor=AGENT, now=now, reason=why)


def test_a_dead_engine_is_seen_by_the_proxy_before_the_agent_says_so(
    world: World, engine: SmallEngine, deployed: DeploymentView
) -> None:
    """503 from the proxy's own look; then the agent's word, its reason and its restarts, in the
    proxy and in the management API, which stays up."""
    directory = Directory(sessions=world.sessions, key_cache_s=60)
    headers = {"Authorization": f"Bearer {world.admin_key}"}
    asked = {"messages": [{"role": "user", "content": "hi"}]}
    client = world.client()
    with serving(directory) as url, httpx.Client(base_url=url, headers=headers) as proxied:
        until(lambda: directory.loaded)
        served = proxied.post("/serve/prod/v1/chat/completions", json=asked)
        engine.stop()
        down = until(lambda: proxied.get("/serve/prod/readyz").status_code == 503)
        seen = proxied.get("/serve/prod/readyz").json()
        refused = proxied.post("/serve/prod/v1/chat/completions", json=asked)
        move(world, deployed, DeploymentState.UNHEALTHY, "the engine died")
        with transaction(world.sessions) as session:
            deployments.count_restart(
                session, deployments.one(session, uuid.UUID(deployed.id), None)
            )
        told = until(lambda: proxied.get("/serve/prod/readyz").json()["restarts"] == 1)
        after = proxied.get("/serve/prod/readyz").json()
        view = client.deployment(deployed.id)

    assert served.json()["model"] == "prod"
    assert (down, seen["reason"]) == (True, "the engine does not listen")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert (told, after["state"], after["reason"]) == (True, "unhealthy", "the engine died")
    assert (view.state, view.restarts) == (DeploymentState.UNHEALTHY, 1)
    assert view.reason == "the engine died"
