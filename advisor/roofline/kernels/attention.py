"""Attention of a step from measured rows: one look-up for chunks, decodes and both together."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.roofline.kernels.lattice import fill_along, on_grid
from advisor.roofline.kernels.rows import AttentionRows
from advisor.roofline.kernels.tail import DecodeTail
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.joint import effective_contexts, joint_seconds
from advisor.roofline.step.steptime import JointAttention

Floats: TypeAlias = NDArray[np.float64]

# Chunk sizes between two measured ones, and how far apart neighbours may be to fill a gap first.
BETWEEN = 3
NEAR = 2.0


def joint_attention(
    rows: AttentionRows, *, layers: int, tail: DecodeTail | None = None
) -> JointAttention:
    """The rows of one layer on a full grid, times `layers`.

    Between measured chunk sizes a power law holds (the work grows between linearly and
    quadratically), on the other axes a line. A chunk smaller than the smallest measured one costs
    as that does. Many short prompts: from `_short_prompts` at nothing to look at up to the measured
    single prompt. Without `tail`, unequal decodes cost what as many of their mean context do.
    """
    after = tail or DecodeTail()
    chunk_axis, chunks = _chunks(rows)
    decode_axes, decodes = _decodes(rows)
    mixed_axes, mixed = _mixed(rows)
    new = np.unique(np.concatenate([chunk_axis[0], mixed_axes[0]]))
    fine = _finer(new)
    cached = np.unique(np.concatenate([chunk_axis[1], mixed_axes[1]]))
    requests = np.unique(np.concatenate([decode_axes[0], mixed_axes[2]]))
    contexts = np.unique(np.concatenate([decode_axes[1], mixed_axes[3]]))
    alone = _regrid(chunks, chunk_axis, (fine, cached), power=True)
    beside = _regrid(mixed, mixed_axes, (fine, cached, requests, contexts), power=True)
    only = _regrid(decodes, decode_axes, (requests, contexts), power=False)

    seconds = np.zeros((len(fine) + 2, len(cached) + 1, len(requests) + 1, len(contexts)))
    seconds[0, :, 1:, :] = only
    seconds[2:, 1:, 0, :] = alone[:, :, None]
    seconds[2:, 1:, 1:, :] = beside
    seconds[2:, 0] = _short_prompts(seconds[2:, 1], fine)
    seconds[1] = seconds[2]
    return JointAttention(
        new=np.concatenate([[0.0, 1.0], fine]),
        cached=np.concatenate([[-1.0], cached]),
        requests=np.concatenate([[0.0], requests]),
        contexts=contexts,
        seconds=layers * seconds,
        tail_alone=after.alone,
        tail_beside=after.beside,
        tail_from=after.split_below,
    )


def attention_seconds(table: JointAttention, batch: StepBatch) -> float:
    """Seconds of all attention of one step by a joint table."""
    tokens = float(sum(p.new_tokens for p in batch.prefills))
    pairs = float(sum(p.new_tokens * (p.cached_tokens + p.new_tokens / 2) for p in batch.prefills))
    contexts = batch.decode_contexts
    decodes = float(len(contexts))
    unequal = (decodes, float(sum(contexts)), float(max(contexts, default=0.0)))
    tail = (table.tail_alone, table.tail_beside, table.tail_from)
    total = float(effective_contexts(tokens, unequal, tail))
    grids = (table.new, table.cached, table.requests, table.contexts)
    return float(joint_seconds(grids, table.seconds, (tokens, pairs, decodes, total)))


def _chunks(rows: AttentionRows) -> tuple[tuple[Floats, ...], Floats]:
    chosen = (rows.new > 0) & (rows.requests == 0)
    axes, grid = on_grid((rows.new[chosen], rows.cached[chosen]), rows.seconds[chosen])
    return axes, _filled(grid, axes, ((0, True), (1, False)))


def _decodes(rows: AttentionRows) -> tuple[tuple[Floats, ...], Floats]:
    chosen = (rows.new == 0) & (rows.requests > 0)
    axes, grid = on_grid((rows.requests[chosen], rows.contexts[chosen]), rows.seconds[chosen])
    return axes, _filled(grid, axes, ((1, False), (0, False)))


def _mixed(rows: AttentionRows) -> tuple[tuple[Floats, ...], Floats]:
    """Rows with both; where nobody measured any, chunk and decodes add."""
    chosen = (rows.new > 0) & (rows.requests > 0)
    if not chosen.any():
        chunk_axes, chunks = _chunks(rows)
        decode_axes, decodes = _decodes(rows)
        return (*chunk_axes, *decode_axes), chunks[:, :, None, None] + decodes
    columns = (rows.new, rows.cached, rows.requests, rows.contexts)
    axes, grid = on_grid([column[chosen] for column in columns], rows.seconds[chosen])
    return axes, _filled(grid, axes, ((0, True), (3, False), (1, False), (2, False)))


def _filled(grid: Floats, axes: tuple[Floats, ...], order: tuple[tuple[int, bool], ...]) -> Floats:
    """Small gaps between chunk sizes, all gaps on every axis, then the corners beyond them."""
    for axis, power in order:
        within = NEAR if power else np.inf
        grid = fill_along(grid, axes[axis], axis=axis, power=power, extend=False, within=within)
    for extend in (False, True):
        for axis, power in order:
            grid = fill_along(grid, axes[axis], axis=axis, power=power, extend=extend)
    return np.where(np.isnan(grid), np.nanmax(grid), grid)


def _finer(new: Floats) -> Floats:
    """The chunk sizes with `BETWEEN` more between each pair, on a geometric scale."""
    steps = np.arange(1, BETWEEN + 1) / (BETWEEN + 1)
    between = np.exp(np.log(new[:-1, None]) + np.log(new[1:] / new[:-1])[:, None] * steps).ravel()
    return np.unique(np.concatenate([new, between]))


def _regrid(
    grid: Floats, old: tuple[Floats, ...], new: tuple[Floats, ...], *, power: bool
) -> Floats:
    """The same function on other points, axis by axis; `power`: a power law on the first."""
    for axis, (points, wanted) in enumerate(zip(old, new, strict=True)):
        if np.array_equal(points, wanted):
            continue
        every = np.union1d(points, wanted)
        wide = np.full((*grid.shape[:axis], len(every), *grid.shape[axis + 1 :]), np.nan)
        np.moveaxis(wide, axis, 0)[np.searchsorted(every, points)] = np.moveaxis(grid, axis, 0)
        wide = fill_along(wide, every, axis=axis, power=power and axis == 0, extend=True)
        grid = np.take(wide, np.searchsorted(every, wanted), axis=axis)
    return grid


def _short_prompts(whole: Floats, new: Floats) -> Floats:
    """Chunks of so many tokens that look at nothing earlier, (new, requests, contexts).

    What the smallest chunk costs, and for every further token the part of `whole` (one prompt from
    its start) that grows linearly; never more than `whole`.
    """
    growth = _linear_part(whole[:, 0, 0], new) * (new - new[0])
    short: Floats = np.minimum(whole[:1] + growth[:, None, None], whole)
    return short


def _linear_part(seconds: Floats, new: Floats) -> float:
    """Seconds per token where the parabola through the largest size, 1/2 and 1/4 of it starts."""
    if len(new) < 3:  # noqa: PLR2004 - a parabola takes three points
        return float(seconds[-1] / new[-1])
    last = float(new[-1])
    x = np.array([last / 4, last / 2, last])
    y = np.interp(x, new, seconds)
    first, second = np.diff(y) / np.diff(x)
    curvature = (second - first) / (x[2] - x[0])
    return float(np.clip(first - curvature * (x[0] + x[1]), 0.0, seconds[-1] / last))
