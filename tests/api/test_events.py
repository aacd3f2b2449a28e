"""Server-sent events of a study: order, resumption, end."""

import threading
import uuid

import pytest

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


def test_a_finished_study_streams_everything_and_ends(world: World) -> None:
    """All events in order, then the end."""
    client = world.client()
    _, study = world.study(client)
    append(world, study.id, "progress", share=0.5)
    client.cancel_study(study.id)

    found = list(client.study_events(study.id))

    assert [item.body.get("state") for item in found] == ["queued", None, "cancelled"]
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
    assert [item.body.get("state") for item in seen] == ["queued", None, "cancelled"]


def test_another_projects_study_has_no_stream(world: World) -> None:
    """404, as for the study itself."""
    answer = world.client()._wire.http.get(f"/v1/studies/{uuid.uuid4()}/events")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
