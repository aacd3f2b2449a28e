"""Scales of one or several load tests at once, with priors, and what each point says unheard.

Tests of one kind (the same model and format on one card, over tensor-parallel sizes) share a
common set of scales; each deviates from it a little. Maximum a posteriori in logarithms by damped
Gauss-Newton steps with Huber's weights: the model of one pair of residuals is in `load_test`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.load_test import LoadPoint, LoadTest, play, played_logs
from advisor.roofline.closed_loop.loop import LoopTimes
from advisor.roofline.closed_loop.scales import NAMES, SPREADS, Scales, assumed_scales, from_logs

Floats = NDArray[np.float64]
# Relative errors of one point that the model cannot avoid (handbook 3.4: step models end at 5 %,
# TTFT under load at 15 %).
TPOT_ERROR, TTFT_ERROR = 0.03, 0.15
_HUBER = 2.5
_DIFFERENCE = 0.04
_STEPS, _TRIES, _ENOUGH, _LARGEST_STEP = 2, 3, 0.1, 0.7
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a further point shows by a fit; spreads are standard deviations over a point's noise.

    1 where the scales are known exactly, more the less they are known there.
    """

    times: LoopTimes
    tpot_spread: float
    ttft_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFit:
    """Scales of each test, the misfit (lower is better; priors included), and held-out residuals.

    `left_out` has shape (points of all tests in order, 2): ln measured - ln predicted of TPOT and
    TTFT of each point by the fit without it, linearised about the fit with all points;
    `left_out_spreads` are their standard deviations over the noise. `covariance` is that of the
    shared scales and then each test's own, in logarithms (Laplace).
    """

    scales: tuple[Scales, ...]
    shared: Scales
    misfit: float
    left_out: Floats
    left_out_spreads: Floats
    covariance: Floats

    def expect(
        self, place: int, test: LoadTest, points: tuple[LoadPoint, ...]
    ) -> tuple[Expected, ...]:
        """What further points of the test at `place` show; their measured times are not read."""
        logs = self.scales[place].logs()
        found = play(test, self.scales[place], points)
        slopes = np.zeros((2 * len(points), len(NAMES)))
        for name in _moving(test.is_cramped_by(points)):
            moved = logs.copy()
            moved[name] += _DIFFERENCE
            after = play(test, from_logs(moved), points)
            slopes[:, name] = (_interleaved(after) - _interleaved(found)) / _DIFFERENCE
        noise = np.tile([TPOT_ERROR, TTFT_ERROR], len(points))
        own = slice(len(NAMES) * (1 + place), len(NAMES) * (2 + place))
        first = slice(0, len(NAMES))
        known = self.covariance
        total = known[first, first] + known[own, own] + known[first, own] + known[own, first]
        spreads = np.sqrt(1 + np.einsum("ij,jk,ik->i", slopes, total, slopes) / noise**2)
        return tuple(
            Expected(
                times=times,
                tpot_spread=float(spreads[2 * index]),
                ttft_spread=float(spreads[2 * index + 1]),
            )
            for index, times in enumerate(found)
        )


def _interleaved(times: Sequence[LoopTimes]) -> Floats:
    return np.log([value for one in times for value in (one.tpot_s, one.ttft_s)])


def _moving(cramped: bool) -> list[int]:  # noqa: FBT001
    """Places of the scales that matter: the room only where some loop comes near it."""
    return [place for place, name in enumerate(NAMES) if cramped or name != "room"]


@dataclass(slots=True, kw_only=True)
class _Problem:
    tests: Sequence[LoadTest]
    prior: Floats
    shared_sd: Floats
    own_sd: Floats

    @property
    def names(self) -> int:
        return len(self.prior)

    def residuals(self, state: Floats) -> Floats:
        """Data first, then the shared scales, then every test's own."""
        common, own = self.split(state)
        data = [
            (played_logs(test, common + part) - test.logs()) * _weights(test)
            for test, part in zip(self.tests, own, strict=True)
        ]
        return np.concatenate(
            [*data, (common - self.prior) / self.shared_sd, (own / self.own_sd).ravel()]
        )

    def split(self, state: Floats) -> tuple[Floats, Floats]:
        return state[: self.names], state[self.names :].reshape(len(self.tests), self.names)

    def slopes(self, state: Floats, residuals: Floats) -> Floats:
        """Jacobian, shape (residuals, state): a test's data depend on the sum of both parts."""
        common, own = self.split(state)
        names, slopes, row = self.names, np.zeros((len(residuals), len(state))), 0
        for place, test in enumerate(self.tests):
            rows = slice(row, row + 2 * len(test.points))
            weights, base = _weights(test), residuals[rows]
            for name in _moving(test.is_cramped_by(test.points)):
                moved = common + own[place]
                moved[name] += _DIFFERENCE
                after = (played_logs(test, moved) - test.logs()) * weights
                slope = (after - base) / _DIFFERENCE
                slopes[rows, name] = slope
                slopes[rows, names * (1 + place) + name] = slope
            row = rows.stop
        spread = np.concatenate([self.shared_sd, np.tile(self.own_sd, len(self.tests))])
        slopes[row:] = np.diag(1 / spread)
        return slopes

    @property
    def data(self) -> int:
        return sum(2 * len(test.points) for test in self.tests)


def unfitted(test: LoadTest) -> LoadFit:
    """The assumed scales with the covariance of their priors: what is known before any point."""
    shared, own = (
        np.array([getattr(SPREADS[name], part) for name in NAMES]) for part in ("shared", "own")
    )
    assumed = assumed_scales(test.served, test.machine)
    return LoadFit(
        scales=(assumed,),
        shared=assumed,
        misfit=0.0,
        left_out=np.zeros((0, 2)),
        left_out_spreads=np.zeros((0, 2)),
        covariance=np.diag(np.concatenate([shared, own]) ** 2),
    )


def fit_load_tests(tests: Sequence[LoadTest], *, rounds: int = ROUNDS) -> LoadFit:
    """Fit tests of one kind together; raises `InvalidInput` without tests."""
    if not tests:
        raise InvalidInput("load_tests", "are none")
    first = tests[0]
    problem = _Problem(
        tests=tests,
        prior=assumed_scales(first.served, first.machine).logs(),
        shared_sd=np.array([SPREADS[name].shared for name in NAMES]),
        own_sd=np.array([SPREADS[name].own for name in NAMES]),
    )
    state, residuals, slopes = _descend(problem, rounds)
    common, own = problem.split(state)
    covariance = _covariance(residuals, slopes, problem.data)
    left_out, spreads = _left_out(residuals, slopes, covariance, problem.data)
    return LoadFit(
        scales=tuple(from_logs(common + part) for part in own),
        shared=from_logs(common),
        misfit=_misfit(residuals, problem.data),
        left_out=left_out,
        left_out_spreads=spreads,
        covariance=covariance,
    )


def _descend(problem: _Problem, rounds: int) -> tuple[Floats, Floats, Floats]:
    """State, residuals and slopes at the end; slopes change little and serve two steps each."""
    state = np.concatenate([problem.prior, np.zeros(len(problem.tests) * problem.names)])
    now = _Step(state=state, residuals=problem.residuals(state), damping=1e-2)
    slopes = problem.slopes(now.state, now.residuals)
    for turn in range(rounds):
        before = _misfit(now.residuals, problem.data)
        for _ in range(_STEPS):
            step = _step(problem, now, slopes)
            if step is None:
                break
            now = step
        if turn and before - _misfit(now.residuals, problem.data) < _ENOUGH:
            break
        slopes = problem.slopes(now.state, now.residuals)
    return now.state, now.residuals, slopes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    state: Floats
    residuals: Floats
    damping: float


def _step(problem: _Problem, now: _Step, slopes: Floats) -> _Step | None:
    """One damped step that lowers the misfit; None where none does."""
    state, residuals, damping = now.state, now.residuals, now.damping
    weights = _huber(residuals, problem.data)
    weighted = slopes * weights[:, None]
    normal = weighted.T @ weighted
    downhill = weighted.T @ (residuals * weights)
    misfit = _misfit(residuals, problem.data)
    for _ in range(_TRIES):
        change = -np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
        moved = state + np.clip(change, -_LARGEST_STEP, _LARGEST_STEP)
        after = problem.residuals(moved)
        if _misfit(after, problem.data) < misfit:
            return _Step(state=moved, residuals=after, damping=max(damping / 5, 1e-4))
        damping *= 6
    return None


def _weights(test: LoadTest) -> Floats:
    return np.tile([1 / TPOT_ERROR, 1 / TTFT_ERROR], len(test.points))


def _huber(residuals: Floats, data: int) -> Floats:
    """Square roots of the weights; priors count in full."""
    weights = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(np.abs(residuals), 1e-9)))
    weights[data:] = 1.0
    return weights


def _misfit(residuals: Floats, data: int) -> float:
    size = np.abs(residuals[:data])
    robust = np.where(size < _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)
    return float(robust.sum() + (residuals[data:] ** 2).sum())


def _covariance(residuals: Floats, slopes: Floats, data: int) -> Floats:
    weighted = slopes * _huber(residuals, data)[:, None]
    return np.asarray(np.linalg.inv(weighted.T @ weighted))


def _left_out(
    residuals: Floats, slopes: Floats, covariance: Floats, data: int
) -> tuple[Floats, Floats]:
    """Residual of each point without it: ``(1 - H)^-1 r`` for its two rows at once, and spreads."""
    weights = _huber(residuals, data)
    weighted = slopes * weights[:, None]
    found, spreads = np.zeros((data // 2, 2)), np.zeros((data // 2, 2))
    for point in range(data // 2):
        rows = slice(2 * point, 2 * point + 2)
        free = np.linalg.inv(np.eye(2) - weighted[rows] @ covariance @ weighted[rows].T)
        left = free @ (residuals[rows] * weights[rows])
        found[point] = -left / weights[rows] * [TPOT_ERROR, TTFT_ERROR]
        spreads[point] = np.sqrt(np.diag(free)) / weights[rows]
    return found, spreads
