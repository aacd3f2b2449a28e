"""What a workload promises before a study, over REST."""

import uuid
from collections.abc import Callable

import pytest

from advisor.hardware import DATASHEETS
from advisor.recommender.screening import Worth
from advisor.techniques import TECHNIQUES
from api.client import ApiProblem
from tests.api.world import TWO_REQUESTS, World
from tests.fakes.values import DEVICE

pytestmark = pytest.mark.postgres
LENGTHS = b"prompt_tokens,output_tokens\n100,10\n200,40\n50,5\n"


def test_a_target_gives_a_forecast_for_every_technique(world: World) -> None:
    """On its own device, counted by its tokenizer; the text is replayed for every draft length."""
    client = world.client()
    workload = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
    target = world.ready_target(client)

    found = client.forecast(workload.id, target.id, concurrency=8)

    assert (found.concurrency, found.hardware) == (8, DEVICE.name)
    assert [item.technique for item in found.techniques] == [item.key for item in TECHNIQUES]
    assert {said.concurrency for item in found.techniques for said in item.forecasts} >= {1, 8}
    assert found.regime is not None
    assert found.paging is not None


def test_a_card_of_the_table_stands_in_for_the_device(world: World) -> None:
    """The target's model and tokenizer, on a GPU that nobody has rented yet."""
    client = world.client()
    workload = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
    target = world.ready_target(client)

    found = client.forecast(workload.id, target.id, hardware="l40s")

    assert found.hardware == DATASHEETS["l40s"].name


def test_without_a_target_what_is_unknown_is_null(world: World) -> None:
    """Never zero; the reasons are sent along."""
    client = world.client()
    workload = client.upload_workload(LENGTHS, name="lengths", filename="lengths.csv")

    found = client.forecast(workload.id)
    said = [item for technique in found.techniques for item in technique.forecasts]

    assert all(item.predicted is None and item.reason for item in said if item.worth != Worth.TEST)
    assert (found.paging, found.regime, found.model) == (None, None, None)
    assert set(found.unmeasurable) == {"paging", "regime"}
    assert found.static_speedup is not None


def test_wrong_names_are_refused(world: World) -> None:
    """An unknown card lists the known ones; what is not there is not found."""
    client = world.client()
    workload = client.upload_workload(LENGTHS, name="lengths", filename="lengths.csv")
    pending = client.create_target(name="pending", model="demo")
    asks: tuple[Callable[[], object], ...] = (
        lambda: client.forecast(workload.id, hardware="h100"),
        lambda: client.forecast(workload.id, pending.id),
        lambda: client.forecast(workload.id, workload.id),
        lambda: client.forecast(workload.id, concurrency=0),
        lambda: client.forecast(pending.id),
    )
    refused = []
    for ask in asks:
        with pytest.raises(ApiProblem) as caught:
            ask()
        refused.append(caught.value)

    assert [problem.status for problem in refused] == [422, 503, 404, 422, 404]
    assert "h100-sxm" in refused[0].problem.accepted


def test_another_project_sees_no_forecast(world: World) -> None:
    """The workload is not there for a stranger."""
    client = world.client()
    workload = client.upload_workload(LENGTHS, name="lengths", filename="lengths.csv")
    other = client.create_project("other")
    stranger = world.client(world.key_of("viewer", project=uuid.UUID(other.id)))

    with pytest.raises(ApiProblem) as caught:
        stranger.forecast(workload.id)

    assert caught.value.status == 404
