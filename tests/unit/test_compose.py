"""The compose file keeps the compose schema and the house's rules for what it may open."""

import json
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The parsed compose file, merge keys resolved."""
    loaded: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")
    return loaded


def test_the_file_keeps_the_compose_schema(compose: dict[str, Any]) -> None:
    """The schema is the one that the gate's check-jsonschema carries: no network, no daemon."""
    folder = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text(encoding="utf-8"))

    jsonschema.Draft7Validator(schema).validate(compose)


def test_every_published_port_is_bound_to_the_loopback_address(compose: dict[str, Any]) -> None:
    """Rooftune brings no TLS of its own, so nothing of it may face a network."""
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]

    assert ports
    assert [port for port in ports if not str(port).startswith("127.0.0.1:")] == []


def test_no_password_stands_in_the_file(compose: dict[str, Any]) -> None:
    """Passwords come as secrets: no variable holds one and no URL carries one."""
    values = [
        (name, str(value))
        for service in compose["services"].values()
        for name, value in service.get("environment", {}).items()
    ]

    assert [n for n, _ in values if "PASSWORD" in n and not n.endswith("_FILE")] == []
    assert [v for _, v in values if "://" in v and ":" in v.split("://")[1].split("@")[0]] == []


def test_every_service_that_always_runs_has_a_healthcheck(compose: dict[str, Any]) -> None:
    """`docker compose up --wait` waits for readiness, not for a started process."""
    always = {name: body for name, body in compose["services"].items() if "profiles" not in body}

    assert [
        name for name, body in always.items() if "test" not in body.get("healthcheck", {})
    ] == []


def test_a_gpu_is_asked_for_in_its_profile_only(compose: dict[str, Any]) -> None:
    """A machine without a GPU starts everything else."""
    wanting = {name for name, body in compose["services"].items() if "nvidia" in str(body)}

    assert wanting == {"agent-gpu"}
    assert compose["services"]["agent-gpu"]["profiles"] == ["gpu"]
