"""What the text of an upload promises, for a person: prefix reuse, drafts, classes, what fits."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from advisor.recommender.phrases import share_text, span_text
from advisor.traffic.figures import Fit, LookupAcceptance, PrefixReuse, TrafficSummary
from advisor.traffic.phrases import early_sentence, lookup_title, percent, spread_out
from advisor.units import bytes_text
from api.cli.report_text import MORE, head, line

CAPACITIES = 5
# Draft lengths and positions that a terminal has room for.
SHOWN_LENGTHS = (1, 2, 4, 8)
SHOWN_POSITIONS = 8
SHOWN_CLASSES = 10
DASH = "-"


def print_reuse(
    out: Console, summary: TrafficSummary, *, kv_bytes_per_token: int | None = None
) -> None:
    """Ceiling, hit share by size of the cache, by class, advice."""
    head(out, "Prefix reuse")
    reuse = summary.reuse
    if reuse is None:
        sharing = summary.overall.prefix_sharing
        if sharing is None:
            why = summary.unmeasurable.get("prefix_sharing", "the upload does not say")
            line(out, "unknown", summary.unmeasurable.get("reuse", why))
        else:
            line(out, "ceiling", f"{share_text(sharing.hit_share)} of the prompt tokens")
        return
    line(
        out,
        "ceiling",
        f"{share_text(reuse.ceiling)} of the prompt tokens come from an unlimited cache"
        f" (blocks of {reuse.block_size:,}, from {reuse.origin}; {reuse.ceiling.basis})",
    )
    _print_curve(out, reuse, kv_bytes_per_token)
    _print_first_difference(out, reuse)
    for advice in reuse.advice:
        line(out, "advice", advice)


def _print_curve(out: Console, reuse: PrefixReuse, kv_bytes_per_token: int | None) -> None:
    replayed = {point.capacity_blocks: point.hit_share for point in reuse.lru}
    curve = {point.capacity_blocks: point.hit_share for point in reuse.curve}
    places = sorted(
        {point.capacity_blocks for point in spread_out(reuse.curve, CAPACITIES)} | set(replayed)
    )
    if not places:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    titles = ["KV blocks", "tokens"] + (["KV cache"] if kv_bytes_per_token else [])
    for title in (*titles, "hit share", "LRU replay"):
        table.add_column(title, justify="right", no_wrap=True)
    for blocks in places:
        tokens = blocks * reuse.block_size
        size = [bytes_text(tokens * kv_bytes_per_token)] if kv_bytes_per_token else []
        table.add_row(
            f"{blocks:,}",
            f"{tokens:,}",
            *size,
            _share(curve.get(blocks)),
            _share(replayed.get(blocks)),
        )
    out.print(table)


def _share(share: float | None) -> str:
    return DASH if share is None else percent(share)


def _print_first_difference(out: Console, reuse: PrefixReuse) -> None:
    found = reuse.first_difference
    if found is not None and found.early:
        line(out, "differ early", early_sentence(found))


def print_lookups(out: Console, summary: TrafficSummary) -> None:
    """Replays of recorded outputs by draft length and lookup window."""
    head(out, "Drafts from text (replay of the recorded outputs)")
    swept = list(summary.lookup_sweep)
    if not swept and summary.overall.lookup is not None:
        swept = [summary.overall.lookup, *summary.overall.other_lookups]
    if summary.suffix is not None:
        swept.append(summary.suffix)
    if not swept:
        line(out, "unknown", summary.unmeasurable.get("lookup", "the upload does not say"))
        return
    shown = _chosen(swept, summary.overall.lookup)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("lookup", no_wrap=True)
    for title in ("tokens per step", "steps drafted"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("accepted by position", no_wrap=True)
    for item in shown:
        table.add_row(*_lookup_cells(item))
    out.print(table)
    if len(shown) < len(swept):
        out.print(f"{len(swept) - len(shown):,} more lengths and windows: {MORE}")
    line(out, "interval", shown[0].tokens_per_step.basis)


def _chosen(
    swept: Sequence[LookupAcceptance], main: LookupAcceptance | None
) -> list[LookupAcceptance]:
    """A few draft lengths at the first window, the main length at the others, the suffix."""
    first = swept[0]
    usual = first.num_speculative_tokens if main is None else main.num_speculative_tokens
    return [
        item
        for item in swept
        if item.method != first.method
        or item.num_speculative_tokens == usual
        or (_window(item) == _window(first) and item.num_speculative_tokens in SHOWN_LENGTHS)
    ]


def _window(item: LookupAcceptance) -> tuple[int, int]:
    return item.prompt_lookup_min, item.prompt_lookup_max


def _lookup_cells(item: LookupAcceptance) -> tuple[str, ...]:
    rates = [f"{rate:.2f}" for rate in item.per_position[:SHOWN_POSITIONS]]
    more = " …" if len(item.per_position) > SHOWN_POSITIONS else ""
    return (
        lookup_title(item),
        span_text(item.tokens_per_step, digits=2),
        percent(item.coverage),
        (" ".join(rates) or DASH) + more,
    )


def print_classes(out: Console, summary: TrafficSummary) -> None:
    """The classes in words, and what their text promises."""
    if not summary.request_classes:
        return
    head(out, "Classes")
    for item in summary.request_classes[:SHOWN_CLASSES]:
        found = "" if item.origin == "label" else f" ({item.origin})"
        text = f"{item.requests:,} requests ({percent(item.share)}), {item.description}"
        line(out, "", f"{item.name}{found}: {text}")
    rest = len(summary.request_classes) - SHOWN_CLASSES
    if rest > 0:
        out.print(f"and {rest:,} more classes: {MORE}")
    promised = [item for item in summary.classes if item.prefix_sharing or item.lookup]
    if not promised:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("class", overflow="fold", max_width=32)
    for title in ("prompt tokens shared", "tokens per step with drafts"):
        table.add_column(title, justify="right", no_wrap=True)
    for found_class in promised[:SHOWN_CLASSES]:
        sharing, lookup = found_class.prefix_sharing, found_class.lookup
        table.add_row(
            escape(found_class.label),
            DASH if sharing is None else share_text(sharing.hit_share),
            DASH if lookup is None else span_text(lookup.tokens_per_step, digits=2),
        )
    out.print(table)


def print_fits(out: Console, fits: Sequence[Fit]) -> None:
    """What length limits serve."""
    if not fits:
        return
    head(out, "What fits")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("max_model_len", "requests served", "of their prompt tokens", "prompt too long"):
        table.add_column(title, justify="right", no_wrap=True)
    for fit in fits:
        share = fit.prompt_tokens_fitting / fit.prompt_tokens if fit.prompt_tokens else 1.0
        table.add_row(
            f"{fit.max_model_len:,}",
            f"{fit.fitting:,} ({percent(fit.fitting / max(fit.requests, 1))})",
            percent(share),
            f"{fit.prompt_too_long:,}",
        )
    out.print(table)
    line(out, "all need", f"max_model_len {fits[0].needed_max_model_len:,}")
