"""The wire format of the API, as one committed document: every change shows in review."""

import json
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from api.app import build
from api.client import Client
from api.settings import ApiSettings

GOLDEN = Path(__file__).parent / "openapi.json"
SETTINGS = ApiSettings(database_url="postgresql://nobody@localhost/none")
# Every list and every single noun is read by a method of the client; these routes are for machines.
WITHOUT_METHOD = {"/metrics"}


def test_the_openapi_document_is_the_committed_one(update_golden: bool) -> None:
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


def test_every_route_under_v1_refuses_strangers() -> None:
    """Each one depends on the caller; only health is open."""
    open_paths = {
        route.path
        for route in build(SETTINGS).routes
        if isinstance(route, APIRoute) and "caller_of" not in str(_dependencies(route))
    }

    assert open_paths == {"/healthz", "/readyz", "/metrics"}


def _dependencies(route: APIRoute) -> list[str]:
    names: list[str] = []
    waiting = list(route.dependant.dependencies)
    while waiting:
        item = waiting.pop()
        names.append(getattr(item.call, "__name__", ""))
        waiting += item.dependencies
    return names


def test_the_client_has_a_method_per_route() -> None:
    """As many public methods as routes, `close` and the like aside."""
    routes = [
        (method, route.path)
        for route in build(SETTINGS).routes
        if isinstance(route, APIRoute) and route.path not in WITHOUT_METHOD
        for method in route.methods
    ]
    methods = [name for name in vars(Client) if not name.startswith("_") and name != "close"]

    assert len(methods) == len(routes)
