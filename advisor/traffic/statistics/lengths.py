"""Token counts per request, from the target's tokenizer or as the file reported them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.traffic.facts import ESTIMATED, MISSING, REPORTED, Facts, Flags
from advisor.traffic.figures import Counts, CountSource, JointLengths, Quantiles

_PERCENTS = (5, 25, 50, 75, 95)
# Ranks of values below this are counted, not sorted.
_COUNTED = 1 << 22


def quantiles(values: Sequence[float | None]) -> Quantiles | None:
    """Linear-interpolated percentiles of the known values; None when there is none."""
    return quantiles_of(np.array(values, dtype=np.float64))


def quantiles_of(values: NDArray[np.float64] | NDArray[np.int64]) -> Quantiles | None:
    """The same of a column, where unknown is NaN or below 0."""
    known = values[values >= 0]
    if not len(known):
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
        max=float(known.max()),
    )


def counts(sources: Flags) -> Counts:
    """How many counts there are, by where they come from."""
    return Counts(
        reported=int((sources == REPORTED).sum()),
        estimated=int((sources == ESTIMATED).sum()),
        missing=int((sources == MISSING).sum()),
    )


def count_source(facts: Facts, *, tokenised: bool) -> CountSource:
    """Where most of the prompt counts come from; `tokenised`: some prompts have token ids."""
    if tokenised:
        return CountSource.TOKENISED
    return CountSource.REPORTED if (facts.prompt_tokens >= 0).any() else CountSource.UNKNOWN


def context_tokens(facts: Facts) -> NDArray[np.int64]:
    """Prompt and output together; -1 where one is not known."""
    known = (facts.prompt_tokens >= 0) & (facts.output_tokens >= 0)
    return np.where(known, facts.prompt_tokens + facts.output_tokens, -1)


def joint_lengths(facts: Facts) -> JointLengths | None:
    """Requests by prompt and output length in bins of a factor of two; None where none has both."""
    known = (facts.prompt_tokens >= 0) & (facts.output_tokens >= 0)
    if not known.any():
        return None
    prompts, outputs = facts.prompt_tokens[known], facts.output_tokens[known]
    rows, row_edges = _bins(prompts)
    cells, cell_edges = _bins(outputs)
    width = len(cell_edges) - 1
    found = np.bincount(rows * width + cells, minlength=(len(row_edges) - 1) * width)
    return JointLengths(
        prompt_edges=row_edges,
        output_edges=cell_edges,
        counts=tuple(tuple(row) for row in found.reshape(-1, width).tolist()),
        correlation=_rank_correlation(prompts, outputs),
    )


def _bins(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[float, ...]]:
    """The bin of each value, and the edges: powers of two around the values, 0 below 1."""
    # frexp gives the exponent exactly, where a logarithm may round over an edge: 0 has 0, 1 has 1.
    exponents = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    low, high = int(exponents.min()), int(exponents.max())
    edges = [0.0, *(2.0**place for place in range(high + 1))]
    return exponents - low, tuple(edges[low : high + 2])


def _rank_correlation(one: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    """Spearman's; None where one of them does not vary."""
    if one.min() == one.max() or other.min() == other.max():
        return None
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average ranks."""
    places = values
    if values.max() >= _COUNTED:
        places = np.unique(values, return_inverse=True)[1].reshape(-1)
    tallies = np.bincount(places)
    ranks: NDArray[np.float64] = (np.cumsum(tallies) - (tallies - 1) / 2)[places]
    return ranks
