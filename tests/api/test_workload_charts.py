"""Pictures of an upload over HTTP, and the command line on an uploaded sample."""

import pytest

from api.charts.traffic import traffic_charts
from api.client import ApiProblem
from tests.api.world import TWO_REQUESTS, World

pytestmark = pytest.mark.postgres


def test_pictures_are_those_of_the_stored_summary(world: World) -> None:
    """Without a target from the file's own counts, with one as its tokenizer counts."""
    client = world.client()
    target = world.ready_target(client)
    made = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
    counted = client.workload_charts(made.id, target.id)
    reuse = next(chart for chart in counted if chart.key == "reuse")

    assert client.workload_charts(made.id) == traffic_charts(made.summary)
    assert [chart.key for chart in counted] == [
        chart.key for chart in client.workload_charts(made.id)
    ]
    assert reuse.figure is None or "KV cache" in reuse.caption


def test_pictures_of_what_is_not_there_are_refused(world: World) -> None:
    """Nobody learns of a sample that is not theirs or gone."""
    client = world.client()
    made = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
    client.delete_workload(made.id)

    with pytest.raises(ApiProblem) as caught:
        client.workload_charts(made.id)

    assert caught.value.status == 404


def test_progress_hears_of_every_byte_of_a_file(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A bar on the command line ends full, and the file arrives whole."""
    path = tmp_path_factory.mktemp("upload") / "two.jsonl"
    path.write_bytes(TWO_REQUESTS)
    heard: list[int] = []
    made = world.client().upload_workload(path, name="two", progress=heard.append)

    assert made.bytes == len(TWO_REQUESTS)
    assert heard
    assert max(heard) == len(TWO_REQUESTS)
