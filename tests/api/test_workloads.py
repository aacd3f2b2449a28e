"""Uploads: good files, bad files, repeated requests, token counts."""

from pathlib import Path

import pytest

from api.client import ApiProblem, every
from tests.api.world import TWO_REQUESTS, World

pytestmark = pytest.mark.postgres


def test_an_upload_is_read_and_reported(world: World) -> None:
    """What the route sends and the client reads is the stored value."""
    client = world.client()

    made = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")

    assert (made.requests, made.report.accepted, made.report.rejected) == (2, 2, 0)
    assert client.workload(made.id) == made
    assert client.workload_summary(made.id) == made.summary
    assert client.workloads().items == (made,)


def test_bad_lines_are_reported_by_number(world: World, shared: Path) -> None:
    """Case T-12: two rows are taken, five rejected with their line numbers."""
    made = world.client().upload_workload(shared / "cases" / "t12_bad_lines.jsonl", name="bad")

    assert [item.line for item in made.report.rejects] == [2, 3, 4, 5, 6]
    assert made.requests == 2


def test_a_file_without_usable_rows_leaves_nothing(world: World, shared: Path) -> None:
    """Case T-01 (b): 422 that names the columns found and accepted; nothing is stored."""
    client = world.client()

    with pytest.raises(ApiProblem) as caught:
        client.upload_workload(shared / "cases" / "t01b_unmappable.jsonl", name="none")

    assert caught.value.status == 422
    assert caught.value.problem.found == ("foo", "bar")
    assert "messages" in caught.value.problem.accepted
    assert client.workloads().items == ()


def test_prompt_text_is_in_no_refusal(world: World) -> None:
    """A broken line with text is refused without the text."""
    broken = b'{"messages": "SECRETWORD is not a list"}\n{"messages": ["SECRETWORD"]}\n'

    with pytest.raises(ApiProblem) as caught:
        world.client().upload_workload(broken, name="broken")

    assert "SECRETWORD" not in str(caught.value.problem)


def test_a_target_counts_the_tokens(world: World) -> None:
    """With a target the summary has lengths; the upload's own still has none."""
    client = world.client()
    target = world.ready_target(client)

    made = client.upload_workload(TWO_REQUESTS, name="two", target_id=target.id)

    assert made.summary.overall.prompt_tokens is None
    counted = client.workload_summary(made.id, target.id)
    assert counted.overall.prompt_tokens is not None
    assert counted.overall.prompt_tokens.count == 2


def test_the_summary_under_a_target_is_computed_when_first_asked(world: World) -> None:
    """A workload uploaded without a target can be counted later."""
    client = world.client()
    made = client.upload_workload(TWO_REQUESTS, name="two")
    target = world.ready_target(client)

    first = client.workload_summary(made.id, target.id)

    assert first.overall.prompt_tokens is not None
    assert client.workload_summary(made.id, target.id) == first


def test_the_same_upload_twice_is_one_workload(world: World) -> None:
    """The same key with the same request gets the first answer; with another one a conflict."""
    client = world.client()
    first = client.upload_workload(TWO_REQUESTS, name="two", idempotency_key="k")

    second = client.upload_workload(TWO_REQUESTS, name="two", idempotency_key="k")
    with pytest.raises(ApiProblem) as caught:
        client.upload_workload(TWO_REQUESTS, name="other", idempotency_key="k")

    assert second == first
    assert caught.value.status == 409
    assert len(client.workloads().items) == 1


def test_pages_hold_every_workload_once(world: World) -> None:
    """Cursors lead through the list without gaps or repeats."""
    client = world.client()
    names = {client.upload_workload(TWO_REQUESTS, name=f"w{n}").name for n in range(5)}

    page = client.workloads(limit=2)
    found = [item.name for item in every(client.workloads, limit=2)]

    assert len(page.items) == 2
    assert sorted(found) == sorted(names)


def test_a_deleted_workload_is_gone(world: World) -> None:
    """Deleting once works, asking again finds nothing."""
    client = world.client()
    made = client.upload_workload(TWO_REQUESTS, name="two")

    client.delete_workload(made.id)

    with pytest.raises(ApiProblem) as caught:
        client.workload(made.id)
    assert caught.value.status == 404


def test_limits_on_rows_and_bytes_refuse(world: World, tmp_path: Path) -> None:
    """More rows or bytes than allowed is 413; the one about rows says the limit."""
    small = world.rebuilt(tmp_path, upload_max_rows=1, upload_max_bytes=100_000)

    with pytest.raises(ApiProblem) as rows:
        small.client().upload_workload(TWO_REQUESTS, name="two")
    with pytest.raises(ApiProblem) as size:
        small.client().upload_workload(TWO_REQUESTS * 2000, name="many")

    assert (rows.value.status, size.value.status) == (413, 413)
    assert "1 rows" in rows.value.detail


def test_a_reader_without_memory_is_a_refusal(world: World, tmp_path: Path) -> None:
    """A file that does not fit into the child's memory is refused; the API lives on."""
    small = world.rebuilt(tmp_path, upload_memory_bytes=256 << 20)

    with pytest.raises(ApiProblem) as caught:
        small.client().upload_workload(TWO_REQUESTS * 200, name="two")

    assert caught.value.status == 413
    assert small.client().workloads().items == ()
