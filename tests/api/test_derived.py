"""Workloads that are made of others, over a real database and in a real child process."""

import json
import uuid
from datetime import timedelta

import pytest

from advisor.traffic.columns import requests_from_parquet
from advisor.traffic.trace import Privacy, Request
from api.client import ApiProblem, WorkloadView
from db import workloads
from db.session import transaction
from tests.api.world import World

pytestmark = pytest.mark.postgres


def chats(name: str, count: int = 6, **more: object) -> bytes:
    """Sessions of two turns, two seconds apart."""
    return b"".join(
        json.dumps(
            {
                "timestamp": 1_700_000_000 + 2 * at,
                "messages": [{"role": "user", "content": f"{name} asks {at // 2}: mail a@b.org"}],
                "response": "The Elbe flows north.",
                "session_id": f"s{at // 2}",
                "class": "geo",
                **more,
            }
        ).encode()
        + b"\n"
        for at in range(count)
    )


def stored(world: World, workload: WorkloadView) -> list[Request]:
    with transaction(world.sessions) as session:
        bodies = workloads.chunks(session, uuid.UUID(workload.id))
        return [request for body in bodies for request in requests_from_parquet(body)]


def test_twice_the_rate_is_a_workload_of_its_own(world: World) -> None:
    """Half the gaps; the report says what it was made of, the summary is its own."""
    client = world.client()
    source = client.upload_workload(chats("ann"), name="monday")
    made = client.derive_workload([source.id], name="monday twice", rate=2)

    assert made.requests == source.requests == 6
    assert [request.arrival_s for request in stored(world, made)] == [0, 1, 2, 3, 4, 5]
    assert [request.messages for request in stored(world, made)] == [
        request.messages for request in stored(world, source)
    ]
    assert made.report.format == "derived"
    assert made.report.title == "derived from monday, at 2 times the rate"
    assert made.summary.arrivals is not None
    assert source.summary.arrivals is not None
    assert made.summary.arrivals.rate_per_s == 2 * source.summary.arrivals.rate_per_s
    assert made.bytes > 0
    assert made.digest != source.digest
    assert client.workload(made.id) == made


def test_workloads_are_merged_under_their_names(world: World) -> None:
    """Sessions and classes are kept apart."""
    client = world.client()
    ids = [client.upload_workload(chats(name), name=name).id for name in ("one", "two")]
    made = client.derive_workload(ids, name="both", label_by_workload=True)
    held = stored(world, made)

    assert made.requests == 12
    assert made.summary.sessions == 6
    assert {request.label for request in held} == {"one: geo", "two: geo"}
    assert len({request.id for request in held}) == 12


def test_requests_are_drawn_anew_and_copies_are_said(world: World) -> None:
    """Twenty of six, equal for equal seeds."""
    client = world.client()
    source = client.upload_workload(chats("ann"), name="monday")
    made = client.derive_workload([source.id], name="long", requests=20, seed=5)
    again = client.derive_workload([source.id], name="again", requests=20, seed=5)

    assert made.requests == 20
    assert made.digest == again.digest
    assert any("repeat a session" in warning for warning in made.report.warnings)


def test_the_same_ask_twice_is_one_workload(world: World) -> None:
    """The first answer under one key; another ask under it is a conflict."""
    client = world.client()
    source = client.upload_workload(chats("ann"), name="monday")
    first = client.derive_workload([source.id], name="fast", rate=2, idempotency_key="k")

    assert client.derive_workload([source.id], name="fast", rate=2, idempotency_key="k") == first
    with pytest.raises(ApiProblem) as caught:
        client.derive_workload([source.id], name="fast", rate=3, idempotency_key="k")
    assert caught.value.status == 409
    assert len(client.workloads().items) == 2


def test_privacy_and_retention_are_the_strictest_of_the_sources(world: World) -> None:
    """Nothing of the text is left where one of them keeps none, and it ends with the first."""
    client = world.client()
    raw = client.upload_workload(chats("ann"), name="raw", retention_days=30)
    few = client.upload_workload(
        chats("bob"), name="few", privacy=Privacy.LENGTHS, retention_days=3
    )
    made = client.derive_workload([raw.id, few.id], name="both")

    assert made.privacy is Privacy.LENGTHS
    assert made.expires_at == few.expires_at
    assert made.limits == few.limits
    assert all(request.messages is None for request in stored(world, made))
    assert all(request.response is None for request in stored(world, made))
    assert made.created_at + timedelta(days=4) > (made.expires_at or made.created_at)


def test_redacted_and_hashed_sources_stay_what_they_are(world: World) -> None:
    """Redacted text beside raw text is redacted; hashed blocks stay and keep their reuse."""
    client = world.client()
    target = world.ready_target(client)
    raw = client.upload_workload(chats("ann"), name="raw")
    red = client.upload_workload(chats("bob"), name="red", privacy=Privacy.REDACTED)
    hashed = client.upload_workload(
        chats("cy"), name="hashed", privacy=Privacy.HASHED, target_id=target.id
    )
    both = client.derive_workload([raw.id, red.id], name="both")
    fast = client.derive_workload([hashed.id], name="fast", rate=3)

    assert both.privacy is Privacy.REDACTED
    assert all("a@b.org" not in (request.messages or "") for request in stored(world, both))
    assert fast.privacy is Privacy.HASHED
    assert fast.limits == hashed.limits
    assert [request.block_ids for request in stored(world, fast)] == [
        request.block_ids for request in stored(world, hashed)
    ]
    assert fast.report.block_tokens == hashed.report.block_tokens
    assert fast.summary.privacy is Privacy.HASHED
    with pytest.raises(ApiProblem) as caught:
        client.derive_workload([hashed.id, raw.id], name="mixed")
    assert caught.value.status == 422


def test_a_purge_of_a_source_reaches_what_was_made_of_it(world: World) -> None:
    """And a purged one is no source any more."""
    client = world.client()
    source = client.upload_workload(chats("ann"), name="monday")
    made = client.derive_workload([source.id], name="fast", rate=2)
    client.delete_workload(source.id, purge=True)

    assert stored(world, made) == []
    with pytest.raises(ApiProblem) as caught:
        client.derive_workload([source.id], name="again")
    assert caught.value.status == 409


def test_what_cannot_be_derived_is_refused(world: World) -> None:
    """Longer answers of text, somebody else's workload, too many rows, no name."""
    client = world.client()
    source = client.upload_workload(chats("ann"), name="monday")
    stranger = world.client(world.key_of("viewer"))
    for status, ask in (
        (422, {"workload_ids": [source.id], "name": "x", "outputs": 2.0}),
        (404, {"workload_ids": [str(uuid.uuid4())], "name": "x"}),
        (422, {"workload_ids": [], "name": "x"}),
        (422, {"workload_ids": [source.id], "name": "x", "rate": 0.0}),
        (413, {"workload_ids": [source.id], "name": "x", "requests": 90_000_000}),
    ):
        with pytest.raises(ApiProblem) as caught:
            client.derive_workload(**ask)
        assert caught.value.status == status
    with pytest.raises(ApiProblem) as caught:
        stranger.derive_workload([source.id], name="x")
    assert caught.value.status == 403
