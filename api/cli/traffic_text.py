"""What an upload says, for a person at a terminal of 100 columns: lengths, arrivals, mix."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from advisor.traffic.figures import (
    Arrivals,
    ClassSummary,
    Concurrency,
    Counts,
    JointLengths,
    Quantiles,
    Sessions,
    TrafficProfile,
    TrafficSummary,
)
from advisor.traffic.phrases import (
    coarse,
    duplicates_sentence,
    fano_parts,
    mix_parts,
    percent,
    window_text,
)
from advisor.units import seconds_text
from api.cli.promise_text import print_classes, print_fits, print_lookups, print_reuse
from api.cli.report_text import MORE, head, line

SHOWN_CLASSES = 12
JOINT_BINS = 8
TICKS = "▁▂▃▄▅▆▇█"
SPARK_CHARS = 60
SHOWN_PEAKS = 4
DASH = "-"
HALF_PERCENT = 0.005
# Figures whose own part says why they are missing.
SAID_ABOVE = ("arrivals", "prefix_sharing", "lookup")


def print_summary(
    out: Console, summary: TrafficSummary, *, kv_bytes_per_token: int | None = None
) -> None:
    """Every part of the summary; with the size of a token's keys and values caches get one too."""
    text = f"{summary.requests:,} requests, {summary.with_text:,} with text"
    head(out, text + (f", {summary.sessions:,} sessions" if summary.sessions else ""))
    for warning in summary.warnings:
        line(out, "warning", warning)
    _print_lengths(out, summary)
    _print_arrivals(out, summary)
    profile = summary.profile
    if profile is not None:
        _print_mix(out, profile)
    print_classes(out, summary)
    print_reuse(out, summary, kv_bytes_per_token=kv_bytes_per_token)
    print_lookups(out, summary)
    print_fits(out, summary.fits)
    _print_unknown(out, summary.unmeasurable)


def plain_table(*titles: str, left: int = 1) -> Table:
    """A table without lines; the first `left` columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, title in enumerate(titles):
        if place < left:
            table.add_column(title, overflow="fold", max_width=32)
        else:
            table.add_column(title, justify="right", no_wrap=True)
    return table


def _print_lengths(out: Console, summary: TrafficSummary) -> None:
    head(out, "Lengths in tokens")
    profile = summary.profile
    if profile is not None:
        line(out, "prompts", _counts_text(profile.prompt_counts))
        line(out, "outputs", _counts_text(profile.output_counts))
    table = plain_table(
        "class", "requests", *("prompt p50", "p95", "max", "output p50", "p95", "max")
    )
    shown = summary.classes[:SHOWN_CLASSES] if len(summary.classes) > 1 else ()
    for item in (summary.overall, *shown):
        table.add_row(*_class_cells(item))
    out.print(table)
    if len(summary.classes) > SHOWN_CLASSES:
        out.print(f"and {len(summary.classes) - SHOWN_CLASSES:,} more classes: {MORE}")
    if profile is not None and profile.context_tokens is not None:
        line(out, "context", _spread_text(profile.context_tokens, "prompt and output together"))
    if profile is not None and profile.joint_lengths is not None:
        _print_joint(out, profile.joint_lengths)


def _counts_text(counts: Counts) -> str:
    return (
        f"{counts.reported:,} counts reported by the file, {counts.estimated:,} by the tokenizer,"
        f" {counts.missing:,} missing"
    )


def _class_cells(item: ClassSummary) -> tuple[str, ...]:
    return (
        escape(item.label),
        f"{item.requests:,}",
        *_steps(item.prompt_tokens),
        *_steps(item.output_tokens),
    )


def _steps(found: Quantiles | None) -> tuple[str, str, str]:
    if found is None:
        return DASH, DASH, DASH
    return f"{found.p50:,.0f}", f"{found.p95:,.0f}", f"{found.max:,.0f}"


def _spread_text(found: Quantiles, what: str) -> str:
    return (
        f"{what}: median {found.p50:,.0f}, p95 {found.p95:,.0f}, longest {found.max:,.0f}"
        f" ({found.count:,} known)"
    )


def _print_joint(out: Console, joint: JointLengths) -> None:
    """Shares of requests by prompt (down) and output (across) in a few bins."""
    small = coarse(joint, JOINT_BINS)
    total = sum(sum(row) for row in small.counts)
    if not total:
        return
    tail = "" if joint.correlation is None else f"; rank correlation {joint.correlation:+.2f}"
    out.print(f"[dim]% of requests by prompt (down) and output (across){tail}[/dim]")
    table = plain_table("from", *(f"{edge:,.0f}" for edge in small.output_edges[:-1]), left=0)
    for edge, row in zip(small.prompt_edges, small.counts, strict=False):
        table.add_row(f"{edge:,.0f}", *(_percent(count / total) for count in row))
    out.print(table)


def _percent(share: float) -> str:
    if share == 0:
        return "."
    return "<1" if share < HALF_PERCENT else f"{share * 100:.0f}"


def _print_arrivals(out: Console, summary: TrafficSummary) -> None:
    head(out, "Arrivals")
    if summary.arrivals is None:
        line(out, "unknown", summary.unmeasurable.get("arrivals", "the file holds no times"))
    else:
        _print_rate(out, summary.arrivals)
    profile = summary.profile
    if profile is None:
        return
    _print_bursts(out, profile)
    if profile.concurrency is not None:
        _print_concurrency(out, profile.concurrency)
    if profile.sessions is not None:
        _print_sessions(out, profile.sessions)


def _print_rate(out: Console, found: Arrivals) -> None:
    line(
        out,
        "rate",
        f"{found.rate_per_s:.3g} per s over {seconds_text(found.span_s)}; busiest of 60 windows"
        f" {found.burstiness_ratio:.3g} times the mean ({found.peak_rate_per_s:.3g} per s)",
    )
    if found.interarrival_cv is not None:
        line(out, "gaps", f"variation {found.interarrival_cv:.2f} (1 is Poisson, more is bursts)")
    if found.peak_simultaneous > 1:
        line(out, "together", f"up to {found.peak_simultaneous:,} at the same moment")


def _print_bursts(out: Console, profile: TrafficProfile) -> None:
    if profile.burstiness is not None:
        parts = [f"{fano:.3g} in {window_text(at)}" for at, fano in fano_parts(profile.burstiness)]
        if parts:
            line(out, "Fano factor", f"{', '.join(parts)} (1 is Poisson)")
    if profile.rate is not None:
        window = window_text(profile.rate.window_s * _folded(profile.rate.values))
        line(out, "over time", f"{sparkline(profile.rate.values)}  {window} each")
    for place, peak in enumerate(profile.peaks[:SHOWN_PEAKS]):
        line(
            out,
            "" if place else "peaks",
            f"{peak.requests:,} requests in {window_text(peak.window_s)} from"
            f" {seconds_text(peak.start_s)} ({peak.rate_per_s:.3g} per s)",
        )
    if profile.diurnal is not None:
        line(out, "by hour", f"{sparkline(profile.diurnal)}  from 0 to 23 h UTC")


def _print_concurrency(out: Console, found: Concurrency) -> None:
    line(
        out,
        "in flight",
        f"mean {found.mean:.3g}, p95 {found.p95:.3g}, peak {found.peak:,}"
        f" ({found.known:,} requests with a duration)",
    )
    line(out, "", sparkline(found.timeline.values))


def _print_sessions(out: Console, found: Sessions) -> None:
    turns = found.turns
    text = (
        f"{found.sessions:,} over {found.requests:,} requests; turns: median {turns.p50:.3g}, p95"
        f" {turns.p95:.3g}, most {turns.max:.0f}"
    )
    if found.think_s is not None:
        text += f"; between turns: median {seconds_text(found.think_s.p50)}"
    line(out, "sessions", text)


def sparkline(values: Sequence[float], width: int = SPARK_CHARS) -> str:
    """One character per value, folded to the mean of neighbours where they are too many."""
    fold = _folded(values, width)
    parts = [values[start : start + fold] for start in range(0, len(values), fold)]
    means = [sum(part) / len(part) for part in parts]
    top = max(means, default=0.0)
    if top <= 0:
        return TICKS[0] * len(means)
    return "".join(TICKS[min(int(mean / top * len(TICKS)), len(TICKS) - 1)] for mean in means)


def _folded(values: Sequence[float], width: int = SPARK_CHARS) -> int:
    return max(1, -(-len(values) // width))


def _print_mix(out: Console, profile: TrafficProfile) -> None:
    head(out, "Mix")
    groups: dict[str, list[str]] = {}
    absent: dict[str, None] = {}
    for part in mix_parts(profile.mix):
        if not part.requests:
            absent[part.name] = None
        else:
            groups.setdefault(part.kind, []).append(
                f"{part.name}: {part.requests:,} ({percent(part.share)})"
            )
    for kind, parts in groups.items():
        line(out, kind, ", ".join(parts))
    heat = profile.mix.temperature
    if heat is not None and profile.mix.sampled:
        line(out, "temperature", f"median {heat.p50:.2g}, p5 {heat.p5:.2g}, p95 {heat.p95:.2g}")
    if absent:
        line(out, "none", ", ".join(absent))
    if profile.duplicates is not None:
        line(out, "duplicates", duplicates_sentence(profile.duplicates))


def _print_unknown(out: Console, unmeasurable: Mapping[str, str]) -> None:
    """One line per reason, for many figures lack the same thing; parts say their own."""
    by_reason: dict[str, list[str]] = {}
    for what, why in unmeasurable.items():
        if what not in SAID_ABOVE:
            by_reason.setdefault(why, []).append(what.replace("_", " "))
    if by_reason:
        head(out, "Not measurable from this file")
    for why, names in by_reason.items():
        line(out, "unknown", f"{', '.join(names)}: {why}")
