"""What the upload and the roofline say of each technique, before any engine has run."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import streamlit as st

from advisor.hardware import DATASHEETS
from advisor.recommender import phrases
from advisor.recommender.outlook import Outlook, TechniqueOutlook
from advisor.recommender.screening import Forecast, Worth
from api.client import TargetView
from dashboard.listing import table
from dashboard.session import client, readable_errors
from dashboard.wording import gain_text, joined, origin_text, plain

Colour: TypeAlias = Literal["blue", "gray", "violet"]
COLOURS: Mapping[Worth, Colour] = {
    Worth.TEST: "blue",
    Worth.SKIP: "gray",
    Worth.UNKNOWN: "violet",
    Worth.NOT_APPLICABLE: "gray",
}
NO_TARGET = ""
OWN_DEVICE = ""


def show_forecast(workload_id: str, targets: Sequence[TargetView]) -> None:
    """Target, device and load to ask about, then the answer per technique."""
    st.subheader("Forecast")
    st.caption(
        "Which techniques are worth engine time, from the upload and the roofline alone. Nothing"
        " is started; a study measures it."
    )
    models = {item.id: f"{item.name} on {item.device_class}" for item in targets}
    models |= {NO_TARGET: "no target"}
    devices = {OWN_DEVICE: "the target's own device"}
    devices |= {key: facts.name for key, facts in DATASHEETS.items()}
    cells = st.columns(3)
    target = cells[0].selectbox("For the target", list(models), format_func=lambda key: models[key])
    hardware = cells[1].selectbox(
        "On the device", list(devices), format_func=lambda key: devices[key]
    )
    load = cells[2].number_input("With requests in flight", min_value=1, max_value=1024, value=16)
    with readable_errors(), st.spinner("Computing"):
        found = client().forecast(
            workload_id, target or None, hardware=hardware or None, concurrency=int(load)
        )
        _outlook(found)


def _outlook(found: Outlook) -> None:
    if found.regime is not None:
        st.write(plain(found.regime))
    for item in found.techniques:
        with st.container(border=True):
            _technique(item)
    said = [item for technique in found.techniques for item in technique.forecasts]
    origins = dict.fromkeys(origin_text(item.predicted) for item in said if item.predicted)
    if origins:
        st.caption(f"Expected gains: {plain(joined(list(origins)))}")
    if found.static_speedup is not None:
        st.markdown(
            "Continuous over static batches of 4 on these output lengths, at most:"
            f" {plain(gain_text(found.static_speedup))}"
            f" ({plain(origin_text(found.static_speedup))})."
        )
    if found.paging is not None:
        st.markdown(plain(phrases.paging_sentence(found.paging)))
    for name, why in found.unmeasurable.items():
        st.caption(f"{plain(name.replace('_', ' ').capitalize())}: {plain(why)}.")


def _technique(item: TechniqueOutlook) -> None:
    """The worth at the first load leads; other loads follow in the table."""
    first = item.forecasts[0] if item.forecasts else None
    with st.container(horizontal=True, vertical_alignment="center"):
        worth = Worth.UNKNOWN if first is None else first.worth
        st.badge(worth.value, color=COLOURS[worth])
        st.markdown(f"**{plain(item.title)}**")
        st.caption(f"suits {plain(item.suits)}")
    table([_row(forecast) for forecast in item.forecasts])


def _row(forecast: Forecast) -> dict[str, str]:
    predicted = forecast.predicted
    return {
        "in flight": str(forecast.concurrency),
        "worth": forecast.worth.value,
        "expected gain": "nobody can say" if predicted is None else gain_text(predicted),
        "why": forecast.reason or ("" if predicted is None else predicted.source.value),
    }
