"""Kernel times of a device that follows known laws."""

from collections.abc import Callable, Sequence

import numpy as np

from advisor.roofline.kernels import AttentionRows, KernelRow

# (new, cached, requests, contexts) -> seconds of one layer
AttentionLaw = Callable[[float, float, float, float], float]


def attention_rows(
    law: AttentionLaw,
    *,
    new: Sequence[float] = (16, 64, 256, 1024),
    cached: Sequence[float] = (0, 128, 1024),
    requests: Sequence[float] = (1, 4, 16),
    contexts: Sequence[float] = (16, 256, 2048),
    mixed: bool = True,
) -> AttentionRows:
    """Every combination on the grid: chunks alone, decodes alone and, if `mixed`, both."""
    points = [(c, k, 0.0, 0.0) for c in new for k in cached]
    points += [(0.0, 0.0, n, s) for n in requests for s in contexts]
    if mixed:
        points += [(c, k, n, s) for c in new for k in cached for n in requests for s in contexts]
    columns = np.array([(*point, law(*point)) for point in points])
    return AttentionRows(
        new=columns[:, 0],
        cached=columns[:, 1],
        requests=columns[:, 2],
        contexts=columns[:, 3],
        seconds=columns[:, 4],
    )


def fused(new: float, cached: float, requests: float, contexts: float) -> float:
    """Decodes cost twice beside a chunk; a chunk costs its query-key pairs and its positions."""
    chunk = 1e-9 * new * (cached + new / 2) + 2e-8 * new
    decodes = 1e-8 * requests * contexts
    return 5e-6 + chunk + decodes * (2 if new else 1)


def kernel_rows(
    laws: dict[str, Callable[[float], float]], points: Sequence[float] = (1, 8, 64, 512, 2048)
) -> list[KernelRow]:
    """Each kernel of `laws` at each number of rows."""
    return [
        KernelRow(name=name, rows=float(point), seconds=law(point))
        for name, law in laws.items()
        for point in points
    ]
