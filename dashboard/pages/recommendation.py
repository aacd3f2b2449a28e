"""The recommendation: ranked configurations, verdicts, review, deployment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import streamlit as st

from advisor.recommender.phrases import settings_text, span_text
from advisor.recommender.recommendation import (
    Effect,
    MemoryPicture,
    RankedConfig,
    Recommendation,
    Verdict,
    VerdictKind,
)
from advisor.states import RecommendationState
from advisor.traffic.phrases import distance_sentence
from api.client import ChartView, RecommendationView
from dashboard.app import run
from dashboard.charts import show_chart
from dashboard.findings import show_confirmation, show_load, show_notes, show_paging, show_quality
from dashboard.listing import figure, newest, pick, table
from dashboard.session import act, client, principal
from dashboard.trials import acceptance_row
from dashboard.wording import (
    NOT_MEASURED,
    SHORT_HASH,
    count_text,
    gain_text,
    joined,
    milliseconds_text,
    origin_text,
    plain,
    rate_text,
    share_text,
    size_text,
    time_text,
    words,
)

Colour: TypeAlias = Literal["blue", "orange", "gray", "violet"]
# The colours of the pictures (api/charts/figure.py), as far as a badge has them.
COLOURS: Mapping[VerdictKind, Colour] = {
    VerdictKind.HELPS: "blue",
    VerdictKind.HURTS: "orange",
    VerdictKind.NEUTRAL: "gray",
    VerdictKind.UNKNOWN: "violet",
    VerdictKind.NOT_APPLICABLE: "gray",
}

CHARTS = "charts"
FORMATS = {"html": "HTML (one file)", "md": "Markdown"}


@dataclass(frozen=True, slots=True)
class Decision:
    """A review button and what is said when it worked."""

    label: str
    done: str
    main: bool = False


DECISIONS = {
    "approve": Decision("Approve", "was approved.", main=True),
    "request_changes": Decision("Request changes", "was sent back."),
    "reject": Decision("Reject", "was rejected."),
}


def page() -> None:
    """One recommendation, whole."""
    st.title("Recommendation")
    found = newest(client().recommendations)
    if not found:
        st.info("No recommendation yet. A study leaves one when it is done.")
        return
    names = {item.id: item.name for item in newest(client().studies)}

    def title(item: RecommendationView) -> str:
        study = names.get(item.study_id, "study")
        return f"{study}, {words(item.state)}, {time_text(item.created_at)}"

    chosen = pick("recommendation", found, title)
    _conditions(chosen)
    _exports(chosen)
    charts = _charts(chosen)
    _ranking(chosen.body, charts["ranking"])
    show_confirmation(chosen.body)
    _verdicts(chosen.body, charts)
    show_quality(chosen.body)
    show_load(chosen.body, charts["saturation"])
    _resources(chosen.body, charts["memory"])
    _model(charts)
    show_notes(chosen.body)
    _review(chosen)
    _deploy(chosen)


def _charts(found: RecommendationView) -> Mapping[str, ChartView]:
    """The pictures by their key; kept, for a bundle never changes."""
    held: tuple[str, Mapping[str, ChartView]] | None = st.session_state.get(CHARTS)
    if held is None or held[0] != found.hash:
        made = client().recommendation_charts(found.id)
        held = (found.hash, {chart.key: chart for chart in made})
        st.session_state[CHARTS] = held
    return held[1]


def _exports(found: RecommendationView) -> None:
    """The report as a file; it is written when it is asked for."""
    with st.popover("Export", icon=":material/download:"):
        form = st.selectbox("Format", list(FORMATS), format_func=lambda key: FORMATS[key])
        st.download_button(
            "Download",
            data=lambda: client().recommendation_report(found.id, form),
            file_name=f"rooftune-{found.id[:8]}.{form}",
            on_click="ignore",
        )


def _conditions(found: RecommendationView) -> None:
    body = found.body
    st.caption(
        f"Measured on {plain(body.machine)} with vLLM {plain(body.engine_version)};"
        f" {body.requests_measured:,} requests,"
        f" {count_text(body.mean_prompt_tokens, NOT_MEASURED)} prompt and"
        f" {count_text(body.mean_output_tokens, NOT_MEASURED)} output tokens on average."
        f" State: {words(found.state)}. Hash `{found.hash}`."
    )
    if body.subset is not None:
        st.caption(f"Replayed {distance_sentence(body.subset)}")
    if not body.conclusive:
        st.warning("Not conclusive: no configuration is better than the baseline beyond noise.")
    for warning in body.warnings:
        st.warning(plain(warning))


def _ranking(body: Recommendation, chart: ChartView) -> None:
    st.header("Ranked configurations")
    st.caption(
        f"At {body.goal.concurrency} requests in flight, by {body.goal.objective.value}. The gain"
        f" is over the baseline ({plain(settings_text(body.baseline.overrides()))})."
    )
    show_chart(chart, tabled=False)
    table([_rank(item) for item in body.ranked])
    with st.expander("Settings, sources and hashes"):
        table([_origin(item) for item in body.ranked])


def _rank(item: RankedConfig) -> dict[str, str]:
    tie = ", tied with a simpler one above" if item.tied_with_better else ""
    return {
        "#": str(item.rank),
        "configuration": item.title,
        "throughput": rate_text(item.throughput_tokens_per_s),
        "gain": gain_text(item.gain) + tie,
        "first token p95": milliseconds_text(item.ttft_p95_s),
        "per token p95": milliseconds_text(item.tpot_p95_s),
        "limits": "met" if item.feasible else f"broken: {item.why_not or 'no reason given'}",
    }


def _origin(item: RankedConfig) -> dict[str, str]:
    return {
        "#": str(item.rank),
        "settings": settings_text(item.config.overrides()),
        "throughput from": origin_text(item.throughput_tokens_per_s),
        "gain from": origin_text(item.gain),
        "configuration hash": item.config_hash[:SHORT_HASH],
    }


def _verdicts(body: Recommendation, charts: Mapping[str, ChartView]) -> None:
    st.header("Verdicts")
    st.caption(
        "What each technique does on this traffic. A gain above zero means that having the"
        " technique is better; the prediction was made before anything was measured."
    )
    show_chart(charts["gains"], tabled=False)
    for verdict in body.verdicts:
        with st.container(border=True):
            _verdict(verdict)
    for key in ("acceptance", "classes"):
        st.subheader(charts[key].title)
        show_chart(charts[key], tabled=False)


def _verdict(verdict: Verdict) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(verdict.kind.value, color=COLOURS[verdict.kind])
        st.markdown(f"**{plain(verdict.title)}**")
    st.write(plain(verdict.sentence))
    table([_effect(effect) for effect in verdict.effects])
    origins = dict.fromkeys(origin_text(item.measured) for item in verdict.effects if item.measured)
    if origins:
        st.caption(plain(joined(list(origins))))
    classes = [effect for effect in verdict.effects if effect.by_class]
    if not classes and not verdict.acceptance:
        return
    with st.expander("By request class"):
        for effect in classes:
            st.caption(
                "How much faster the output tokens of one request follow each other with"
                f" {effect.concurrency} in flight, measured"
            )
            table(
                [
                    {"class": label, "gain": gain_text(gain), "from": origin_text(gain)}
                    for label, gain in effect.by_class.items()
                ]
            )
        if verdict.acceptance:
            st.caption("Acceptance of drafts")
            table([acceptance_row(label, item) for label, item in verdict.acceptance.items()])


def _effect(effect: Effect) -> dict[str, str]:
    missing = f"{NOT_MEASURED}: {effect.reason or 'no reason given'}"
    return {
        "in flight": str(effect.concurrency),
        "verdict": effect.kind.value,
        "predicted": "not predicted"
        if effect.predicted is None
        else f"{gain_text(effect.predicted)}, {effect.predicted.source.value}",
        "measured": missing if effect.measured is None else gain_text(effect.measured),
    }


def _model(charts: Mapping[str, ChartView]) -> None:
    st.header("The model behind the forecast")
    for key in ("roofline", "predictions"):
        st.subheader(charts[key].title)
        show_chart(charts[key])


def _resources(body: Recommendation, chart: ChartView) -> None:
    st.header("Noise and memory")
    floor = body.noise.relative_sd
    cells = st.columns(4)
    with cells[0]:
        spread = span_text(floor, scale=0.01, unit="%")
        note = f"between {body.noise.repeats} repeats; {body.noise.basis}"
        figure("Noise floor", spread, f"{note}; {floor.source.value}")
    memory = body.memory
    with cells[1]:
        said = body.engine.weight_bytes is not None
        note = "reported by the engine" if said else "all parameters in the served dtype"
        figure("Weights", size_text(memory.weight_bytes), f"{note}, baseline")
    with cells[2]:
        figure("KV cache", size_text(memory.kv_cache_bytes), _kv_note(memory))
    with cells[3]:
        total = size_text(memory.device_bytes)
        figure("Headroom", size_text(memory.headroom_bytes), f"of {total} device memory")
    show_chart(chart)
    show_paging(body)


def _kv_note(memory: MemoryPicture) -> str:
    tokens = "capacity not reported"
    if memory.kv_cache_tokens is not None:
        tokens = f"room for {memory.kv_cache_tokens:,} tokens"
    peak = f"peak use {share_text(memory.kv_peak_usage)}"
    if memory.kv_free_tokens_at_peak is not None:
        peak += f", {memory.kv_free_tokens_at_peak:,} tokens free then"
    return f"{tokens} of {memory.kv_bytes_per_token:,} B; {peak}"


def _review(found: RecommendationView) -> None:
    st.header("Review")
    for review in found.reviews:
        st.markdown(
            f"- {time_text(review.at)}: **{plain(review.user)}** chose"
            f" *{plain(words(review.decision))}* for configuration"
            f" `{review.config_hash[:SHORT_HASH]}`"
            + (f": {plain(review.comment)}" if review.comment else "")
        )
    if found.state not in {RecommendationState.PROPOSED, RecommendationState.CHANGES_REQUESTED}:
        st.caption(f"The recommendation is {words(found.state)}; there is nothing to decide.")
        return
    if not principal().single_user:
        st.caption("Another person than the study's author has to approve.")
    titles = {item.config_hash: f"{item.rank}. {item.title}" for item in found.body.ranked}
    if not titles:
        st.info("The study measured no configuration that could be approved.")
        return
    config_hash = st.selectbox(
        "Configuration", list(titles), format_func=lambda key: titles[key], key="review_config"
    )
    st.caption(f"Configuration hash `{config_hash}`")
    comment = st.text_area("Comment", max_chars=4000, height=80)
    with st.container(horizontal=True):
        asked = [decision for decision, button in DECISIONS.items() if _pressed(decision, button)]
    if asked:
        act(
            lambda: client().review(
                found.id,
                decision=asked[0],
                config_hash=config_hash,
                recommendation_hash=found.hash,
                comment=comment,
            ),
            f"{plain(titles[config_hash])} {DECISIONS[asked[0]].done}",
        )


def _pressed(decision: str, button: Decision) -> bool:
    return st.button(button.label, type="primary" if button.main else "secondary", key=decision)


def _deploy(found: RecommendationView) -> None:
    st.header("Deploy")
    titles = {item.config_hash: f"{item.rank}. {item.title}" for item in found.body.ranked}
    approved = [
        review.config_hash
        for review in found.reviews
        if review.decision == "approve" and review.recommendation_hash == found.hash
    ]
    hashes = [key for key in dict.fromkeys(approved) if key in titles]
    if found.state is not RecommendationState.APPROVED or not hashes:
        st.info("Only an approved configuration can be deployed.")
        return
    with st.form("deploy", border=False):
        config_hash = st.selectbox(
            "Approved configuration", hashes, format_func=lambda key: titles[key]
        )
        name = st.text_input(
            "Name of the endpoint",
            max_chars=63,
            placeholder="lower case letters, digits and hyphens",
            help="A deployment of the same name is replaced after its requests are finished.",
        )
        asked = st.form_submit_button("Deploy", type="primary")
    if asked:
        act(
            lambda: client().deploy(
                name=name.strip(), recommendation_id=found.id, config_hash=config_hash
            ),
            f"{plain(name)} is being deployed; see the page Deployments.",
        )


if __name__ == "__main__":
    run(page)
