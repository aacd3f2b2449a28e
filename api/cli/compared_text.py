"""A comparison for a person: what B is against A, level by level, and what that rests on."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from advisor.measurement.comparison import THROUGHPUT, ComparedSide, ComparisonReport
from advisor.measurement.protocol.pairs import Comparison
from advisor.measurement.records import LoopKind
from advisor.units import percent_text
from api.cli.measured_text import grouped, level_text, sentence
from api.cli.report_text import head, line

_TITLES = {
    THROUGHPUT: "output tokens/s",
    "ttft_s p50": "time to first token, median",
    "tpot_s p50": "time per output token, median",
    "e2e_s p50": "whole request, median",
}


def print_compared(out: Console, report: ComparisonReport) -> None:
    """Sides, verdicts with intervals, what was said of single loads, how it was measured."""
    head(out, "B against A")
    line(out, "A", _side(report.a))
    line(out, "B", _side(report.b))
    _print_levels(out, report)
    head(out, "How it was measured")
    for text in _how(report):
        line(out, "", text)


def _print_levels(out: Console, report: ComparisonReport) -> None:
    kind = _kind(report)
    table = Table(box=None, pad_edge=False)
    for title in ("load", "figure", "B is", "better by", "could show", "pairs"):
        table.add_column(title, overflow="fold")
    for level in report.levels:
        for name, found in level.figures.items():
            table.add_row(
                level_text(level.level, kind),
                _TITLES[name],
                found.change.value,
                _gain(found),
                percent_text(1 + found.detectable),
                f"{found.pairs} of {level.made}",
            )
    out.print()
    out.print(table)
    for level in report.levels:
        if not level.figures:
            said = f"{level.pairs} of {level.made} pairs count, two are needed for a comparison"
            line(out, level_text(level.level, kind), said)
    flawed = [level for level in report.levels if level.flaws]
    if flawed:
        head(out, "Said of single loads")
    for level in flawed:
        line(out, level_text(level.level, kind), "; ".join(grouped(level.flaws)))


def _side(side: ComparedSide) -> str:
    return f"{side.model} on {side.engine or 'an engine that is not known'}, {side.title}"


def _kind(report: ComparisonReport) -> LoopKind:
    closed = not report.loads or report.loads[0].point.open_loop is None
    return LoopKind.CLOSED if closed else LoopKind.OPEN


def _gain(found: Comparison) -> str:
    gain = found.gain
    return f"{percent_text(gain.value)} ({percent_text(gain.low)} to {percent_text(gain.high)})"


def _how(report: ComparisonReport) -> Iterator[str]:
    yield (
        f"Every number is {report.rank.source.value}. Better by: more tokens or less time; the"
        " interval is a nominal 95 % one over the pairs. Helps and hurts clear 1.5 %, and are told"
        " only as far as all figures looked at together allow (Holm); neutral is within 5 %."
    )
    yield "Could show: the smallest change that so many pairs show nine times in ten."
    if not report.complete:
        yield "Not all pairs were made."
    yield from (sentence(remark) for remark in report.remarks)
