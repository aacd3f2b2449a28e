"""Upload traffic, see what was read of it and what it says on its own."""

import re

import streamlit as st

from advisor.recommender.phrases import span_text
from advisor.states import TargetState
from advisor.traffic.trace import (
    ClassSummary,
    CountSource,
    Quantiles,
    TraceReport,
    TrafficSummary,
)
from advisor.units import seconds_text
from api.client import TargetView, WorkloadView
from dashboard.app import run
from dashboard.charts import lengths_chart
from dashboard.forecast import show_forecast
from dashboard.listing import figure, grid, newest, pick, show, table
from dashboard.session import act, client, readable_errors, say
from dashboard.wording import (
    NOT_MEASURABLE,
    amount_text,
    count_text,
    joined,
    origin_text,
    plain,
    share_text,
    size_text,
    time_text,
)

LARGEST_MIB = 512
OWN_COUNTS = ""
COUNTED_WITH = "counted_with"
# What the API takes as a name; a file's own name is cut down to it.
_FOREIGN = re.compile(r"[^A-Za-z0-9 ._-]+")


def page() -> None:
    """Upload form, list, one workload."""
    st.title("Workloads")
    st.caption(
        "A workload is a sample of your own traffic: JSONL with `messages` or `prompt`, or CSV with"
        " lengths. Nothing is started to read it, and its text stays in this service."
    )
    targets = [item for item in newest(client().targets) if item.state is TargetState.READY]
    workloads = newest(client().workloads)
    with st.expander("Upload a traffic sample", expanded=not workloads):
        _upload(targets)
    if not workloads:
        st.info("No workload yet. Upload a sample to see what it says.")
        return
    chosen = pick("workload", workloads, lambda item: f"{item.name}, {time_text(item.created_at)}")
    _one(chosen, targets)
    with st.expander(f"All workloads ({len(workloads)})"):
        grid([_line(item) for item in workloads])


def _upload(targets: list[TargetView]) -> None:
    names = {OWN_COUNTS: "none: use the counts in the file"}
    names |= {item.id: item.name for item in targets}
    with st.form("upload", border=False):
        file = st.file_uploader(
            "Traffic file (JSONL or CSV)",
            type=["jsonl", "json", "ndjson", "csv"],
            max_upload_size=LARGEST_MIB,
        )
        name = st.text_input("Name", max_chars=80, placeholder="the file's name")
        target = st.selectbox(
            "Count tokens with the tokenizer of a target",
            list(names),
            format_func=lambda identifier: names[identifier],
            help="Prefix sharing and n-gram acceptance need a tokenizer to split the text.",
        )
        asked = st.form_submit_button("Upload", type="primary")
    if not asked:
        return
    if file is None:
        st.error("Choose a file first.")
        return
    with readable_errors(), st.spinner("Reading the file"):
        made = client().upload_workload(
            file.getvalue(),
            name=name.strip() or _name_of(file.name),
            filename=file.name,
            target_id=target or None,
        )
        show("workload", made.id)
        st.session_state[COUNTED_WITH] = target
        say(f"Read {made.report.accepted:,} of {made.report.rows:,} rows of {plain(file.name)}.")
        st.rerun()


def _name_of(filename: str) -> str:
    return _FOREIGN.sub("-", filename).lstrip(" ._-")[:80] or "traffic"


def _line(workload: WorkloadView) -> dict[str, str]:
    return {
        "name": workload.name,
        "requests": count_text(workload.requests),
        "rejected": count_text(workload.report.rejected),
        "format": workload.report.format,
        "size": size_text(workload.bytes),
        "uploaded": time_text(workload.created_at),
        "digest": workload.digest,
    }


def _one(workload: WorkloadView, targets: list[TargetView]) -> None:
    st.header(plain(workload.name))
    _report(workload.report)
    names = {OWN_COUNTS: "the file's own counts"} | {item.id: item.name for item in targets}
    if st.session_state.get(COUNTED_WITH) not in names:
        st.session_state[COUNTED_WITH] = OWN_COUNTS
    counted_with = st.selectbox(
        "Tokens counted with",
        list(names),
        key=COUNTED_WITH,
        format_func=lambda identifier: names[identifier],
        help="The first count under a target's tokenizer takes a moment; it is kept.",
    )
    with readable_errors(), st.spinner("Counting tokens"):
        summary = client().workload_summary(workload.id, counted_with or None)
        _summary(summary)
    show_forecast(workload.id, targets)
    with st.popover("Delete"):
        st.write("Deletes the sample and everything derived from it.")
        if st.button("Delete this workload", type="primary"):
            act(lambda: client().delete_workload(workload.id), "The workload was deleted.")


def _report(report: TraceReport) -> None:
    st.caption(
        f"{report.format}, {report.encoding}: {report.accepted:,} of {report.rows:,} rows accepted,"
        f" {report.rejected:,} rejected"
        + (f"; times read as {plain(report.time_unit)}" if report.time_unit else "")
    )
    for warning in report.warnings:
        st.warning(plain(warning))
    if report.rejects:
        with st.expander(f"Rejected lines ({report.rejected:,})", expanded=report.accepted == 0):
            grid(
                [
                    {"line": str(item.line), "field": item.field, "reason": item.reason}
                    for item in report.rejects
                ]
            )
            if report.rejected > len(report.rejects):
                st.caption(f"The first {len(report.rejects):,} are listed.")


def _summary(summary: TrafficSummary) -> None:
    for warning in summary.warnings:
        st.warning(plain(warning))
    _headline(summary)
    classes = (summary.overall, *summary.classes)
    st.subheader("Lengths")
    counted = "" if summary.count_source is CountSource.UNKNOWN else f", {summary.count_source}"
    st.caption(
        f"Tokens per request{counted}. Boxes span the 25th to the 75th percentile, whiskers the"
        " 5th to the 95th."
    )
    _lengths("Prompt", {item.label: item.prompt_tokens for item in classes}, summary)
    _lengths("Output", {item.label: item.output_tokens for item in classes}, summary)
    st.subheader("What the text promises")
    st.caption(
        "Prefix sharing is the share of prompt tokens that an unlimited prefix cache would serve."
        " N-gram acceptance is a replay of the recorded outputs."
    )
    if summary.overall.prefix_sharing is None and summary.overall.lookup is None:
        reasons = [summary.unmeasurable.get(name, "") for name in ("prefix_sharing", "lookup")]
        why = joined(list(dict.fromkeys(reasons)))
        st.info(f"{NOT_MEASURABLE} from this upload: {plain(why)}")
    else:
        table([_promise(item, summary) for item in classes])
        found = [item.lookup.tokens_per_step for item in classes if item.lookup is not None]
        origins = dict.fromkeys(origin_text(rate) for rate in found)
        if origins:
            st.caption(f"N-gram acceptance: {plain(joined(list(origins)))}")


def _headline(summary: TrafficSummary) -> None:
    found = summary.arrivals
    why = f"from this upload: {summary.unmeasurable.get('arrivals', 'no times')}"
    cells = st.columns(4)
    with cells[0]:
        figure("Requests", count_text(summary.requests), f"{summary.with_text:,} with text")
    with cells[1]:
        note = "distinct sessions" if summary.sessions else "the file names no sessions"
        figure("Sessions", count_text(summary.sessions) if summary.sessions else "none", note)
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


def _lengths(side: str, found: dict[str, Quantiles | None], summary: TrafficSummary) -> None:
    known = {label: item for label, item in found.items() if item is not None}
    st.markdown(f"**{side}**")
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


if __name__ == "__main__":
    run(page)
