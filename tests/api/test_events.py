"""Server-sent events of a study: order, resumption, end."""

import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import uvicorn

from api.client import Client, EventView
from db import events, identity
from db.session import transaction
from tests.api.world import World

pytestmark = pytest.mark.postgres


def append(world: World, study_id: str, kind: str, **body: object) -> None:
    """What an agent does after each step."""
    with transaction(world.sessions) as session:
        events.append(
            session, noun="study", noun_id=study_id, kind=kind, body=body, now=identity.utc_now()
        )


@pytest.fixture
def address(world: World) -> Iterator[str]:
    """The application behind a real server on a loopback port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    config = uvicorn.Config(world.app, host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def test_a_finished_study_streams_everything_and_ends(world: World) -> None:
    """All events in order, then the end."""
    client = world.client()
    _, study = world.study(client)
    append(world, study.id, "progress", share=0.5)
    client.cancel_study(study.id)

    found = list(client.study_events(study.id))

    assert [item.kind for item in found] == ["state", "progress", "state"]
    assert [item.id for item in found] == sorted(item.id for item in found)


def test_a_stream_resumes_after_the_last_event_seen(world: World) -> None:
    """Nothing twice, nothing missing."""
    client = world.client()
    _, study = world.study(client)
    append(world, study.id, "progress", share=0.5)
    client.cancel_study(study.id)
    everything = list(client.study_events(study.id))

    rest = list(client.study_events(study.id, everything[0].id))

    assert rest == everything[1:]


def test_events_arrive_while_the_study_runs(world: World, address: str) -> None:
    """A reader sees an event soon after it is committed, and the end by itself."""
    client = world.client()
    _, study = world.study(client)
    seen: list[EventView] = []

    def read() -> None:
        with Client(address, world.admin_key) as reader:
            seen.extend(reader.study_events(study.id))

    thread = threading.Thread(target=read)
    thread.start()
    append(world, study.id, "progress", share=0.25)
    client.cancel_study(study.id)
    thread.join(20)

    assert not thread.is_alive()
    assert [item.kind for item in seen] == ["state", "progress", "state"]


def test_another_projects_study_has_no_stream(world: World) -> None:
    """404, as for the study itself."""
    answer = world.client()._wire.http.get(f"/v1/studies/{uuid.uuid4()}/events")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
