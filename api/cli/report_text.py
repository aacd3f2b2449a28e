"""What reading a traffic file found, for a person."""

from collections import Counter
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape

from advisor.traffic.phrases import readings_lines
from advisor.traffic.trace import TraceReport

SHOWN_REJECTS = 10
SHOWN_WARNINGS = 12
LABEL_CHARS = 13
LONGEST_COLUMNS = 320
MORE = "--json has all"


def head(out: Console, title: str) -> None:
    """The heading of a part."""
    out.print()
    out.print(f"[bold]{escape(title)}[/bold]")


def line(out: Console, label: str, text: str) -> None:
    """A labelled line; text of the file is never markup. Long ones go on below their beginning."""
    room = max(out.width - LABEL_CHARS, 40)
    first, *rest = _wrapped(text, room)
    out.print(f"{label:<{LABEL_CHARS}}{first}", markup=False, soft_wrap=True)
    for part in rest:
        out.print(" " * LABEL_CHARS + part, markup=False, soft_wrap=True)


def _wrapped(text: str, room: int) -> list[str]:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip() if lines[-1] else word
    return lines


def print_report(out: Console, report: TraceReport) -> None:
    """Format, rows, rejects by line, columns, readings, warnings."""
    packed = "" if report.compression is None else f", {report.compression}"
    title = f"{report.title} ({report.format})" if report.title else report.format
    line(out, "format", f"{title}, {report.encoding}{packed}")
    failed = sum(report.failed.values())
    line(
        out,
        "rows",
        f"{report.rows:,}: {report.accepted:,} accepted, {report.rejected:,} rejected,"
        f" {failed:,} failed",
    )
    if failed:
        statuses = ", ".join(f"{count:,} with {status}" for status, count in report.failed.items())
        line(out, "failed", statuses)
    _print_rejects(out, report)
    if report.columns:
        line(out, "columns", _columns_text(report.columns))
    if report.time_unit:
        line(out, "time unit", f"{report.time_unit} (--time-unit overrides)")
    for reading in readings_lines(report):
        line(out, "reading", reading)
    for warning in report.warnings[:SHOWN_WARNINGS]:
        line(out, "warning", warning)
    if len(report.warnings) > SHOWN_WARNINGS:
        line(out, "", f"and {len(report.warnings) - SHOWN_WARNINGS:,} more warnings: {MORE}")


def _columns_text(columns: Mapping[str, str]) -> str:
    """Those that the file calls otherwise as our=theirs, as the option takes them."""
    renamed = [f"{ours}={theirs}" for ours, theirs in columns.items() if ours != theirs]
    same = [ours for ours, theirs in columns.items() if ours == theirs]
    text = ", ".join([*renamed, *same])
    if len(text) > LONGEST_COLUMNS:
        text = f"{text[:LONGEST_COLUMNS].rsplit(', ', 1)[0]} and more: {MORE}"
    return f"{text} (--columns our=theirs)"


def _print_rejects(out: Console, report: TraceReport) -> None:
    """The first lines, and how often each reason occurs where they are many."""
    for reject in report.rejects[:SHOWN_REJECTS]:
        where = f"{reject.field}: " if reject.field else ""
        out.print(f"  {report.line_unit} {reject.line}: {where}{reject.reason}", markup=False)
    if report.rejected <= SHOWN_REJECTS:
        return
    reasons = Counter(reject.reason for reject in report.rejects).most_common(3)
    listed = "; ".join(f"{reason} ({count:,})" for reason, count in reasons)
    rest = report.rejected - SHOWN_REJECTS
    out.print(f"  and {rest:,} more ({MORE} up to 1,000); most often: {listed}", markup=False)
