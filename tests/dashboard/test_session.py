"""Signing in, refusals in words, and pages that are asked for by their address."""

import inspect
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from advisor.errors import NotAllowed
from api.client import Client
from tests.dashboard.conftest import TIMEOUT_S, Opened
from tests.fakes import views
from tests.fakes.planted_client import PlantedClient

NOBODY = "http://127.0.0.1:9"


def methods(cls: type) -> dict[str, inspect.Signature]:
    """Public methods with their signatures."""
    return {
        name: inspect.signature(value)
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_planted_client_has_the_real_ones_methods() -> None:
    """A page that works with the fake cannot call what the real one does not have."""
    assert methods(PlantedClient) == methods(Client)


def test_without_a_key_a_session_is_asked_for_one(
    app_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else is shown."""
    monkeypatch.delenv("ROOFTUNE_API_KEY", raising=False)
    monkeypatch.delenv("ROOFTUNE_KEY_FILE", raising=False)
    at = AppTest.from_file(app_path, default_timeout=TIMEOUT_S).run()

    assert not at.exception
    assert [field.label for field in at.text_input] == ["API key"]
    assert [title.value for title in at.title] == ["Rooftune"]


def test_a_service_that_does_not_answer_is_said_with_what_to_do(
    app_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing in is tried with the typed key; the key is not kept."""
    monkeypatch.delenv("ROOFTUNE_API_KEY", raising=False)
    monkeypatch.setenv("ROOFTUNE_URL", NOBODY)
    at = AppTest.from_file(app_path, default_timeout=TIMEOUT_S).run()
    at.text_input[0].input("rt_secret")
    at.button[0].click().run()

    assert not at.exception
    assert "Not reachable" in at.error[0].value
    assert any("rooftune up" in item.value for item in at.caption)
    assert "key" not in at.session_state


def test_a_key_file_signs_in_and_one_that_is_missing_counts_as_none(
    app_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the file the service is asked, without it the user is."""
    monkeypatch.delenv("ROOFTUNE_API_KEY", raising=False)
    monkeypatch.setenv("ROOFTUNE_URL", NOBODY)
    key_file = tmp_path / "admin.key"
    monkeypatch.setenv("ROOFTUNE_KEY_FILE", str(key_file))
    missing = AppTest.from_file(app_path, default_timeout=TIMEOUT_S).run()
    key_file.write_text("rt_secret\n", encoding="utf-8")
    there = AppTest.from_file(app_path, default_timeout=TIMEOUT_S).run()

    assert not missing.error
    assert "Not reachable" in there.error[0].value


def test_a_refusal_says_what_to_do(opened: Opened) -> None:
    """The domain's remedy reaches the reader."""
    client = PlantedClient(
        found=[views.recommendation()],
        refusal=NotAllowed("approve your own study", "ask another reviewer"),
    )
    at = opened(client, "recommendation")
    at.button(key="approve").click().run()

    assert not at.exception
    assert "Not allowed" in at.error[0].value
    assert any("ask another reviewer" in item.value for item in at.caption)
    assert client.asked == []


def test_signing_out_closes_the_client(opened: Opened) -> None:
    """The next run asks for a key."""
    client = PlantedClient()
    at = opened(client, "workloads")
    next(item for item in at.button if item.label == "Sign out").click().run()

    assert client.closed
    assert [field.label for field in at.text_input] == ["API key"]


@pytest.mark.parametrize(
    "page", ["workloads", "targets", "studies", "recommendation", "deployments"]
)
def test_an_empty_service_shows_what_comes_first(opened: Opened, page: str) -> None:
    """Every page is whole before there is anything."""
    at = opened(PlantedClient(), page)

    assert not at.exception
    assert not at.error
    assert at.info
    assert any("Signed in as" in item.value for item in at.caption)
