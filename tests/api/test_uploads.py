"""What can be said about an upload: how it is read, how much of it is kept, and for how long."""

import gzip
import json
from datetime import timedelta
from pathlib import Path

import pytest

from advisor.traffic.trace import Privacy
from api.retention import Retention
from api.wire import ApiProblem
from tests.api.world import TWO_REQUESTS, World

pytestmark = pytest.mark.postgres
TABLE = b"asked,said,when\n100,20,1000\n200,30,2000\n100,25,3500\n"
COLUMNS = {"prompt_tokens": "asked", "output_tokens": "said", "timestamp": "when"}


def test_a_compressed_table_is_read_as_it_is_said_and_kept_as_long(
    world: World, tmp_path: Path
) -> None:
    """Columns, unit of time and retention are the caller's; the default is the service's."""
    client = world.rebuilt(tmp_path, retention_days=7).client()
    made = client.upload_workload(
        gzip.compress(TABLE),
        name="table",
        filename="x",
        columns=COLUMNS,
        time_unit="ms",
        retention_days=2,
        privacy=Privacy.LENGTHS,
    )
    usual = client.upload_workload(TWO_REQUESTS, name="two")

    assert (made.requests, made.report.compression, made.report.time_unit) == (3, "gzip", "ms")
    assert made.summary.arrivals is not None
    assert made.summary.arrivals.span_s == pytest.approx(2.5)
    assert made.expires_at == made.created_at + timedelta(days=2)
    assert usual.expires_at == usual.created_at + timedelta(days=7)
    assert made.limits
    assert "lengths" in made.summary.unmeasurable["lookup"]


@pytest.mark.parametrize(
    "field, options",
    [
        ("retention_days", {"retention_days": 0}),
        ("time_unit", {"time_unit": "fortnights"}),
        ("session_lengths", {"session_lengths": "sometimes"}),
        ("target_id", {"privacy": Privacy.HASHED}),
        ("format", {"format": "no such format"}),
        ("surname", {"columns": {"surname": "x"}}),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(
    world: World, field: str, options: dict[str, object]
) -> None:
    """422 before the file is read; the answer names the field."""
    with pytest.raises(ApiProblem) as refused:
        world.client().upload_workload(TABLE, name="table", **options)  # type: ignore[arg-type]

    assert refused.value.status == 422
    assert field in refused.value.problem.detail


def test_a_refused_file_names_its_first_bad_lines(world: World) -> None:
    """Number, field and reason of each, without its text."""
    bad = b'{"messages": "SECRETWORD"}\n{"messages": ["SECRETWORD"]}\n'
    with pytest.raises(ApiProblem) as refused:
        world.client().upload_workload(bad, name="bad")

    assert [item.line for item in refused.value.problem.rejects] == [1, 2]
    assert "SECRETWORD" not in str(refused.value.problem)


def test_hashed_keeps_what_was_computed_from_the_text_before_it_went(world: World) -> None:
    """Prefix sharing and acceptance under the target's tokenizer, as with the whole text."""
    rows = [
        {"messages": [{"role": "user", "content": "the same beginning " * 4 + str(n)}]}
        | {"response": "the same beginning " * 3, "timestamp": n}
        for n in range(4)
    ]
    file = "".join(json.dumps(row) + "\n" for row in rows).encode()
    client = world.client()
    target = world.ready_target(client)
    raw, hashed = (
        client.upload_workload(file, name=mode.value, target_id=target.id, privacy=mode)
        for mode in (Privacy.RAW, Privacy.HASHED)
    )
    whole = client.workload_summary(raw.id, target.id)
    left = client.workload_summary(hashed.id, target.id)

    assert left.overall.prefix_sharing == whole.overall.prefix_sharing
    assert left.overall.lookup == whole.overall.lookup
    assert left.overall.lookup is not None
    assert left.with_text == whole.with_text
    assert hashed.report.block_tokens is not None
    assert hashed.digest != raw.digest


def test_what_is_past_its_time_is_purged(world: World) -> None:
    """The API looks now and then; no agent and no caller is needed."""
    made = world.client().upload_workload(TABLE, name="table", columns=COLUMNS, retention_days=1)
    early = Retention(world.sessions, lambda: made.created_at, every_s=1.0).look()
    after = made.created_at + timedelta(days=2)
    late = Retention(world.sessions, lambda: after, every_s=1.0).look()

    assert (early, late) == (0, 1)
    assert world.client().workload(made.id).purged_at == after
