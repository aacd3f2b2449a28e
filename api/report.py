"""A recommendation for a terminal: ranking, verdicts, load, confirmation, quality, memory."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from advisor.estimate import Estimate
from advisor.recommender import phrases
from advisor.recommender.recommendation import Recommendation, Verdict
from advisor.units import bytes_text, percent_text


def print_recommendation(body: Recommendation, out: Console) -> None:
    """The whole bundle for a person."""
    out.print(ranking_table(body))
    out.print(verdict_table(body))
    for line in lines(body):
        out.print(line, markup=False)


def interval_text(estimate: Estimate) -> str:
    """Value and interval with one decimal."""
    return f"{estimate.value:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]"


def gain_text(estimate: Estimate | None) -> str:
    """A ratio as a change in percent with its interval; empty where there is none."""
    if estimate is None:
        return ""
    low, high = percent_text(estimate.low), percent_text(estimate.high)
    return f"{percent_text(estimate.value)} [{low}, {high}]"


def ranking_table(body: Recommendation) -> Table:
    """Configurations, the recommended one first, at the goal's load."""
    table = Table(title=f"Ranking at {body.goal.concurrency} requests in flight")
    for title in ("#", "configuration", "tokens/s", "against the baseline", "source", "hash"):
        table.add_column(title)
    for item in body.ranked:
        note = "" if item.why_not is None else f" ({item.why_not})"
        table.add_row(
            str(item.rank),
            item.title + note,
            interval_text(item.throughput_tokens_per_s),
            gain_text(item.gain),
            item.throughput_tokens_per_s.source.value,
            item.config_hash[:12],
        )
    return table


def verdict_table(body: Recommendation) -> Table:
    """Every technique at every load: forecast beside measurement, or why there is none."""
    table = Table(title="Verdicts")
    for title in ("technique", "in flight", "verdict", "predicted", "measured"):
        table.add_column(title)
    for verdict in body.verdicts:
        for effect in verdict.effects:
            table.add_row(
                verdict.title,
                str(effect.concurrency),
                effect.kind.value,
                gain_text(effect.predicted),
                gain_text(effect.measured) or effect.reason,
            )
    return table


def lines(body: Recommendation) -> Iterator[str]:
    """A sentence per technique, then load, confirmation, quality, memory, noise, warnings."""
    for verdict in body.verdicts:
        yield f"{verdict.kind.value}: {verdict.sentence}"
        yield from acceptance_lines(verdict)
    yield from phrases.findings(body)
    yield memory_line(body)
    noise = body.noise
    yield f"noise floor: {noise.relative_sd.value:.1%} of a figure ({noise.basis})"
    yield f"measured on: {body.machine}"
    for note in body.baseline_notes:
        yield f"baseline: {note}"
    for warning in body.warnings:
        yield f"warning: {warning}"


def acceptance_lines(verdict: Verdict) -> Iterator[str]:
    """Acceptance by draft position, per group of requests that it was measured on."""
    for label, figures in verdict.acceptance.items():
        if figures.per_position is None:
            yield f"  accepted by position ({label}): none, {figures.reason}"
            continue
        shares = ", ".join(
            f"{item.value:.2f} [{item.low:.2f}, {item.high:.2f}]" for item in figures.per_position
        )
        per_step = figures.tokens_per_step
        tail = "" if per_step is None else f"; {per_step:.2f} tokens per step"
        yield f"  accepted by position ({label}): {shares}{tail}"


def memory_line(body: Recommendation) -> str:
    """Where memory goes; what the engine did not say is left out."""
    memory = body.memory
    known = {
        "weights": memory.weight_bytes,
        "KV cache": memory.kv_cache_bytes,
        "headroom": memory.headroom_bytes,
    }
    parts = [f"{name} {bytes_text(size)}" for name, size in known.items() if size is not None]
    if memory.kv_cache_tokens is not None:
        parts.append(f"room for {memory.kv_cache_tokens:,} tokens")
    if memory.kv_peak_usage is not None:
        parts.append(f"of the KV cache {memory.kv_peak_usage:.1%} in use at the peak")
    if memory.kv_free_tokens_at_peak is not None:
        parts.append(f"{memory.kv_free_tokens_at_peak:,} tokens free then")
    return "memory: " + ", ".join(parts)
