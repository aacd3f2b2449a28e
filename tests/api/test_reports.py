"""Pictures and report of a recommendation, by HTTP and on the command line."""

import json
import uuid
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest

from api.charts.gallery import charts_of
from api.cli import main
from api.client import ApiProblem, Client, RecommendationView
from tests.api.world import World

pytestmark = pytest.mark.postgres
USAGE = 2


@pytest.fixture
def submitter(world: World) -> Client:
    """Who started the study."""
    return world.client(world.key_of("submitter"))


@pytest.fixture
def proposed(world: World, submitter: Client) -> RecommendationView:
    """A recommendation, not reviewed yet."""
    _, study = world.study(submitter)
    return submitter.recommendation(str(world.recommended(study.id).id))


def test_charts_are_those_of_the_bundle(submitter: Client, proposed: RecommendationView) -> None:
    """The same values that the report draws, through the wire."""
    assert submitter.recommendation_charts(proposed.id) == charts_of(proposed.body)


def test_the_report_comes_as_html_and_as_markdown(
    submitter: Client, proposed: RecommendationView
) -> None:
    """Both name the hash that a reviewer approves."""
    page = submitter.recommendation_report(proposed.id)
    text = submitter.recommendation_report(proposed.id, "md")

    assert page.startswith("<!DOCTYPE html>")
    assert text.startswith("# Rooftune recommendation")
    assert proposed.hash in page
    assert proposed.hash in text


def test_an_unknown_format_is_refused_with_the_known_ones(
    submitter: Client, proposed: RecommendationView
) -> None:
    """422, naming the parameter."""
    with pytest.raises(ApiProblem) as caught:
        submitter.recommendation_report(proposed.id, "pdf")

    assert caught.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "format" in caught.value.problem.errors[0].field


def test_another_projects_report_is_not_found(world: World, proposed: RecommendationView) -> None:
    """Charts and report follow the recommendation's project."""
    project = world.client(world.key_of("admin")).create_project("elsewhere")
    stranger = world.client(world.key_of("viewer", project=uuid.UUID(project.id)))
    for ask in (stranger.recommendation_charts, stranger.recommendation_report):
        with pytest.raises(ApiProblem) as caught:
            ask(proposed.id)

        assert caught.value.status == HTTPStatus.NOT_FOUND


def test_a_browser_is_told_what_the_report_is(
    world: World, address: str, proposed: RecommendationView
) -> None:
    """Its type, a file name, and not to guess."""
    key = world.key_of("viewer")
    answer = httpx.get(
        f"{address}/v1/recommendations/{proposed.id}/report",
        params={"format": "md"},
        headers={"authorization": f"Bearer {key}"},
    )

    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert f"rooftune-{proposed.id[:8]}.md" in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.fixture
def export(
    world: World,
    address: str,
    proposed: RecommendationView,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Export the recommendation: exit code, standard output, standard error."""

    def call(*options: str) -> tuple[int, str, str]:
        code = main(
            [
                *("--url", address, "--key", world.key_of("viewer")),
                *("recommendation", "export", proposed.id, *options),
            ]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_export_writes_the_file(
    export: Callable[..., tuple[int, str, str]], proposed: RecommendationView, tmp_path: Path
) -> None:
    """Every format; with `--json` the answer names file and size."""
    for form in ("html", "md", "json"):
        out = tmp_path / f"report.{form}"
        code, told, _ = export("--format", form, "--out", str(out), "--json")

        assert code == 0
        assert json.loads(told) == {"format": form, "file": str(out), "bytes": out.stat().st_size}
        assert proposed.hash in out.read_text(encoding="utf-8")


def test_export_to_nowhere_is_a_usage_error(
    export: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """A folder that is not there is said, exit code 2."""
    code, _, said = export("--format", "md", "--out", str(tmp_path / "missing" / "report.md"))

    assert code == USAGE
    assert "cannot be written" in said
