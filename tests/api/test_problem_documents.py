"""How the API refuses and how it reports about itself."""

import json

import pytest

from api.client import ApiProblem
from tests.api.world import World

pytestmark = pytest.mark.postgres


def test_refusals_are_problem_documents(world: World) -> None:
    """Unknown route, wrong method, broken JSON: media type, status and title are there."""
    http = world.client()._wire.http
    answers = [
        http.get("/v1/nothing"),
        http.delete("/v1/studies"),
        http.post("/v1/studies", content=b"{", headers={"content-type": "application/json"}),
        http.get("/v1/studies", params={"limit": "0"}),
        http.get("/v1/studies", params={"cursor": "nonsense"}),
        http.get("/v1/studies/no-id"),
    ]

    assert [item.status_code for item in answers] == [404, 405, 422, 422, 422, 404]
    assert {item.headers["content-type"] for item in answers} == {"application/problem+json"}
    assert all(json.loads(item.content)["title"] for item in answers)


def test_what_was_sent_is_not_repeated(world: World) -> None:
    """A wrong value is not echoed: it may be somebody's prompt."""
    with pytest.raises(ApiProblem) as caught:
        world.client().create_target(name="SECRETWORD\n", model="SECRETWORD" * 200)

    assert caught.value.status == 422
    assert "SECRETWORD" not in str(caught.value.problem)
    assert {item.field for item in caught.value.problem.errors} == {"name", "model"}


def test_a_missing_key_says_how_to_send_one(world: World) -> None:
    """401 carries WWW-Authenticate."""
    http = world.client()._wire.http
    answer = http.get("/v1/studies", headers={"authorization": "Basic x"})

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_ready_service_says_which_schema_it_has(world: World) -> None:
    """Database and migrations are checked."""
    checks = world.client().ready().checks

    assert checks["database"] == "ok"
    assert checks["schema"]


def test_figures_count_by_route_and_hold_no_text_of_a_request(world: World) -> None:
    """Labels are route templates and statuses."""
    http = world.client()._wire.http
    http.get("/v1/studies/SECRETWORD")
    http.get("/SECRETWORD")
    http.request("SECRETWORD", "/v1/studies")

    text = http.get("/metrics").text

    assert 'route="/v1/studies/{study_id}",status="404"' in text
    assert "SECRETWORD" not in text
