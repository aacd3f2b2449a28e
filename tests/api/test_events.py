"""Server-sent events of a study: order, resumption, end."""

import threading
import uuid

import pytest

from api.client import Client, EventView
from db import events, identity
from db.session import transaction
from tests.api.world import World
from tests.fakes.cut_wire import cut_wire

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


def test_a_dropped_stream_is_resumed_after_the_last_event(world: World, address: str) -> None:
    """The connection is cut in the middle of the third event: nothing is lost, nothing twice."""
    client = world.client()
    _, study = world.study(client)
    for share in (0.25, 0.5, 0.75):
        append(world, study.id, "progress", share=share)
    client.cancel_study(study.id)
    everything = list(client.study_events(study.id))
    with (
        cut_wire(address, after=b"event: ", times=3, cuts=2) as wire,
        Client(wire.url, world.admin_key) as reader,
    ):
        seen = list(reader.study_events(study.id))
    asked = [request.lower().partition(b"last-event-id: ")[2] for request in wire.requests]
    resumed = [int(rest.partition(b"\r")[0]) for rest in asked]

    assert seen == everything
    assert len(everything) == 5
    assert resumed == [0, everything[1].id, everything[3].id]


def test_another_projects_study_has_no_stream(world: World) -> None:
    """404, as for the study itself."""
    answer = world.client()._wire.http.get(f"/v1/studies/{uuid.uuid4()}/events")

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
