"""Scattered measurements on a full grid: what was not measured is interpolated axis by axis."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


def on_grid(columns: Sequence[Floats], values: Floats) -> tuple[tuple[Floats, ...], Floats]:
    """The grid of all values that occur on each axis, NaN where no row lies; means of repeats."""
    axes = tuple(np.unique(column) for column in columns)
    places = tuple(
        np.searchsorted(axis, column) for axis, column in zip(axes, columns, strict=True)
    )
    shape = tuple(len(axis) for axis in axes)
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, places, values)
    np.add.at(count, places, 1)
    return axes, np.where(count > 0, total / np.maximum(count, 1), np.nan)


def fill_along(
    grid: Floats,
    points: Floats,
    *,
    axis: int,
    power: bool,
    extend: bool,
    within: float = np.inf,
) -> Floats:
    """Fill gaps along one axis from the neighbours on it; a line with one known point keeps it.

    `power` takes a power law between neighbours (linear in both logarithms), else a line. `extend`
    also goes on with the last slope at both ends, at least 0. Neighbours whose points are further
    apart than a factor `within` are left to other axes.
    """
    lines = np.moveaxis(grid, axis, -1).reshape(-1, len(points)).copy()
    masks, group = np.unique(np.isnan(lines), axis=0, return_inverse=True)
    group = group.reshape(-1)
    for number, mask in enumerate(masks):
        known = np.flatnonzero(~mask)
        if not mask.any() or len(known) < 2:  # noqa: PLR2004 - a slope takes two points
            continue
        rows = group == number
        lines[np.ix_(rows, np.flatnonzero(mask))] = _between(
            lines[rows][:, known], points[known], points[mask], power=power, extend=extend
        )
        if np.isfinite(within):
            _undo(lines, rows, (points, known, np.flatnonzero(mask)), within)
    shape = np.moveaxis(grid, axis, -1).shape
    return np.moveaxis(lines.reshape(shape), -1, axis)


def _between(values: Floats, known: Floats, wanted: Floats, *, power: bool, extend: bool) -> Floats:
    at = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, len(known) - 2)
    low, high = known[at], known[at + 1]
    if power:
        share = np.log(wanted / low) / np.log(high / low)
        filled = np.exp(np.log(values[:, at]) * (1 - share) + np.log(values[:, at + 1]) * share)
    else:
        share = (wanted - low) / (high - low)
        filled = np.maximum(values[:, at] * (1 - share) + values[:, at + 1] * share, 0.0)
    outside = (wanted < known[0]) | (wanted > known[-1])
    return np.where(outside & (not extend), np.nan, filled)


def _undo(
    lines: Floats,
    rows: NDArray[np.bool_],
    places: tuple[Floats, NDArray[np.intp], NDArray[np.intp]],
    within: float,
) -> None:
    """Makes gaps of what was filled between points further apart than a factor."""
    points, known, filled = places
    at = np.clip(np.searchsorted(known, filled) - 1, 0, len(known) - 2)
    far = points[known[at + 1]] > within * points[known[at]]
    lines[np.ix_(rows, filled[far])] = np.nan
