"""The capped affine curve through a load ladder, fitted to many resamples at once (handbook 4.3).

A step with n requests takes ``T0 + T1 n`` and no more than Nc of them run, so that
``X(n) = min(n, Nc) / (T0 + T1 min(n, Nc))``. On logarithms X has a scale, 1 / T0, and a shape
given by T1 / T0 and Nc. The scale follows in closed form, the shape is searched on a grid: no
start values, no local optimum, and all resamples in one matrix product.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PLATEAU_SHARE = 0.9  # handbook 4.2, f
RESAMPLES = 256
# A cap must explain this many residual variances more than the curve without one: about two
# standard deviations. Without a price every affine curve seems capped at its noisiest point.
_CAP_PRICE = 4.0
_RATIOS = 30  # T1 / T0, so that T1 N at the top is from a tenth of T0 to 300 times T0
_CAPS = 32
_FINE = 31
# Multiplications in one matrix product; OpenBLAS starts threads, which spin, for larger ones.
_PRODUCT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """Mean logarithms of throughput at mean requests in flight, each of so many repeats.

    `variance` is that of one repeat's logarithm, known with so many degrees of freedom before the
    curve is fitted. `top` is the highest load tested.
    """

    in_flight: Floats
    log_throughput: Floats
    repeats: Floats
    top: float
    variance: float
    degrees_of_freedom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Fitted curves, arrays of one shape; `cap` is infinite where a curve has none."""

    step_s: Floats
    step_s_per_request: Floats
    cap: Floats
    top: float

    def throughput(self, in_flight: float) -> Floats:
        """Tokens per second with so many requests in flight."""
        running = np.minimum(in_flight, self.cap)
        return running / (self.step_s + self.step_s_per_request * running)

    @property
    def plateau(self) -> Floats:
        """The highest throughput inside the tested range."""
        return self.throughput(self.top)

    @property
    def knee(self) -> Floats:
        """Requests in flight at which `PLATEAU_SHARE` of the plateau is reached, 1 at least."""
        wanted = PLATEAU_SHARE * self.plateau
        return np.maximum(1.0, wanted * self.step_s / (1 - wanted * self.step_s_per_request))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shapes:
    """Candidate shapes and their logarithms at the ladder's loads, shape ``[shapes, loads]``."""

    ratio: Floats
    cap: Floats
    logs: Floats


def fit_knee(ladder: Ladder, *, seed: int = 0) -> tuple[Curves, Curves]:
    """The curve of the ladder (one) and those of its resamples (`RESAMPLES`).

    A resample is the curve plus normal residuals with the residual variance (what was known of
    it, pooled with what the curve leaves over: six points alone underestimate it), which is drawn
    itself. That widens the intervals as inflating residuals does, and by more with few points.
    """
    coarse = _shapes(ladder, *_coarse_grid(ladder))
    chosen = _search(coarse, ladder, ladder.log_throughput[np.newaxis], ladder.variance)
    fine = _shapes(ladder, *_fine_grid(coarse, ladder, int(chosen[0])))
    best = int(_search(fine, ladder, ladder.log_throughput[np.newaxis], ladder.variance)[0])
    curve = _curves(fine, ladder, np.array([best]), ladder.log_throughput[np.newaxis])
    fitted = fine.logs[best] - np.log(curve.step_s[0])
    variance, freedom = _pooled(ladder, fitted, capped=bool(np.isfinite(fine.cap[best])))
    rng = np.random.default_rng(seed)
    spread = np.sqrt(variance * freedom / rng.chisquare(freedom, (RESAMPLES, 1)))
    noise = rng.standard_normal((RESAMPLES, len(fitted))) * spread / np.sqrt(ladder.repeats)
    logs = fitted + noise
    found = _search(coarse, ladder, logs, variance)
    return curve, _curves(coarse, ladder, found, logs)


def _coarse_grid(ladder: Ladder) -> tuple[Floats, Floats]:
    ratios = np.concatenate(([0.0], np.geomspace(0.1, 300, _RATIOS) / ladder.top))
    caps = np.geomspace(ladder.in_flight.min(), ladder.top, _CAPS, endpoint=False)
    return ratios, np.append(caps, np.inf)


def _fine_grid(coarse: _Shapes, ladder: Ladder, chosen: int) -> tuple[Floats, Floats]:
    """Around one coarse shape, a step to either side."""
    ratio, cap = float(coarse.ratio[chosen]), float(coarse.cap[chosen])
    # At the lower end of the ratios there is no step to multiply with.
    least = 0.1 / ladder.top
    ratios = (
        np.linspace(0, least, _FINE) if ratio < least else ratio * np.geomspace(1 / 1.4, 1.4, _FINE)
    )
    if not np.isfinite(cap):
        return ratios, np.array([np.inf])
    caps = np.minimum(cap * np.geomspace(1 / 1.15, 1.15, _FINE), ladder.top)
    return ratios, caps


def _shapes(ladder: Ladder, ratios: Floats, caps: Floats) -> _Shapes:
    ratio, cap = (side.ravel() for side in np.meshgrid(ratios, caps, indexing="ij"))
    running = np.minimum(ladder.in_flight, cap[:, np.newaxis])
    logs = np.log(running) - np.log1p(ratio[:, np.newaxis] * running)
    return _Shapes(ratio=ratio, cap=cap, logs=logs)


def _search(shapes: _Shapes, ladder: Ladder, logs: Floats, variance: float) -> NDArray[np.intp]:
    """The shape of least squares for each row of `logs`, shape ``[rows]``; a cap has its price."""
    weights = ladder.repeats
    share = weights / weights.sum()
    rows = logs - (logs @ share)[:, np.newaxis]
    candidates = shapes.logs - (shapes.logs @ share)[:, np.newaxis]
    price = np.where(np.isfinite(shapes.cap), _CAP_PRICE * variance, 0.0)
    squares = (candidates**2) @ weights + price
    crossed = (-2 * weights * candidates).T
    at_once = max(1, _PRODUCT // crossed.size)
    # The square of `rows` is the same for every shape.
    found = [
        (squares + rows[start : start + at_once] @ crossed).argmin(axis=1)
        for start in range(0, len(rows), at_once)
    ]
    return np.concatenate(found)


def _curves(shapes: _Shapes, ladder: Ladder, found: NDArray[np.intp], logs: Floats) -> Curves:
    share = ladder.repeats / ladder.repeats.sum()
    step_s = np.exp((shapes.logs[found] - logs) @ share)
    return Curves(
        step_s=step_s,
        step_s_per_request=shapes.ratio[found] * step_s,
        cap=shapes.cap[found],
        top=ladder.top,
    )


def _pooled(ladder: Ladder, fitted: Floats, *, capped: bool) -> tuple[float, float]:
    """Variance of one repeat and its degrees of freedom, after the curve was seen."""
    left_over = float(((ladder.log_throughput - fitted) ** 2) @ ladder.repeats)
    spare = max(0, len(fitted) - (3 if capped else 2))
    freedom = ladder.degrees_of_freedom + spare
    return (ladder.variance * ladder.degrees_of_freedom + left_over) / freedom, freedom
