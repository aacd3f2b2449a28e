"""Where the lengths of requests fall apart: splits at valleys of their density, or none.

Principal axes (scikit-learn) propose directions, and a split is taken only where the density along
one of them drops well below both of its sides. A cloud without a valley stays whole, whatever its
form: so nothing is found in uniform, normal or heavy-tailed lengths, where k-means or a mixture of
normals with an information criterion would cut it.
"""

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

SAMPLE = 5_000
# A valley is at most this share of the lower of its two sides, and not by chance.
_DEPTH = 0.5
_SIGMAS = 4.0
# In natural logarithms: two lengths within about a quarter are never told apart.
_LEAST_BANDWIDTH = 0.25
_CELLS_A_BANDWIDTH = 4
# The normal kernel in cells, cut at four bandwidths.
_KERNEL = np.exp(-0.5 * (np.arange(-16, 17) / _CELLS_A_BANDWIDTH) ** 2)
_DEEPEST = 3


def split_at_valleys(points: Floats, *, least: int, rng: np.random.Generator) -> Codes:
    """A number for each row of `points` (log lengths, shape ``[rows, features]``), from 0.

    No part is smaller than `least` rows. Found on at most 5,000 rows, drawn by `rng`.
    """
    codes = np.zeros(len(points), dtype=np.int32)
    _split(points, np.arange(len(points)), codes, least=least, rng=rng, depth=0)
    return codes


def _split(
    points: Floats,
    members: NDArray[np.int64],
    codes: Codes,
    *,
    least: int,
    rng: np.random.Generator,
    depth: int,
) -> None:
    """Split `members` in two and each part again, as long as there is a valley."""
    if depth == _DEEPEST or len(members) < 2 * least:
        return
    held = points if len(members) == len(points) else points[members]
    seen = held
    if len(held) > SAMPLE:
        seen = held[np.sort(rng.choice(len(held), SAMPLE, replace=False))]
    best: tuple[float, Floats, float] | None = None
    for direction in _directions(seen):
        found = valley(seen @ direction, least=max(1, least * len(seen) // len(held)))
        if found is not None and (best is None or found[0] < best[0]):
            best = (found[0], direction, found[1])
    if best is None:
        return
    right = held @ best[1] > best[2]
    if not least <= right.sum() <= len(held) - least:
        return
    codes[members[right]] = codes.max() + 1
    for part in (members[~right], members[right]):
        _split(points, part, codes, least=least, rng=rng, depth=depth + 1)


def _directions(points: Floats) -> Iterator[Floats]:
    """Each length by itself, and the principal axes of both."""
    features = points.shape[1]
    yield from np.eye(features)
    if features > 1 and np.ptp(points, axis=0).all():
        yield from _pca()(svd_solver="covariance_eigh").fit(points).components_


@cache
def _pca() -> Callable[..., Any]:
    """scikit-learn's PCA, imported when lengths are first split: that takes seconds."""
    found: Callable[..., Any] = import_module("sklearn.decomposition").PCA
    return found


def valley(values: Floats, *, least: int) -> tuple[float, float] | None:
    """Depth and place of the deepest valley of the density of `values`, None where there is none.

    A kernel density with Silverman's bandwidth, at least 0.25.
    """
    spread = min(float(values.std()), float(np.subtract(*np.percentile(values, (75, 25)))) / 1.34)
    bandwidth = max(_LEAST_BANDWIDTH, 0.9 * spread * len(values) ** -0.2)
    width = bandwidth / _CELLS_A_BANDWIDTH
    low = float(values.min()) - 3 * bandwidth
    places = ((values - low) / width).astype(np.int64)
    cells = int(places.max()) + 3 * _CELLS_A_BANDWIDTH + 2
    # In requests under one kernel, so that the noise of a count is its root.
    raw = np.bincount(places, minlength=cells)
    kernel = _CELLS_A_BANDWIDTH * np.sqrt(4 * np.pi)
    reach = len(_KERNEL) // 2
    density = kernel * np.convolve(raw, _KERNEL / _KERNEL.sum())[reach:-reach]
    sides = np.minimum(np.maximum.accumulate(density), np.maximum.accumulate(density[::-1])[::-1])
    before = np.cumsum(raw)
    usable = (before >= least) & (len(values) - before >= least) & (sides > 0)
    usable &= (sides - density) > _SIGMAS * np.sqrt(sides + density)
    if not usable.any():
        return None
    depths = np.where(usable, density / np.maximum(sides, 1e-12), np.inf)
    lowest = np.flatnonzero(depths <= depths.min() + 1e-9)
    at = int(lowest[len(lowest) // 2])
    return None if depths[at] > _DEPTH else (float(depths[at]), low + (at + 1) * width)
