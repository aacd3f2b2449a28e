"""Intervals from errors on held-out points, without a law for those errors (handbook 11.5).

A score is ``|ln measured - ln predicted|`` of a point that the predictor was not fitted to. An
interval of level 0.9 spans the ``ceil((n + 1) 0.9)``-th smallest of n scores on both sides of the
logarithm, so it covers a further point of the same kind in at least 90 % of cases. Points of
another GPU or model are no points of the same kind: `grouped_width` prefers the narrowest group.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from advisor.errors import InvalidInput
from advisor.estimate import Prediction, Source

Floats: TypeAlias = NDArray[np.float64]
Predictor: TypeAlias = Callable[[Sequence[int]], Callable[[int], float]]

LEVEL = 0.9
# Below the least number of scores a Student interval takes over; its scale starts at the error
# that handbook 3.4 expects of a calibrated step model, worth so many points.
_EXPECTED_LOG_ERROR, _EXPECTED_WEIGHT = 0.12, 4
# A factor of 100 says all that a wider interval would, and stays a number.
_MOST_LOG_HALF = math.log(100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """``[value / e^h, value e^h]`` holds a further point at `level`; h is `log_half`.

    `points` is the number of scores behind it and `exact` whether they sufficed for a rank.
    """

    log_half: float
    level: float
    points: int
    exact: bool
    basis: str

    def around(
        self,
        value: float,
        *,
        scale: float = 1.0,
        source: Source = Source.CALIBRATED_ROOFLINE,
        about: str = "",
        not_modelled: tuple[str, ...] = (),
    ) -> Prediction:
        """The interval around a positive `value`; `scale` is this point's own spread.

        `about` goes before the basis of the width, e.g. "sum form fitted to 12 points".
        """
        factor = math.exp(min(_MOST_LOG_HALF, self.log_half * scale))
        return Prediction(
            value=value,
            low=value / factor,
            high=value * factor,
            source=source,
            basis=f"{about}; {self.basis}" if about else self.basis,
            not_modelled=not_modelled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One held-out point: `residual` is ln measured - ln predicted, over its own `spread`.

    `groups` names the kinds it belongs to, the narrowest first (series, model, GPU). Everything is
    a last group of its own without being named.
    """

    residual: float
    groups: tuple[str, ...] = ()
    spread: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.residual) or self.spread <= 0:
            raise InvalidInput("score", f"{self.residual} over {self.spread} is no number")

    @property
    def size(self) -> float:
        """The score itself, 0 or more."""
        return abs(self.residual) / self.spread


def rank(points: int, level: float = LEVEL) -> int | None:
    """Which of the sorted scores bounds the interval, from 1; None where too few exist."""
    if not 0 < level < 1:
        raise InvalidInput("level", f"{level} does not lie between 0 and 1")
    # 1e-9: 20 * 0.9 must not become 19 by rounding.
    wanted = math.ceil((points + 1) * level - 1e-9)
    return wanted if wanted <= points else None


def least_points(level: float = LEVEL) -> int:
    """Scores that an interval of `level` needs: 9 for 90 %."""
    return math.ceil(level / (1 - level) - 1e-9)


def width(sizes: Sequence[float], *, level: float = LEVEL, about: str = "") -> Width:
    """The width that held-out scores give; `about` says in the basis which points they are.

    Below `least_points` it is a Student interval whose scale mixes in the error expected of a
    calibrated model, no narrower than the largest score: wider, and its basis says so.
    """
    scores = np.sort(np.asarray(sizes, dtype=np.float64))
    if len(scores) and not (np.isfinite(scores).all() and scores[0] >= 0):
        raise InvalidInput("scores", "are finite numbers from 0 up")
    count = len(scores)
    suffix = f" of {about}" if about else ""
    place = rank(count, level)
    if place is not None:
        return Width(
            log_half=float(scores[place - 1]),
            level=level,
            points=count,
            exact=True,
            basis=f"{level:.0%} interval, conformal, {count} held-out scores{suffix}",
        )
    return Width(
        log_half=_student(scores, level),
        level=level,
        points=count,
        exact=False,
        basis=(
            f"{level:.0%} interval widened: {count} held-out scores{suffix} are below the "
            f"{least_points(level)} that a conformal one needs"
        ),
    )


def grouped_width(
    scores: Sequence[Score],
    groups: Sequence[str] = (),
    *,
    level: float = LEVEL,
    least: int | None = None,
) -> Width:
    """The width for a point of `groups` (narrowest first): of the first that has enough scores.

    A series of four points borrows from its siblings that way. `least` asks for more scores than
    `least_points`. Where no named group has enough, all scores count.
    """
    enough = max(least or 0, least_points(level))
    for group in groups:
        own = [score.size for score in scores if group in score.groups]
        if len(own) >= enough:
            return width(own, level=level, about=group)
    return width([score.size for score in scores], level=level, about="all groups")


def log_residuals(measured: Sequence[float], predicted: Sequence[float]) -> Floats:
    """``ln measured - ln predicted``; both must be positive."""
    pairs = (np.asarray(measured, dtype=np.float64), np.asarray(predicted, dtype=np.float64))
    if any(not (values > 0).all() for values in pairs):
        raise InvalidInput("residuals", "measured and predicted are positive numbers")
    return np.log(pairs[0]) - np.log(pairs[1])


def left_out(fit: Predictor, points: int, *, folds: int | None = None) -> Floats:
    """Every point predicted without it: ``fit(indices)`` gives a predictor ``index -> seconds``.

    `folds` None leaves one out at a time; a number takes every folds-th point out together.
    """
    if points < 2:  # noqa: PLR2004
        raise InvalidInput("points", "one point leaves none to fit to")
    parts = min(points, folds or points)
    predicted = np.zeros(points)
    for part in range(parts):
        held = range(part, points, parts)
        predict = fit([index for index in range(points) if index % parts != part])
        predicted[list(held)] = [predict(index) for index in held]
    return predicted


def jackknife_plus(
    scores: Sequence[float], predictions: Sequence[float], *, level: float = LEVEL
) -> tuple[float, float] | None:
    """Bounds of one further point: every leave-one-out model's prediction and its own score.

    `predictions[i]` is the further point by the model without point i, and `scores[i]` that
    model's score on point i (Barber et al., 2021). None where too few points exist.
    """
    place = rank(len(scores), level)
    if place is None:
        return None
    logs = np.log(np.asarray(predictions, dtype=np.float64))
    sizes = np.asarray(scores, dtype=np.float64)
    high = np.sort(logs + sizes)[place - 1]
    low = np.sort(logs - sizes)[len(sizes) - place]
    return float(math.exp(low)), float(math.exp(high))


def shared_spreads(residuals: Sequence[Sequence[float]], *, weight: float = 4.0) -> list[Floats]:
    """A spread per point for `Score`: its series' root mean square without it, shrunk to all.

    `residuals` are the held-out ones of each series; all series together count as `weight` points
    of every one. A further point of series k takes ``series_spread(residuals, k)``.
    """
    everything = _mean_square([r for series in residuals for r in series])
    return [
        np.array(
            [
                math.sqrt(_shrunk([*series[:i], *series[i + 1 :]], everything, weight))
                for i in range(len(series))
            ]
        )
        for series in residuals
    ]


def series_spread(
    residuals: Sequence[Sequence[float]], index: int, *, weight: float = 4.0
) -> float:
    """The spread of a further point of one series, shrunk to all (see `shared_spreads`)."""
    everything = _mean_square([r for series in residuals for r in series])
    return math.sqrt(_shrunk(residuals[index], everything, weight))


def _shrunk(series: Sequence[float], everything: float, weight: float) -> float:
    return (sum(r * r for r in series) + weight * everything) / (len(series) + weight)


def _mean_square(residuals: Sequence[float]) -> float:
    if not residuals:
        return _EXPECTED_LOG_ERROR**2
    return max(1e-12, float(np.mean(np.square(residuals))))


def _student(scores: Floats, level: float) -> float:
    freedom = len(scores) + _EXPECTED_WEIGHT
    square = float((scores**2).sum()) + _EXPECTED_WEIGHT * _EXPECTED_LOG_ERROR**2
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(square / freedom)
    return max(half, float(scores[-1]) if len(scores) else 0.0)
