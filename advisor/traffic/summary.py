"""What an upload alone says, before anything is started: `summarise`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.traffic.arrivals import arrivals
from advisor.traffic.gangs import static_speedup
from advisor.traffic.lengths import (
    Counts,
    count_source,
    output_counts,
    prompt_counts,
    quantiles,
)
from advisor.traffic.lookup import LOOKUP_MAX, LOOKUP_MIN, Replay, acceptance, replay
from advisor.traffic.prefix import cached_tokens, share_of
from advisor.traffic.trace import (
    ClassSummary,
    LookupAcceptance,
    PrefixSharing,
    Quantiles,
    Request,
    TokenColumns,
    TrafficSummary,
)

ALL = "all"
UNLABELLED = "unlabelled"
# Reported and own count differ this much only when they do not count the same thing.
_DISAGREEMENT = 2.0
# Static batches that the bound on continuous batching is stated for.
STATIC_BATCH = 4


@dataclass(frozen=True, slots=True)
class _Figures:
    """Per request, in order: counts, prefix hits and replay; None where not known."""

    requests: Sequence[Request]
    prompt_tokens: Counts
    output_tokens: Counts
    hits: Counts
    replays: Mapping[int, list[Replay | None]]  # by draft length, the main one first
    block_size: int


def summarise(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    *,
    block_size: int,
    lookup_tokens: int = 4,
    other_lookups: Sequence[int] = (),
) -> TrafficSummary:
    """Lengths, arrivals, prefix sharing and n-gram acceptance, over all and per class.

    `tokens` belong to the requests one by one; without them what needs text is None.
    `block_size` is the engine's KV block in tokens, `lookup_tokens` the draft length replayed,
    `other_lookups` further ones.
    Every figure that the upload cannot give is named with its reason in `unmeasurable`.
    """
    if tokens is not None and len(tokens.prompts) != len(requests):
        raise InvalidInput("tokens", "not the token columns of these requests")
    requests, tokens = _canonical(requests, tokens)
    figures = _figures(requests, tokens, block_size, (lookup_tokens, *other_lookups))
    overall = _class_summary(ALL, figures, range(len(requests)))
    found = arrivals([item.arrival_s for item in requests if item.arrival_s is not None])
    return TrafficSummary(
        requests=len(requests),
        with_text=sum(request.has_text for request in requests),
        sessions=len({request.session for request in requests if request.session is not None}),
        count_source=count_source(figures.prompt_tokens, tokens),
        overall=overall,
        classes=tuple(
            _class_summary(label, figures, members) for label, members in _groups(requests).items()
        ),
        arrivals=found,
        unmeasurable=_unmeasurable(requests, tokens, overall, has_arrivals=found is not None),
        warnings=_disagreements(requests, tokens),
        **_totals(figures),
    )


class _Totals(TypedDict):
    """Fields of the summary that are about requests as a whole."""

    total_tokens: Quantiles | None
    paged_share: float | None
    block_size: int
    static_speedup: Estimate | None


def _totals(figures: _Figures) -> _Totals:
    totals = [
        None if prompt is None or output is None else prompt + output
        for prompt, output in zip(figures.prompt_tokens, figures.output_tokens, strict=True)
    ]
    known = [total for total in totals if total]
    size = figures.block_size
    return _Totals(
        total_tokens=quantiles(totals),
        # Only the last block of a request is partly empty (handbook 2.4).
        paged_share=(
            sum(known) / sum(math.ceil(total / size) * size for total in known) if known else None
        ),
        block_size=size,
        static_speedup=static_speedup(
            [length for length in figures.output_tokens if length is not None], STATIC_BATCH
        ),
    )


def _canonical(
    requests: Sequence[Request], tokens: TokenColumns | None
) -> tuple[Sequence[Request], TokenColumns | None]:
    """Order of arrival, where rows of one time come in an order of their own content.

    So the order in which a log wrote simultaneous requests changes nothing.
    """

    def key(place: int) -> tuple[float, tuple[int, ...], tuple[int, ...], int, int, int]:
        request = requests[place]
        if request.arrival_s is None:
            return (math.inf, (), (), place, 0, 0)
        prompt = (tokens.prompts[place] if tokens else None) or ()
        output = (tokens.outputs[place] if tokens else None) or ()
        counts = (request.prompt_tokens or -1, request.output_tokens or -1)
        return (request.arrival_s, prompt, output, 0, *counts)

    order = sorted(range(len(requests)), key=key)
    ordered = [requests[place] for place in order]
    if tokens is None:
        return ordered, None
    columns = replace(
        tokens,
        prompts=tuple(tokens.prompts[place] for place in order),
        outputs=tuple(tokens.outputs[place] for place in order),
    )
    return ordered, columns


def _figures(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    block_size: int,
    draft_lengths: Sequence[int],
) -> _Figures:
    prompts = [None] * len(requests) if tokens is None else list(tokens.prompts)
    outputs = [None] * len(requests) if tokens is None else list(tokens.outputs)
    known = iter(cached_tokens([ids for ids in prompts if ids is not None], block_size))
    return _Figures(
        requests=requests,
        prompt_tokens=prompt_counts(requests, tokens),
        output_tokens=output_counts(requests, tokens),
        hits=[None if ids is None else next(known) for ids in prompts],
        replays={
            k: [
                None if prompt is None or output is None else replay(prompt, output, k=k)
                for prompt, output in zip(prompts, outputs, strict=True)
            ]
            for k in draft_lengths
        },
        block_size=block_size,
    )


def _groups(requests: Sequence[Request]) -> Mapping[str, list[int]]:
    """Indexes per class, sorted by label; empty when the file names no classes."""
    groups: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(request.label or UNLABELLED, []).append(place)
    if set(groups) == {UNLABELLED}:
        return {}
    return dict(sorted(groups.items()))


def _class_summary(label: str, figures: _Figures, members: Sequence[int]) -> ClassSummary:
    lookup, *others = (_lookup(figures, members, k) for k in figures.replays)
    return ClassSummary(
        label=label,
        requests=len(members),
        prompt_tokens=quantiles([figures.prompt_tokens[place] for place in members]),
        output_tokens=quantiles([figures.output_tokens[place] for place in members]),
        prefix_sharing=_sharing(figures, members),
        lookup=lookup,
        other_lookups=tuple(other for other in others if other is not None),
    )


def _sharing(figures: _Figures, members: Sequence[int]) -> PrefixSharing | None:
    hits = []
    lengths = []
    for place in members:
        hit, length = figures.hits[place], figures.prompt_tokens[place]
        if hit is not None and length is not None:
            hits.append(hit)
            lengths.append(length)
    return share_of(hits, lengths, figures.block_size)


def _lookup(figures: _Figures, members: Sequence[int], k: int) -> LookupAcceptance | None:
    replays = [
        (figures.requests[place], found)
        for place in members
        if (found := figures.replays[k][place]) is not None
    ]
    greedy = sum(request.temperature == 0 for request, _ in replays)
    sampled = sum(bool(request.temperature) for request, _ in replays)
    basis = (
        f"replay of {len(replays)} recorded outputs, k={k}, n-grams of {LOOKUP_MIN} to"
        f" {LOOKUP_MAX} tokens, bootstrap by request; temperature 0 for {greedy}, above 0 for"
        f" {sampled}, not recorded for {len(replays) - greedy - sampled}; exact for the model that"
        " wrote the outputs at temperature 0"
    )
    return acceptance([found for _, found in replays], k=k, basis=basis)


def _unmeasurable(
    requests: Sequence[Request],
    tokens: TokenColumns | None,
    overall: ClassSummary,
    *,
    has_arrivals: bool,
) -> Mapping[str, str]:
    reasons: dict[str, str] = {}
    if overall.prompt_tokens is None:
        reasons["prompt_tokens"] = "no prompt lengths in the upload and no tokenizer to count with"
    if overall.output_tokens is None:
        reasons["output_tokens"] = "no recorded outputs, or no tokenizer to count them with"
    if not has_arrivals:
        reasons["arrivals"] = "fewer than two different times in the upload"
    why = _no_text(requests, tokens)
    if overall.prefix_sharing is None:
        reasons["prefix_sharing"] = why or "no prompt could be rendered with the chat template"
    if overall.lookup is None:
        reasons["lookup"] = why or "no recorded outputs of two tokens or more in the upload"
    return reasons


def _no_text(requests: Sequence[Request], tokens: TokenColumns | None) -> str | None:
    """Why nothing that needs text can be said, None when something can."""
    if not any(request.has_text for request in requests):
        return "the upload holds lengths only, and this needs text"
    if tokens is None:
        return "needs a target whose tokenizer can split the text"
    if all(ids is None for ids in tokens.prompts):
        return "no prompt could be rendered: the target has no chat template that takes them"
    return None


def _disagreements(requests: Sequence[Request], tokens: TokenColumns | None) -> tuple[str, ...]:
    """Reported counts far from our own: another tokenizer, or a gateway that counts wrongly."""
    if tokens is None:
        return ()
    pairs = [
        (request.prompt_tokens, len(ids))
        for request, ids in zip(requests, tokens.prompts, strict=True)
        if ids and request.prompt_tokens
    ]
    far = [1 for one, other in pairs if max(one, other) > _DISAGREEMENT * min(one, other)]
    if not far:
        return ()
    warning = (
        f"{len(far)} of {len(pairs)} reported prompt counts differ from the target's own count by"
        f" more than a factor of {_DISAGREEMENT:g}; the target's count is used"
    )
    return (warning,)
