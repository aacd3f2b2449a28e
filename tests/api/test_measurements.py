"""Results of other clients: sent in, kept as figures, shown beside a study, exported, deleted."""

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import yaml
from llmd_benchmark_report import BenchmarkReportV02
from sqlalchemy import select

from advisor.estimate import Source
from advisor.measurement.imports.reading import MOST_BYTES
from advisor.measurement.report import Rank
from advisor.states import StudyState
from api.cli import main
from api.client import NOT_USED, ApiProblem
from api.codec import json_value
from db import devices, runs, studies, trials
from db.identity import utc_now
from db.session import transaction
from db.tables import DeviceRow
from tests.api.front import Run
from tests.api.world import AGENT, World
from tests.fakes.haystack import found, rows
from tests.fakes.stored_values import MEASURED
from tests.fakes.tool_results import (
    SECRET,
    guidellm,
    guidellm_benchmark,
    vllm_bench,
    vllm_bench_detailed,
    written,
)
from tests.fakes.values import FACTS, load_point, plan

BENCH = written(vllm_bench())
DETAILED = written(vllm_bench_detailed())
GUIDE = written(guidellm(guidellm_benchmark({"type_": "constant", "rate": 0.5})))
HOPELESS = written(vllm_bench(max_concurrency=64))


def ours(**changes: object) -> bytes:
    """A report as `rooftune measure` writes it, with other fields."""
    held = json_value(MEASURED)
    return json.dumps({**held, **changes}).encode()


def test_inspect_reads_a_result_without_a_service(rooftune: Run, tmp_path: Path) -> None:
    """For people a row per load, for machines the whole report."""
    path = tmp_path / "anything.txt"
    path.write_bytes(DETAILED)

    code, out, _ = rooftune("measurement", "inspect", path)
    _, told, _ = rooftune("measurement", "inspect", path, "--json")

    assert code == 0
    assert "vllm bench serve: small" in out
    assert json.loads(told)["points"][0]["ttft_s"]["mean"] == pytest.approx(0.1)
    assert SECRET not in out + told


def test_inspect_of_a_strange_file_is_wrong_usage(rooftune: Run, tmp_path: Path) -> None:
    """Exit 2, with the tools that are known."""
    path = tmp_path / "x.json"
    path.write_text('{"answer": 42}')

    code, _, err = rooftune("measurement", "inspect", path)

    assert code == 2
    assert "GuideLLM" in err


@pytest.mark.postgres
class TestKept:
    """On a real database."""

    def test_a_result_is_kept_as_figures_of_the_lowest_rank(self, world: World) -> None:
        """The detailed file holds answers; none of its text reaches the database."""
        client = world.client()
        made = client.import_measurement(DETAILED)
        read = client.measurement(made.id)

        assert made == read
        assert made.source is Source.IMPORTED
        assert made.report.points[0].output_tokens_per_s == 20.0
        assert found([SECRET], rows(world.sessions)) == set()

    def test_our_own_report_is_measured_from_outside(self, world: World) -> None:
        """All that the client saw comes back; a list leaves the full loads out."""
        client = world.client()
        made = client.import_measurement(ours())
        (listed,) = client.measurements().items

        assert made.source is Source.MEASURED_OUTSIDE
        assert client.measurement(made.id).report == MEASURED
        assert listed.report == replace(MEASURED, loads=())

    @pytest.mark.parametrize(
        "body, named",
        [
            (ours(rank=Rank.OWN_ENGINE.value), "rank"),
            (ours(rank=Rank.IMPORTED.value), "rank"),
            (ours(tool="another"), "rank"),
            (ours(secret=SECRET), "report"),
            (ours(model=SECRET * 100), "model"),
            (ours(points="none"), "points"),
            (
                ours(points=[{"kind": "closed", "requests": 1, "failed": 2, "duration_s": 1}]),
                "point",
            ),
            (b"not json", "is not a JSON object"),
            (b'{"a": 1}', "GuideLLM"),
            (written(vllm_bench(duration=SECRET)), "duration"),
        ],
    )
    def test_what_cannot_be_is_refused_and_nothing_is_kept(
        self, world: World, body: bytes, named: str
    ) -> None:
        """422 with the field; nobody may claim an engine of ours, and nothing is quoted."""
        with pytest.raises(ApiProblem) as refused:
            world.client().import_measurement(body)

        assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert named in str(refused.value)
        assert SECRET not in str(refused.value)
        assert world.client().measurements().items == ()

    def test_a_body_beyond_the_limit_is_refused(self, world: World) -> None:
        """413 by the server, whatever the body is."""
        with pytest.raises(ApiProblem) as refused:
            world.client().import_measurement(b" " * (MOST_BYTES + 1))

        assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE

    def test_the_same_file_is_kept_once(self, world: World) -> None:
        """Under one key the same answer; again without it a conflict that names the first."""
        client = world.client()
        first = client.import_measurement(BENCH, idempotency_key="k")
        again = client.import_measurement(BENCH, idempotency_key="k")

        assert again == first
        with pytest.raises(ApiProblem) as refused:
            client.import_measurement(BENCH)
        assert refused.value.status == HTTPStatus.CONFLICT
        assert first.id in str(refused.value)
        with pytest.raises(ApiProblem) as reused:
            client.import_measurement(GUIDE, idempotency_key="k")
        assert reused.value.status == HTTPStatus.CONFLICT

    def test_a_deleted_measurement_is_gone_with_its_answer(self, world: World) -> None:
        """The audit remembers that there was one; the same request makes a new one."""
        client = world.client()
        made = client.import_measurement(BENCH, idempotency_key="k")
        client.delete_measurement(made.id)
        again = client.import_measurement(BENCH, idempotency_key="k")
        actions = [item.action for item in client.audit().items if item.noun == "measurement"]

        assert again.id != made.id
        assert actions == ["create", "delete", "create"]
        with pytest.raises(ApiProblem, match=made.id):
            client.measurement(made.id)

    def test_a_viewer_reads_and_does_not_write(self, world: World) -> None:
        """As with uploads: a submitter sends and deletes."""
        made = world.client(world.key_of("submitter")).import_measurement(BENCH)
        viewer = world.client(world.key_of("viewer"))

        assert viewer.measurement(made.id) == made
        for change in (
            lambda: viewer.import_measurement(GUIDE),
            lambda: viewer.delete_measurement(made.id),
        ):
            with pytest.raises(ApiProblem) as refused:
                change()
            assert refused.value.status == HTTPStatus.FORBIDDEN

    def test_another_project_sees_none_of_it(self, world: World) -> None:
        """Not in its list, not by id, and not attached to its targets."""
        admin = world.client()
        target = world.ready_target(admin)
        made = admin.import_measurement(BENCH, target_id=target.id)
        project = admin.create_project("elsewhere")
        stranger = world.client(world.key_of("submitter", project=uuid.UUID(project.id)))
        asks: list[Callable[[], object]] = [
            lambda: stranger.measurement(made.id),
            lambda: stranger.measurement_report(made.id),
            lambda: stranger.delete_measurement(made.id),
            lambda: stranger.import_measurement(GUIDE, target_id=target.id),
        ]

        assert stranger.measurements().items == ()
        assert stranger.import_measurement(BENCH).digest == made.digest
        for ask in asks:
            with pytest.raises(ApiProblem) as refused:
                ask()
            assert refused.value.status == HTTPStatus.NOT_FOUND

    def test_lists_are_in_pages_and_by_target(self, world: World) -> None:
        """Newest first, behind a cursor."""
        client = world.client()
        target = world.ready_target(client)
        old = client.import_measurement(BENCH, target_id=target.id)
        new = client.import_measurement(GUIDE)
        first = client.measurements(limit=1)
        second = client.measurements(limit=1, cursor=first.next)

        assert [item.id for item in (*first.items, *second.items)] == [new.id, old.id]
        assert second.next is None
        assert [item.id for item in client.measurements(target.id).items] == [old.id]

    def test_it_stands_beside_a_recommendation_and_changes_nothing_in_it(
        self, world: World
    ) -> None:
        """The bundle and its hash stay; the report says that it was not used."""
        client = world.client()
        _, study = world.study(client)
        row = world.recommended(study.id)
        before = client.recommendation(str(row.id))
        without = client.recommendation_report(str(row.id))
        made = client.import_measurement(ours(), target_id=study.target_id)
        client.import_measurement(BENCH)
        after = client.recommendation(str(row.id))
        page = client.recommendation_report(str(row.id))

        assert (before.outside, before.hash, before.body) == ((), after.hash, after.body)
        assert [item.id for item in after.outside] == [made.id]
        assert after.outside[0].report.loads == ()
        assert NOT_USED in page
        assert Source.MEASURED_OUTSIDE.value in page
        assert NOT_USED not in without

    def test_a_measurement_is_exported_as_benchmark_reports(self, world: World) -> None:
        """JSON and YAML are the same reports, each valid by the schema's own model."""
        client = world.client()
        made = client.import_measurement(GUIDE)
        held = json.loads(client.measurement_report(made.id))
        told = list(yaml.safe_load_all(client.measurement_report(made.id, "yaml")))
        alone = json.loads(client.measurement_report(made.id, load=0))

        assert held == told == [alone]
        assert BenchmarkReportV02.model_validate(alone).run.eid == made.id
        with pytest.raises(ApiProblem) as beyond:
            client.measurement_report(made.id, load=1)
        assert beyond.value.status == HTTPStatus.NOT_FOUND

    def test_a_measurement_without_a_usable_load_has_no_export(self, world: World) -> None:
        """409 with where to look."""
        client = world.client()
        made = client.import_measurement(HOPELESS)
        with pytest.raises(ApiProblem, match="without a usable load") as refused:
            client.measurement_report(made.id)

        assert refused.value.status == HTTPStatus.CONFLICT

    def test_a_study_exports_its_usable_loads_with_their_engine(self, world: World) -> None:
        """A disturbed load is not among them."""
        client = world.client()
        _, study = world.study(client)
        with pytest.raises(ApiProblem) as early:
            client.study_report(study.id)
        measured(world, study.id)
        reports = json.loads(client.study_report(study.id))
        valid = [BenchmarkReportV02.model_validate(item) for item in reports]

        assert early.value.status == HTTPStatus.CONFLICT
        assert len(valid) == 1
        assert valid[0].run.eid == study.id
        assert valid[0].scenario is not None
        assert valid[0].scenario.stack is not None
        assert valid[0].scenario.stack[0].standardized.tool_version == FACTS.vllm_version

    def test_the_command_line_does_the_whole_round(
        self, world: World, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Import, list, show, export to a file, delete."""
        file, out = tmp_path / "result.json", tmp_path / "report.yaml"
        file.write_bytes(BENCH)

        def call(*words: str) -> str:
            given = ["--url", address, "--key", world.admin_key, "measurement", *words]
            code = main(given)
            told = capsys.readouterr()
            assert code == 0, told.err
            return told.out

        made = json.loads(call("import", str(file), "--json"))["id"]
        listed = call("list")
        shown = call("show", made)
        call("export", made, "--out", str(out))
        call("delete", made)

        assert made[:8] in listed
        assert "2 in flight" in shown
        assert BenchmarkReportV02.model_validate(yaml.safe_load(out.read_text())).run.eid == made
        assert json.loads(call("list", "--json"))["items"] == []

    def test_a_foreign_client_needs_no_form(self, world: World, address: str) -> None:
        """The file is the body of the request."""
        answer = httpx.post(
            f"{address}/v1/measurements",
            content=BENCH,
            headers={"authorization": f"Bearer {world.admin_key}"},
            timeout=60.0,
        )

        assert answer.status_code == HTTPStatus.CREATED
        assert answer.json()["source"] == "measured by another tool"


def measured(world: World, study_id: str) -> None:
    """A trial of the study with one usable load and a disturbed one, as an agent leaves it."""
    with transaction(world.sessions) as session:
        now = utc_now()
        study = studies.one(session, uuid.UUID(study_id), None)
        device = session.scalars(select(DeviceRow)).one()
        for state in (StudyState.PLANNING, StudyState.PROBING):
            studies.transition(session, study, state, actor=AGENT, now=now)
        trial = studies.ensure_trial(session, study, plan(), now=now)
        lease = devices.take_lease(
            session, device.id, holder="agent", purpose="trial", now=now, ttl_s=60
        )
        assert lease is not None
        run = trials.start(
            session,
            trial,
            device_id=device.id,
            fencing_token=lease,
            token="run-1",
            now=now,
            actor=AGENT,
        )
        runs.ready(session, run, FACTS, now=now)
        disturbed = replace(load_point(2), usable=False, flaws=("disturbed by neighbours",))
        for point in (load_point(1), disturbed):
            trials.record_point(session, trial=trial, run=run, point=point, records=b"", now=now)
