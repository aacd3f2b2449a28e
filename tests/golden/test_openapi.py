"""The wire format of the API, as one committed document: every change shows in review."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.app import build
from api.client import Client
from api.settings import ApiSettings

GOLDEN = Path(__file__).parent / "openapi.json"
SETTINGS = ApiSettings(database_url="postgresql://nobody@localhost/none")
# Every list and every single noun is read by a method of the client; these routes are for machines.
UNAUTHORIZED = 401
NO_ROUTE = {"ask", "close"}  # the proxy's, and none
WITHOUT_METHOD = {"/metrics"}


def test_the_openapi_document_is_the_committed_one(update_golden: bool) -> None:  # noqa: FBT001
    """`--update-golden` rewrites it and fails."""
    document = json.dumps(build(SETTINGS).openapi(), indent=1, sort_keys=True) + "\n"
    if update_golden:
        GOLDEN.write_text(document, encoding="utf-8")
        pytest.fail("golden file rewritten; look at the difference and run again")

    assert document == GOLDEN.read_text(encoding="utf-8")


def test_no_answer_field_has_a_default() -> None:
    """A generated client sees every field of what is sent, so the schemas require them all.

    Values of `advisor` keep the defaults that they have as values.
    """
    schemas = build(SETTINGS).openapi()["components"]["schemas"]
    views = {name: item for name, item in schemas.items() if name.endswith("View")}
    lacking = {
        name: sorted(set(item["properties"]) - set(item["required"]))
        for name, item in views.items()
        if set(item["properties"]) != set(item["required"])
    }

    assert views
    assert lacking == {}


def operations() -> list[tuple[str, str]]:
    """Method and path of every documented operation."""
    paths = build(SETTINGS).openapi()["paths"]
    return [(method.upper(), path) for path, item in paths.items() for method in item]


def test_every_route_under_v1_refuses_strangers() -> None:
    """Without a key each one is 401, before anything else is looked at."""
    client = TestClient(build(SETTINGS), raise_server_exceptions=False)
    found = {
        f"{method} {path}": client.request(method, path.replace("{", "").replace("}", ""))
        for method, path in operations()
        if path.startswith("/v1/")
    }

    assert found
    assert {name for name, answer in found.items() if answer.status_code != UNAUTHORIZED} == set()


def test_the_client_has_a_method_per_route() -> None:
    """As many public methods as operations, `close` and machines' routes aside."""
    ours = [path for _, path in operations() if path not in WITHOUT_METHOD]
    methods = [name for name in dir(Client) if not name.startswith("_") and name not in NO_ROUTE]

    assert len(methods) == len(ours)
