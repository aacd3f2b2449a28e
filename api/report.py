"""A recommendation for people: the ranked table and one sentence per technique."""

from rich.console import Console
from rich.table import Table

from advisor.recommender.recommendation import RankedConfig, Recommendation, Verdict


def print_recommendation(body: Recommendation, out: Console) -> None:
    """The ranked table and one sentence per technique."""
    table = Table(title=f"ranked at {body.goal.concurrency} requests in flight")
    for title in ("#", "configuration", "tokens/s", "gain", "feasible", "hash"):
        table.add_column(title)
    for item in body.ranked:
        table.add_row(*_ranked_line(item))
    out.print(table)
    for verdict in body.verdicts:
        out.print(_verdict_line(verdict), markup=False)
    for warning in body.warnings:
        out.print(f"warning: {warning}", markup=False)


def _ranked_line(item: RankedConfig) -> tuple[str, ...]:
    rate, gain = item.throughput_tokens_per_s, item.gain
    return (
        str(item.rank),
        item.title,
        f"{rate.value:.1f} [{rate.low:.1f}, {rate.high:.1f}]",
        f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]",
        "yes" if item.feasible else item.why_not or "no",
        item.config_hash[:12],
    )


def _verdict_line(verdict: Verdict) -> str:
    return f"{verdict.title}: {verdict.kind.value}. {verdict.sentence}"
