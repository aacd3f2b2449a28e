"""What a recommendation says beside its verdicts: load, confirmation, quality, paging, baseline."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import streamlit as st

from advisor.measurement.quality import QualityFigures
from advisor.recommender import phrases
from advisor.recommender.recommendation import QualityVerdict, Recommendation
from api.client import ChartView
from dashboard.charts import show_chart
from dashboard.listing import figure, table
from dashboard.wording import NOT_MEASURED, origin_text, plain

Colour: TypeAlias = Literal["blue", "orange", "gray"]
CONFIRMED: Mapping[bool | None, tuple[str, Colour]] = {
    True: ("confirmed", "blue"),
    False: ("not confirmed", "orange"),
    None: ("not decided", "gray"),
}


def show_load(body: Recommendation, chart: ChartView) -> None:
    """Where the baseline saturates, at what, and what binds there."""
    st.header("Load and saturation")
    found = body.saturation
    if found is not None:
        st.write(plain(phrases.saturation_sentence(found)))
        cells = st.columns(3)
        with cells[0]:
            title = "Saturation" if found.saturated else "Highest useful load so far"
            shown = f"{phrases.span_text(found.concurrency)} in flight"
            figure(title, shown, origin_text(found.concurrency))
        with cells[1]:
            plateau = found.plateau_tokens_per_s
            shown = phrases.span_text(plateau, unit="tok/s")
            figure("Plateau", shown, origin_text(plateau))
        with cells[2]:
            figure("What binds", found.binding.value, found.reason)
    show_chart(chart)


def show_confirmation(body: Recommendation) -> None:
    """What held-out requests say of the finalist."""
    st.subheader("Confirmation on held-out requests")
    found = body.confirmation
    if found is None:
        st.caption("The study did not compare its finalist with the baseline on other requests.")
        return
    word, colour = CONFIRMED[found.confirmed if found.gain is not None else None]
    title = phrases.title_of(body, found.config_hash)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(word, color=colour)
        st.markdown(plain(phrases.confirmation_sentence(found, title)))
    if found.gain is not None:
        order = plain(", ".join(found.order))
        st.caption(f"Order: {order}. Gain from {plain(origin_text(found.gain))}.")


def show_quality(body: Recommendation) -> None:
    """How far techniques that change outputs change the answers."""
    st.header("Quality")
    if not body.quality:
        st.caption("No configuration that changes outputs was compared with the baseline.")
        return
    floor = body.goal.min_top1_agreement
    for item in body.quality:
        title = phrases.technique_title(body, item.technique)
        sentence = plain(phrases.quality_sentence(item, title, floor))
        if item.within is False:
            st.warning(sentence)
        else:
            st.write(sentence)
    table([_quality(item, body) for item in body.quality if item.figures is not None])


def _quality(item: QualityVerdict, body: Recommendation) -> dict[str, str]:
    figures, itself = item.figures, item.tolerance
    return {
        "technique": phrases.technique_title(body, item.technique),
        "prompts": NOT_MEASURED if figures is None else str(figures.requests),
        "same most likely token": _top1(figures),
        "baseline against itself": _top1(itself),
        "same until the first difference": NOT_MEASURED
        if figures is None
        else phrases.share_text(figures.greedy_agreement),
        "identical answers": NOT_MEASURED
        if figures is None
        else phrases.share_text(figures.identical),
        "from": "" if figures is None else origin_text(figures.greedy_agreement),
    }


def _top1(figures: QualityFigures | None) -> str:
    if figures is None or figures.top1_agreement is None:
        return NOT_MEASURED
    return phrases.share_text(figures.top1_agreement)


def show_paging(body: Recommendation) -> None:
    """Paged blocks against contiguous reservation."""
    if body.paging is not None:
        st.subheader("Paged cache")
        st.write(plain(phrases.paging_sentence(body.paging)))


def show_notes(body: Recommendation) -> None:
    """What of the user's own command the baseline does not keep."""
    if body.baseline_notes:
        st.header("Baseline")
        st.write("Of the command that was given, this is not kept:")
        st.markdown("\n".join(f"- {plain(note)}" for note in body.baseline_notes))
