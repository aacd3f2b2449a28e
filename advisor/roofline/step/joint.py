"""Attention of a step whose prompt chunks and decodes run in one kernel, as compiled code.

vLLM sends prompt chunks and decoding requests of a step through one variable-length attention
kernel. Measured tables show that decodes beside a chunk cost up to 2.5 times what they cost alone
(no packing of the query heads that share a KV head), so their times do not add.
"""

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Grids: TypeAlias = tuple[Floats, Floats, Floats, Floats]


@njit(cache=True)
def chunk_length(tokens: float, pairs: float) -> float:
    """What `tokens` of prompt that look at `pairs` earlier positions have before them, as if one.

    ``K = pairs / C - C / 2`` is what one chunk of C tokens would have cached for as many pairs.
    Many short prompts look at less than one prompt of their sum: then ``2 K / C``, from -1
    (nothing to look at) to 0 (one prompt from its start).
    """
    if tokens <= 0.0:
        return 0.0
    cached = pairs / tokens - tokens / 2.0
    return cached if cached >= 0.0 else max(-1.0, 2.0 * cached / tokens)


@njit(cache=True)
def _place(grid: Floats, value: float) -> tuple[int, float]:
    if len(grid) == 1:
        return 0, 0.0
    at = int(np.searchsorted(grid, value, side="right")) - 1
    at = min(max(at, 0), len(grid) - 2)
    return at, max((value - grid[at]) / (grid[at + 1] - grid[at]), 0.0)


@njit(cache=True)
def effective_contexts(
    tokens: float, decodes: tuple[float, float, float], tail: tuple[float, float, float]
) -> float:
    """Sum of contexts that equal decodes would need for the time of these unequal ones.

    `decodes` is their number, the sum of their contexts and the longest, `tokens` the prompt tokens
    of the step, `tail` (`tail_alone`, `tail_beside`, `tail_from`) of the joint table. The longest
    decode goes on when the device is no longer full: it costs as much as so many requests of its
    excess over the mean would; no more than if all were as long.
    """
    count, total, longest = decodes
    if count <= 1.0 or (tokens <= 0.0 and count < tail[2]):
        return total
    extra = tail[1] if tokens > 0.0 else tail[0]
    return total + min(extra, count) * max(longest - total / count, 0.0)


@njit(cache=True)
def joint_seconds(grids: Grids, seconds: Floats, work: tuple[float, float, float, float]) -> float:
    """Multilinear in (tokens, `chunk_length`, decodes, mean context); last slopes go on.

    `work` is the step's prompt tokens and their pairs, ``sum of new (cached + new / 2)`` over its
    chunks, its decodes and the sum of their contexts (`effective_contexts` where they differ).
    `seconds` has the shape of the four `grids` (`steptime.JointAttention`). Never below 0.
    """
    tokens, pairs, decodes, contexts = work
    first, share_first = _place(grids[0], tokens)
    second, share_second = _place(grids[1], chunk_length(tokens, pairs))
    third, share_third = _place(grids[2], decodes)
    fourth, share_fourth = _place(grids[3], contexts / decodes if decodes > 0.0 else 0.0)
    total = 0.0
    for i in range(2 if share_first > 0.0 else 1):
        weight_i = share_first if i else 1.0 - share_first
        for j in range(2 if share_second > 0.0 else 1):
            weight_j = weight_i * (share_second if j else 1.0 - share_second)
            for k in range(2 if share_third > 0.0 else 1):
                weight_k = weight_j * (share_third if k else 1.0 - share_third)
                row = seconds[first + i, second + j, third + k]
                low = row[fourth]
                high = row[fourth + 1] if share_fourth > 0.0 else low
                total += weight_k * (low + share_fourth * (high - low))
    return max(total, 0.0)
