"""A measurement for a person: a table by level, what was found, what the figures rest on."""

import math
import re
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from advisor.measurement.capacity import Capacity
from advisor.measurement.memory import MemoryBreakdown
from advisor.measurement.records import ClientHealth, LoadPoint, LoopKind
from advisor.measurement.report import MeasurementReport
from advisor.measurement.rounds import Figure, Level, level_figures
from advisor.measurement.saturation import Saturation
from advisor.measurement.step_plan import RunKind
from advisor.measurement.steps import StepTable
from advisor.units import GIB
from api.cli.report_text import head, line

MS = 1e3
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_TIMES = (
    ("time to first token", "ttft_s"),
    ("time per output token", "tpot_s"),
    ("whole request", "e2e_s"),
)


def print_measured(out: Console, report: MeasurementReport) -> None:
    """Everything that was measured, in the order in which it is asked for."""
    _print_head(out, report)
    if not report.loads:
        return
    levels = level_figures(report.loads, report.rank.source)
    kind = LoopKind.CLOSED if report.loads[0].open_loop is None else LoopKind.OPEN
    _print_rates(out, levels, kind)
    _print_times(out, levels, kind)
    _print_found(out, report, kind)
    _print_flaws(out, levels, kind)
    head(out, "How it was measured")
    for text in _how(report):
        line(out, "", text)


def _print_head(out: Console, report: MeasurementReport) -> None:
    engine = "an engine that is not known" if report.engine is None else report.engine
    head(out, f"{report.model} on {engine}")
    many = len(report.loads)
    seconds = sum(load.duration_s for load in report.loads)
    ended = "" if report.complete else ", not complete"
    line(
        out,
        "",
        f"{report.rank.source.value}: {_many(many, 'load')}, {seconds:.0f} s under load{ended}",
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def level_text(level: float, kind: LoopKind) -> str:
    """The load as people call it."""
    return f"{level:.0f}" if kind is LoopKind.CLOSED else f"{level:.3g}/s"


def _unit(kind: LoopKind) -> str:
    return "in flight" if kind is LoopKind.CLOSED else "rate"


def _print_rates(out: Console, levels: Sequence[Level], kind: LoopKind) -> None:
    table = Table(box=None, pad_edge=False)
    for title in (_unit(kind), "loads", "output tokens/s", "requests/s"):
        table.add_column(title, overflow="fold")
    for level in levels:
        table.add_row(
            level_text(level.level, kind),
            _loads_text(level),
            figure_text(level.figures.get("output_tokens_per_s")),
            figure_text(level.figures.get("requests_per_s")),
        )
    out.print()
    out.print(table)


def _print_times(out: Console, levels: Sequence[Level], kind: LoopKind) -> None:
    """Medians and 95th percentiles in milliseconds, a table for each time."""
    for title, name in _TIMES:
        table = Table(box=None, pad_edge=False)
        for column in (_unit(kind), f"{title}, median in ms", "95th percentile"):
            table.add_column(column, overflow="fold")
        for level in levels:
            cells = [
                figure_text(level.figures.get(f"{name} {place}"), scale=MS)
                for place in ("p50", "p95")
            ]
            table.add_row(level_text(level.level, kind), *cells)
        out.print()
        out.print(table)


def _loads_text(level: Level) -> str:
    if level.usable == level.loads:
        return str(level.loads)
    return f"{level.usable} of {level.loads} usable"


def figure_text(figure: Figure | None, *, scale: float = 1.0) -> str:
    """``42.1 (41.0 to 43.2)``; without an interval only the value; a dash for what is not known."""
    if figure is None:
        return "-"
    value = number(figure.value * scale)
    interval = figure.interval
    if interval is None:
        return value
    return f"{value} ({number(interval.low * scale)} to {number(interval.high * scale)})"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def _print_found(out: Console, report: MeasurementReport, kind: LoopKind) -> None:
    found = report.findings
    if found is None:
        return
    texts = []
    if not any(load.usable for load in report.loads):
        texts.append("No load counts: the figures above are of loads that were disturbed or late.")
    texts += [*_capacity_lines(found.capacity, kind), *_saturation_lines(found.saturation)]
    if found.onset is not None:
        texts.append(f"{found.onset.text[:1].upper()}{found.onset.text[1:]}.")
    texts += [*_acceptance_lines(report.loads), *_memory_lines(found.memory)]
    texts += _step_lines(found.steps)
    if found.start_s is not None:
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.start_phases)
        texts.append(f"The engine was ready after {found.start_s:.1f} s ({phases or 'no phases'}).")
    if texts:
        head(out, "Found")
    for text in texts:
        line(out, "", text)


def _capacity_lines(capacity: Capacity | None, kind: LoopKind) -> Iterator[str]:
    if capacity is None:
        return
    what = "requests in flight" if kind is LoopKind.CLOSED else "requests per second"
    if capacity.load is None:
        yield f"No load was shown to keep the limits: {capacity.reason}."
    elif capacity.fails_at is None:
        yield f"The limits are kept at {capacity.load:g} {what} or more: {capacity.reason}."
    else:
        yield (
            f"The limits are kept up to {capacity.load:g} {what}; at {capacity.fails_at:g} they are"
            f" not: {capacity.reason}."
        )
    if capacity.undecided:
        loads = ", ".join(f"{load:g}" for load in capacity.undecided)
        yield f"Not decided: {loads}."


def _saturation_lines(saturation: Saturation | None) -> Iterator[str]:
    if saturation is None:
        return
    knee, plateau = saturation.concurrency, saturation.plateau_tokens_per_s
    where = f"{knee.value:.0f} ({knee.low:.0f} to {knee.high:.0f}) in flight"
    if saturation.saturated:
        yield (
            f"Throughput stops rising at about {where}, at {number(plateau.value)}"
            f" ({number(plateau.low)} to {number(plateau.high)}) tokens/s: {saturation.reason}."
        )
    else:
        yield f"Throughput still rises at the highest load: {saturation.reason}."


def _acceptance_lines(loads: Sequence[LoadPoint]) -> Iterator[str]:
    """Of the last load that drafted; tokens per step count steps without a draft too."""
    drafted = [load for load in loads if load.acceptance and load.acceptance.per_position]
    if not drafted or drafted[-1].acceptance is None:
        return
    figures = drafted[-1].acceptance
    shares = ", ".join(f"{at.value:.2f}" for at in figures.per_position or ())
    per_step = figures.tokens_per_step
    known = "" if per_step is None else f", {per_step:.2f} tokens a step"
    yield f"Drafts accepted up to each position: {shares}{known}."


def _step_lines(steps: StepTable | None) -> Iterator[str]:
    if steps is None:
        return
    for cell in steps.cells:
        time = cell.seconds
        took = f"{number(time.value * MS)} ms ({number(time.low * MS)} to {number(time.high * MS)})"
        context = f"{cell.context_tokens:.0f} tokens of context each"
        if cell.kind is RunKind.PREFILL:
            yield f"Prompts, {cell.batch} at once with {context}: {took} in all."
        else:
            drafts = f", {cell.draft_tokens} drafted" if cell.draft_tokens else ""
            yield f"A step of {_many(cell.batch, 'request')} with {context}{drafts}: {took}."
    for cost in steps.verification:
        ratio = cost.ratio
        yield (
            f"Verifying {cost.draft_tokens} drafted tokens at {cost.batch} requests takes"
            f" {ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) plain steps."
        )


def _memory_lines(memory: MemoryBreakdown | None) -> Iterator[str]:
    if memory is None:
        return
    parts = (
        ("weights", memory.weight_bytes),
        ("KV cache", memory.kv_cache_bytes),
        ("activations", memory.activation_bytes),
        ("graphs", memory.graph_bytes),
        ("left free", memory.headroom_bytes),
    )
    said = [f"{name} {size / GIB:.2f} GiB" for name, size in parts if size is not None]
    if memory.kv_peak_share is not None:
        said.append(f"{memory.kv_peak_share:.0%} of the cache in use at the peak")
    if said:
        yield f"Memory: {', '.join(said)}."


def _print_flaws(out: Console, levels: Sequence[Level], kind: LoopKind) -> None:
    flawed = [level for level in levels if level.flaws]
    if flawed:
        head(out, "Said of single loads")
    for level in flawed:
        line(out, level_text(level.level, kind), "; ".join(grouped(level.flaws)))


def grouped(flaws: Sequence[str]) -> Iterator[str]:
    """Flaws that differ in their numbers only are said once, with how often."""
    kinds: dict[str, list[str]] = {}
    for flaw in flaws:
        kinds.setdefault(_NUMBER.sub("", flaw), []).append(flaw)
    for members in kinds.values():
        again = "" if len(members) == 1 else f" (and alike in {len(members) - 1} more)"
        yield members[0] + again


def _how(report: MeasurementReport) -> Iterator[str]:
    """What the figures rest on, one sentence a line."""
    yield (
        "Times count from when a request should have been sent. Intervals are nominal 95 % ones,"
        " over the repeats of a level, else within its one load; where too few requests were seen"
        " there is none."
    )
    health = [load.client for load in report.loads if load.client is not None]
    if health:
        yield _client_text(health)
    skipped = max((load.not_fitting for load in report.loads), default=0)
    if skipped:
        yield f"{skipped} requests of the workload do not fit and were not sent."
    yield from (sentence(remark) for remark in report.remarks)
    yield from _cache_lines(report.loads)


def _client_text(health: Sequence[ClientHealth]) -> str:
    late_s = max(one.send_delay_p99_s for one in health)
    busy = max(one.cpu_share for one in health)
    limited = sum(one.limited for one in health)
    said = "it set no figures" if not limited else f"it may have set those of {limited} loads"
    return (
        f"The load client used up to {busy:.0%} of a core and sent {late_s * MS:.1f} ms late"
        f" (99th percentile): {said}."
    )


def _cache_lines(loads: Sequence[LoadPoint]) -> Iterator[str]:
    shares = [load.prefix_hit_share for load in loads if load.prefix_hit_share is not None]
    if shares:
        yield f"Prefix cache: {min(shares):.0%} to {max(shares):.0%} of prompt tokens were hits."


def sentence(remark: str) -> str:
    """The remark as one."""
    return f"{remark[:1].upper()}{remark[1:]}."
