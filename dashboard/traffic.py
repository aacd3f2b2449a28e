"""What an upload says: headline, promises of the text, lengths, arrivals, mix."""

from collections.abc import Mapping

import streamlit as st

from advisor.recommender.phrases import span_text
from advisor.traffic.figures import ClassSummary, Counts, CountSource, Quantiles, TrafficSummary
from advisor.traffic.phrases import duplicates_sentence, mix_parts, percent
from advisor.units import seconds_text
from api.client import ChartView
from dashboard.charts import lengths_chart, show_chart
from dashboard.listing import figure, grid, table
from dashboard.wording import (
    NOT_MEASURABLE,
    amount_text,
    count_text,
    joined,
    origin_text,
    plain,
    share_text,
)

Charts = Mapping[str, ChartView]


def show_summary(summary: TrafficSummary, charts: Charts) -> None:
    """The whole of it, the most important first; `charts` by their key."""
    for warning in summary.warnings:
        st.warning(plain(warning))
    _headline(summary)
    _classes(summary)
    _promises(summary, charts)
    _lengths(summary, charts)
    _arrivals(charts)
    _mix(summary)
    _unknown(summary)


def _headline(summary: TrafficSummary) -> None:
    found = summary.arrivals
    why = f"from this upload: {summary.unmeasurable.get('arrivals', 'no times')}"
    cells = st.columns(4)
    with cells[0]:
        figure("Requests", count_text(summary.requests), f"{summary.with_text:,} with text")
    with cells[1]:
        _sessions(summary)
    with cells[2]:
        if found is None:
            figure("Arrival rate", NOT_MEASURABLE, why)
        else:
            peak = f"peak {amount_text(found.peak_rate_per_s)} per s"
            note = f"over {seconds_text(found.span_s)}; {peak}"
            figure("Arrival rate", f"{amount_text(found.rate_per_s)} per s", note)
    with cells[3]:
        if found is None:
            figure("Burstiness", NOT_MEASURABLE, why)
        else:
            variation = found.interarrival_cv
            note = "busiest of 60 windows over the mean one"
            if variation is not None:
                note += f"; variation of gaps {variation:.2f} (1 for Poisson)"
            figure("Burstiness", f"{found.burstiness_ratio:.1f} x", note)


def _sessions(summary: TrafficSummary) -> None:
    found = None if summary.profile is None else summary.profile.sessions
    if found is None:
        note = "distinct sessions" if summary.sessions else "the file names no sessions"
        figure("Sessions", count_text(summary.sessions) if summary.sessions else "none", note)
        return
    note = f"turns: median {found.turns.p50:.3g}, most {found.turns.max:.0f}"
    if found.think_s is not None:
        note += f"; between turns {seconds_text(found.think_s.p50)}"
    figure("Sessions", count_text(found.sessions), note)


def _classes(summary: TrafficSummary) -> None:
    """The classes in words."""
    if not summary.request_classes:
        return
    st.subheader("Classes")
    st.caption("The file's own labels; requests without one are grouped by what they look like.")
    table(
        [
            {
                "class": item.name,
                "requests": f"{count_text(item.requests)} ({percent(item.share)})",
                "in words": item.description,
            }
            for item in summary.request_classes
        ]
    )


def _promises(summary: TrafficSummary, charts: Charts) -> None:
    st.subheader("What the text promises")
    st.caption(
        "Prefix sharing is the share of prompt tokens that an unlimited prefix cache would serve."
        " N-gram acceptance is a replay of the recorded outputs."
    )
    classes = (summary.overall, *summary.classes)
    if summary.overall.prefix_sharing is None and summary.overall.lookup is None:
        reasons = [summary.unmeasurable.get(name, "") for name in ("prefix_sharing", "lookup")]
        why = joined(list(dict.fromkeys(reasons)))
        st.info(f"{NOT_MEASURABLE} from this upload: {plain(why)}")
        return
    table([_promise(item, summary) for item in classes])
    if summary.overall.lookup is not None:
        origin = origin_text(summary.overall.lookup.tokens_per_step)
        st.caption(f"N-gram acceptance: {plain(origin)}")
    if summary.reuse is not None:
        for advice in summary.reuse.advice:
            st.info(plain(advice), icon=":material/lightbulb:")
    _tabs(
        charts,
        {
            "Prefix cache by its size": "reuse",
            "Where prompts differ": "difference",
            "Tokens per step of drafts": "draft_steps",
            "Accepted by position": "draft_positions",
        },
    )


def _tabs(charts: Charts, titles: Mapping[str, str]) -> None:
    """One tab per picture that the service sent."""
    known = {title: charts[key] for title, key in titles.items() if key in charts}
    if not known:
        return
    for tab, chart in zip(st.tabs(list(known)), known.values(), strict=True):
        with tab:
            show_chart(chart)


def _promise(item: ClassSummary, summary: TrafficSummary) -> dict[str, str]:
    """One row of the table; a missing figure says why it is missing."""
    sharing, lookup = item.prefix_sharing, item.lookup
    row = {"class": item.label, "requests": count_text(item.requests)}
    if sharing is None:
        row["prefix sharing"] = _missing("prefix_sharing", summary)
    else:
        share = span_text(sharing.hit_share, scale=0.01, unit="%")
        row["prefix sharing"] = f"{share}, blocks of {sharing.block_size} tokens"
    if lookup is None:
        why = _missing("lookup", summary)
        return {**row, "n-gram tokens per step": why, "accepted by position": ""}
    rates = ", ".join(share_text(rate) for rate in lookup.per_position)
    return {
        **row,
        "n-gram tokens per step": span_text(lookup.tokens_per_step, digits=2),
        "accepted by position": f"{rates} of {lookup.drafts:,} drafts",
    }


def _missing(name: str, summary: TrafficSummary) -> str:
    why = summary.unmeasurable.get(name)
    return f"{NOT_MEASURABLE}: {why}" if why else f"{NOT_MEASURABLE} for this class"


def _lengths(summary: TrafficSummary, charts: Charts) -> None:
    st.subheader("Lengths")
    st.caption(_counted(summary))
    classes = (summary.overall, *summary.classes)
    profile = summary.profile
    for tab, title in zip(
        st.tabs(["Prompt", "Output", "Prompt and output together", "What a length limit serves"]),
        ("prompt", "output", "joint_lengths", "fit"),
        strict=True,
    ):
        with tab:
            if title == "prompt":
                _side("Prompt", {item.label: item.prompt_tokens for item in classes}, summary)
            elif title == "output":
                _side("Output", {item.label: item.output_tokens for item in classes}, summary)
            elif title in charts:
                show_chart(charts[title])
                context = None if profile is None else profile.context_tokens
                if title == "joint_lengths" and context is not None:
                    grid([_quantiles("prompt and output", context)])


def _counted(summary: TrafficSummary) -> str:
    """Where the counts come from."""
    text = "Tokens per request. Boxes span the 25th to the 75th percentile, whiskers the 5th to"
    text += " the 95th."
    profile = summary.profile
    if profile is None:
        known = summary.count_source is not CountSource.UNKNOWN
        return f"{text} Counts: {summary.count_source}." if known else text
    prompts, outputs = _sources(profile.prompt_counts), _sources(profile.output_counts)
    return f"{text} Prompt counts: {prompts}. Output counts: {outputs}."


def _sources(counts: Counts) -> str:
    parts = {
        "reported by the file": counts.reported,
        "by the tokenizer": counts.estimated,
        "missing": counts.missing,
    }
    return ", ".join(f"{count:,} {name}" for name, count in parts.items() if count) or "none"


def _side(side: str, found: Mapping[str, Quantiles | None], summary: TrafficSummary) -> None:
    known = {label: item for label, item in found.items() if item is not None}
    if not known:
        why = summary.unmeasurable.get(f"{side.lower()}_tokens", "no lengths")
        st.info(f"{NOT_MEASURABLE} from this upload: {plain(why)}")
        return
    lengths_chart(known, f"{side.lower()} tokens")
    grid([_quantiles(label, item) for label, item in known.items()])


def _quantiles(label: str, found: Quantiles) -> dict[str, str]:
    steps = {"5 %": found.p5, "25 %": found.p25, "median": found.p50, "75 %": found.p75}
    steps |= {"95 %": found.p95, "max": found.max, "mean": found.mean}
    figures = {name: count_text(value) for name, value in steps.items()}
    known = count_text(found.count)
    return {"class": label, **figures, "known": known, "unknown": count_text(found.unknown)}


def _arrivals(charts: Charts) -> None:
    st.subheader("Arrivals")
    _tabs(
        charts,
        {"Over time": "rate", "By hour of the day": "diurnal", "In flight": "concurrency"},
    )


def _mix(summary: TrafficSummary) -> None:
    profile = summary.profile
    if profile is None:
        return
    st.subheader("Mix")
    st.caption("Counted from the upload; languages and code of the requests that were looked at.")
    grid(
        [
            {
                "of": part.kind,
                "requests that": part.name,
                "count": count_text(part.requests),
                "share": percent(part.share),
            }
            for part in mix_parts(profile.mix)
        ]
    )
    if profile.duplicates is None:
        why = summary.unmeasurable.get("duplicates", "the upload holds no text")
        st.caption(f"Repeated prompts: {NOT_MEASURABLE}: {plain(why)}.")
    else:
        st.markdown(plain(duplicates_sentence(profile.duplicates)))


def _unknown(summary: TrafficSummary) -> None:
    """Everything that the upload does not say, with the reason."""
    if not summary.unmeasurable:
        return
    with st.expander(f"Not measurable from this upload ({len(summary.unmeasurable)})"):
        grid(
            [
                {"figure": name.replace("_", " "), "why": why}
                for name, why in summary.unmeasurable.items()
            ]
        )
