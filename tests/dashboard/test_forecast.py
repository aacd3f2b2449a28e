"""The forecast on the page of workloads, before any study."""

from streamlit.testing.v1 import AppTest

from advisor.hardware import DATASHEETS
from advisor.recommender.screening import Worth
from advisor.techniques import TECHNIQUES
from tests.dashboard.conftest import Opened
from tests.dashboard.test_workloads import GOOD, shown
from tests.fakes import views
from tests.fakes.planted_client import PlantedClient


def planted() -> PlantedClient:
    """One upload, one ready target."""
    upload = views.workload(GOOD, name="text", filename="text.jsonl")
    return PlantedClient(uploads=[upload], known_targets=[views.target()])


def choose(at: AppTest, label: str, option: str) -> AppTest:
    """Select in the field of this label."""
    return next(item for item in at.selectbox if item.label == label).select(option).run()


def test_every_technique_has_its_worth_with_interval_or_reason(opened: Opened) -> None:
    """Without a study: one card per technique, an expected gain or why nobody can say."""
    at = opened(planted(), "workloads")
    tables = [item.value for item in at.table if "worth" in item.value]
    text = shown(at)

    assert not at.exception
    assert len(tables) == len(TECHNIQUES)
    assert all(item.title in text for item in TECHNIQUES)
    assert {cell for found in tables for cell in found["worth"]} <= {item.value for item in Worth}
    assert Worth.TEST.value in text
    for found in tables:
        for _, row in found.iterrows():
            assert "%" in row["expected gain"] or row["why"]


def test_the_forecast_is_asked_for_the_chosen_target_device_and_load(opened: Opened) -> None:
    """A named device takes the place of the target's own; no target is possible."""
    client = planted()
    at = opened(client, "workloads")
    next(item for item in at.number_input if "in flight" in item.label).set_value(4).run()
    device = next(iter(DATASHEETS))
    choose(at, "On the device", device)
    workload, target = client.uploads[0].id, views.target().id

    assert not at.exception
    assert client.forecasts[0] == (workload, target, None, 16)
    assert client.forecasts[-1] == (workload, target, device, 4)


def test_without_a_target_the_forecast_says_what_it_needs(opened: Opened) -> None:
    """No figure is invented."""
    client = planted()
    at = choose(opened(client, "workloads"), "For the target", "")

    assert not at.exception
    assert client.forecasts[-1][1] is None
    assert "choose a target" in shown(at)
