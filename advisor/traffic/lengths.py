"""Token counts per request, from the target's tokenizer or as the file reported them."""

from collections.abc import Sequence

import numpy as np

from advisor.traffic.trace import CountSource, Quantiles, Request, TokenColumns

_PERCENTS = (5, 25, 50, 75, 95)
Counts = list[int | None]


def quantiles(values: Sequence[float | None]) -> Quantiles | None:
    """Linear-interpolated percentiles of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    p5, p25, p50, p75, p95 = (float(value) for value in np.percentile(known, _PERCENTS))
    return Quantiles(
        count=len(known),
        unknown=len(values) - len(known),
        mean=float(np.mean(known)),
        p5=p5,
        p25=p25,
        p50=p50,
        p75=p75,
        p95=p95,
        max=float(max(known)),
    )


def prompt_counts(requests: Sequence[Request], tokens: TokenColumns | None) -> Counts:
    """Prompt tokens per request: the target's own count where there is text, else the reported."""
    if tokens is None:
        return [request.prompt_tokens for request in requests]
    return [
        request.prompt_tokens if ids is None else len(ids)
        for request, ids in zip(requests, tokens.prompts, strict=True)
    ]


def output_counts(requests: Sequence[Request], tokens: TokenColumns | None) -> Counts:
    """Output tokens per request, chosen as for prompts."""
    if tokens is None:
        return [request.output_tokens for request in requests]
    return [
        request.output_tokens if ids is None else len(ids)
        for request, ids in zip(requests, tokens.outputs, strict=True)
    ]


def count_source(counts: Counts, tokens: TokenColumns | None) -> CountSource:
    """Where most of the prompt counts come from."""
    if tokens is not None and any(ids is not None for ids in tokens.prompts):
        return CountSource.TOKENISED
    known = any(count is not None for count in counts)
    return CountSource.REPORTED if known else CountSource.UNKNOWN
