"""Measurements that no study made, as rows of text: beside a recommendation and on a terminal."""

from collections.abc import Sequence

from advisor.measurement.records import LoopKind
from advisor.measurement.report import Distribution, MeasuredPoint, MeasurementReport
from api.documents.blocks import Paragraph, Section, Table
from api.measured import NOT_USED, MeasurementView

UNSAID = "-"
MEDIAN = 50.0
FIGURES = ("load", "requests", "output tok/s", "TTFT", "per token", "end to end", "usable")
ABOUT = (
    "Measured of the same target elsewhere. Shown for comparison and " + NOT_USED + ": other"
    " clients, loads and moments; times are medians, else means."
)


def outside_section(measured: Sequence[MeasurementView]) -> Section | None:
    """The measurements beneath a study's own evidence; None where there is none."""
    if not measured:
        return None
    rows = tuple(
        (tool_text(item.report), item.source.value, *figures(point), "; ".join(point.remarks))
        for item in measured
        for point in item.report.points
    )
    table = Table(columns=("measured by", "evidence", *FIGURES, "remarks"), rows=rows)
    return Section(title="Measured elsewhere", blocks=(Paragraph(text=ABOUT), table))


def tool_text(report: MeasurementReport) -> str:
    """The tool and its version, and what it measured, as far as it says."""
    made = " ".join(part for part in (report.tool, report.tool_version) if part)
    served = ", ".join(part for part in (report.model, report.engine) if part)
    return f"{made}: {served}" if served else made


def figures(point: MeasuredPoint) -> tuple[str, ...]:
    """One load as cells under `FIGURES`."""
    return (
        load_text(point),
        f"{point.requests:,}",
        UNSAID if point.output_tokens_per_s is None else f"{point.output_tokens_per_s:,.1f}",
        _time_text(point.ttft_s),
        _time_text(point.tpot_s),
        _time_text(point.e2e_s),
        "yes" if point.usable else "no",
    )


def load_text(point: MeasuredPoint) -> str:
    """How the load was submitted."""
    match point.kind:
        case LoopKind.CLOSED if point.concurrency is not None:
            return f"{point.concurrency:g} in flight"
        case LoopKind.OPEN if point.rate_per_s is not None:
            return f"{point.rate_per_s:g} requests/s"
        case LoopKind.CLOSED:
            return "closed loop"
        case LoopKind.OPEN:
            return "open loop"
        case _:
            return "not said"


def _time_text(of: Distribution | None) -> str:
    """The median in ms, else the mean; no tail, for which few tools saw enough requests."""
    if of is None:
        return UNSAID
    median = of.percentiles.get(MEDIAN)
    if median is not None:
        return f"{1e3 * median:,.1f} ms"
    return UNSAID if of.mean is None else f"mean {1e3 * of.mean:,.1f} ms"
