"""Upload traffic, see what was read of it and what it says on its own."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import streamlit as st

from advisor.states import TargetState
from advisor.traffic.phrases import PRIVACY_WORDS, readings_lines
from advisor.traffic.trace import Privacy, TraceReport
from api.client import ChartView, TargetView, WorkloadView
from dashboard.app import run
from dashboard.forecast import show_forecast
from dashboard.listing import grid, newest, pick, table
from dashboard.session import act, client, readable_errors
from dashboard.traffic import show_summary
from dashboard.upload import COUNTED_WITH, NO_TARGET, upload_form
from dashboard.wording import count_text, plain, size_text, time_text

Colour: TypeAlias = Literal["blue", "violet", "gray", "orange"]
COLOURS: Mapping[Privacy, Colour] = {
    Privacy.RAW: "gray",
    Privacy.REDACTED: "blue",
    Privacy.HASHED: "violet",
    Privacy.LENGTHS: "violet",
}
CHARTS = "workload_charts"


def page() -> None:
    """Upload form, list, one workload."""
    st.title("Workloads")
    st.caption(
        "A workload is a sample of your own traffic: a log, an export or a trace of requests."
        " Nothing is started to read it, and its text stays in this service."
    )
    targets = [item for item in newest(client().targets) if item.state is TargetState.READY]
    workloads = newest(client().workloads)
    with st.expander("Upload a traffic sample", expanded=not workloads):
        upload_form(targets)
    if not workloads:
        st.info("No workload yet. Upload a sample to see what it says.")
        return
    chosen = pick("workload", workloads, lambda item: f"{item.name}, {time_text(item.created_at)}")
    _one(chosen, targets)
    with st.expander(f"All workloads ({len(workloads)})"):
        grid([_line(item) for item in workloads])


def _line(workload: WorkloadView) -> dict[str, str]:
    return {
        "name": workload.name,
        "requests": count_text(workload.requests),
        "rejected": count_text(workload.report.rejected),
        "format": workload.report.format,
        "privacy": workload.privacy.value,
        "size": size_text(workload.bytes),
        "uploaded": time_text(workload.created_at),
        "purged": time_text(workload.purged_at),
        "digest": workload.digest,
    }


def _one(workload: WorkloadView, targets: list[TargetView]) -> None:
    st.header(plain(workload.name))
    _privacy(workload)
    _report(workload.report)
    names = {NO_TARGET: "the file's own counts"} | {item.id: item.name for item in targets}
    if st.session_state.get(COUNTED_WITH) not in names:
        st.session_state[COUNTED_WITH] = NO_TARGET
    counted_with = st.selectbox(
        "Tokens counted with",
        list(names),
        key=COUNTED_WITH,
        format_func=lambda identifier: names[identifier],
        help="The first count under a target's tokenizer takes a moment; it is kept.",
    )
    with readable_errors(), st.spinner("Counting tokens"):
        summary = client().workload_summary(workload.id, counted_with or None)
        show_summary(summary, _charts(workload, counted_with))
    show_forecast(workload.id, targets)
    _removal(workload)


def _charts(workload: WorkloadView, counted_with: str) -> Mapping[str, ChartView]:
    """The pictures by their key; kept while the same figures are looked at."""
    wanted = (workload.id, counted_with, workload.purged_at)
    held = st.session_state.get(CHARTS)
    if held is None or held[0] != wanted:
        made = client().workload_charts(workload.id, counted_with or None)
        held = (wanted, {chart.key: chart for chart in made})
        st.session_state[CHARTS] = held
    found: Mapping[str, ChartView] = held[1]
    return found


def _privacy(workload: WorkloadView) -> None:
    """What is kept of the text, until when, and what cannot be concluded because of it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(workload.privacy.value, color=COLOURS[workload.privacy], icon=":material/lock:")
        if workload.purged_at is not None:
            st.badge("purged", color="orange")
        st.caption(plain(PRIVACY_WORDS[workload.privacy]))
    if workload.purged_at is not None:
        st.caption(f"Purged on {time_text(workload.purged_at)}: only the figures are left.")
    elif workload.expires_at is not None:
        st.caption(f"Kept until {time_text(workload.expires_at)}, then purged.")
    if workload.limits:
        with st.expander(f"What cannot be concluded from it ({len(workload.limits)})"):
            st.markdown("\n".join(f"- {plain(limit)}" for limit in workload.limits))


def _report(report: TraceReport) -> None:
    title = f"{report.title} ({report.format})" if report.title else report.format
    packed = f", {report.compression}" if report.compression else ""
    failed = sum(report.failed.values())
    st.caption(
        plain(f"{title}, {report.encoding}{packed}")
        + f": {report.accepted:,} of {report.rows:,} rows accepted, {report.rejected:,} rejected"
        + (f", {failed:,} failed" if failed else "")
        + (f"; times read as {plain(report.time_unit)}" if report.time_unit else "")
    )
    for warning in report.warnings:
        st.warning(plain(warning))
    if report.columns or report.readings or report.failed:
        with st.expander("How the file was read"):
            _reading(report)
    if report.rejects:
        _rejects(report)


def _reading(report: TraceReport) -> None:
    """Columns, choices that the file left open, requests that had failed."""
    table([{"our field": ours, "in the file": name} for ours, name in report.columns.items()])
    for reading in readings_lines(report):
        st.caption(plain(reading))
    if report.failed:
        table(
            [
                {"failed with": status, "requests": count_text(count)}
                for status, count in report.failed.items()
            ]
        )
        st.caption("Failed requests are no part of the figures.")


def _rejects(report: TraceReport) -> None:
    unit = report.line_unit
    with st.expander(f"Rejected {unit}s ({report.rejected:,})", expanded=report.accepted == 0):
        grid(
            [
                {unit: str(item.line), "field": item.field, "reason": item.reason}
                for item in report.rejects
            ]
        )
        if report.rejected > len(report.rejects):
            st.caption(f"The first {len(report.rejects):,} are listed.")


def _removal(workload: WorkloadView) -> None:
    """Purge and delete; what devices still hold of a purged one."""
    for sweep in workload.swept:
        when = "not yet" if sweep.at is None else time_text(sweep.at)
        st.caption(plain(f"Removed on {sweep.device} of {sweep.host}: {when}, {sweep.removed:,}."))
    with st.container(horizontal=True):
        if workload.purged_at is None:
            with st.popover("Purge"):
                st.write(
                    "Deletes the text and everything made of it: tokens, calibrated checkpoints,"
                    " engine logs, records. The figures and the studies stay."
                )
                if st.button("Purge this workload", type="primary"):
                    act(
                        lambda: client().delete_workload(workload.id, purge=True),
                        "The workload was purged.",
                    )
        with st.popover("Delete"):
            st.write("Deletes the sample and everything derived from it.")
            if st.button("Delete this workload", type="primary"):
                act(lambda: client().delete_workload(workload.id), "The workload was deleted.")


if __name__ == "__main__":
    run(page)
