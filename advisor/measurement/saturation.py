"""Where throughput stops rising with the number of requests in flight, and what holds it there.

Handbook 4.2 and 4.3: the capped affine model ``X(N) = min(N, Nc) / (T0 + T1 min(N, Nc))``.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.measurement.knee import PLATEAU_SHARE, Curves, Floats, Ladder, fit_knee
from advisor.measurement.noise import NoiseFit, fit_noise
from advisor.measurement.plateau import Plateau, plateau_of
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.traffic.figures import Quantiles

_LEAST_LOADS = 3
_LEVEL = (2.5, 97.5)
# What the form of the curve may add: on engines of another form the fitted knee was 0.84 to 1.07
# of the true one (handbook 4.3).
_FORM = 1.15
# A doubling of the requests in flight that yields less than this shows nothing new.
_RISE = 0.05
_MOSTLY = 0.5


class Binding(StrEnum):
    """The resource that ends the rise."""

    COMPUTE = "compute"
    MEMORY_BANDWIDTH = "memory bandwidth"
    KV_CAPACITY = "KV cache capacity"
    SCHEDULER_CAP = "scheduler cap (max_num_seqs)"
    CLIENT = "client"
    NOTHING = "nothing yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One load of the ladder: means over its repeats, times in seconds."""

    concurrency: int
    repeats: int
    throughput_tokens_per_s: Estimate
    ttft_p50_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    kv_peak_usage: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """The ladder with its fit. All intervals are nominal 95 %.

    `concurrency` is the smallest load that reaches 0.9 of `plateau_tokens_per_s`, the highest
    throughput of the fit inside the tested range. `step_s` is T0 and `step_s_per_request` T1: what
    a step costs at all, and for each request in it (prompts included). `cap` is Nc, None where the
    curve is affine to its end. `saturated` says whether the curve has flattened inside the tested
    range; else `concurrency` is the top load, which is the least that it can be.
    """

    rungs: tuple[Rung, ...]
    concurrency: Estimate
    plateau_tokens_per_s: Estimate
    step_s: Estimate
    step_s_per_request: Estimate
    cap: Estimate | None
    saturated: bool
    binding: Binding
    reason: str


def ladder(top: int) -> tuple[int, ...]:
    """1, 2, 4, ... up to `top`, which is always the last."""
    rungs = [1]
    while rungs[-1] * 2 <= top:
        rungs.append(rungs[-1] * 2)
    return (*rungs, top) if rungs[-1] != top else tuple(rungs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """The usable points of one load; means are of logarithms."""

    concurrency: int
    points: tuple[LoadPoint, ...]

    @property
    def log_throughput(self) -> float:
        logs = [math.log(point.throughput_tokens_per_s.value) for point in self.points]
        return sum(logs) / len(logs)

    @property
    def in_flight(self) -> float:
        """Requests in flight over the whole span that throughput is counted over.

        With few requests that span is mostly ramp and drain, in which fewer are in flight than
        planned: throughput belongs to that mean (Little's law), not to the planned load.
        """
        logs = [math.log(point.in_flight_mean) for point in self.points]
        return min(float(self.concurrency), math.exp(sum(logs) / len(logs)))


def past_saturation(points: Sequence[LoadPoint]) -> bool:
    """Whether a higher load than those measured would show nothing new.

    True when the highest load yields less than 5 % more than a load of at most half of it, for
    each doubling of the requests that were in flight, or less than one standard error more.
    """
    loads = _loads(points)
    lower = [load for load in loads if load.concurrency * 2 <= loads[-1].concurrency]
    if not lower:
        return False
    top, half = loads[-1], lower[-1]
    doublings = math.log2(top.in_flight / half.in_flight)
    if doublings < _MOSTLY:
        return False  # mostly ramp and drain: the load was hardly higher
    noise = _noise(loads)
    error = noise.scale * math.sqrt(1 / len(top.points) + 1 / len(half.points))
    rise = top.log_throughput - half.log_throughput
    return rise < max(math.log1p(_RISE) * doublings, error)


def fit_saturation(
    points: Sequence[LoadPoint],
    *,
    max_num_seqs: int | None,
    seed: int = 0,
    cache_read_share: float | None = None,
) -> Saturation | None:
    """The knee from usable closed-loop points of one configuration; None below three loads.

    `max_num_seqs` is the engine's own. `cache_read_share` is the share of what one more request
    costs that is reading its cache (`roofline.calibration`): above a half, a knee that nothing
    else explains is called memory bandwidth, and compute otherwise.
    """
    loads = _loads(points)
    if len(loads) < _LEAST_LOADS:
        return None
    noise = _noise(loads)
    curve, resamples = fit_knee(
        Ladder(
            in_flight=np.array([load.in_flight for load in loads]),
            log_throughput=np.array([load.log_throughput for load in loads]),
            repeats=np.array([float(len(load.points)) for load in loads]),
            top=float(loads[-1].concurrency),
            variance=noise.scale**2,
            degrees_of_freedom=noise.degrees_of_freedom,
        ),
        seed=seed,
    )
    fit = _Fit(loads=loads, curve=curve, resamples=resamples, basis=_basis(loads, noise))
    binding, cause = _binding(fit, max_num_seqs, cache_read_share)
    saturated = binding is not Binding.NOTHING
    return Saturation(
        rungs=_rungs(loads, noise),
        concurrency=fit.concurrency(saturated=saturated),
        plateau_tokens_per_s=fit.estimate(curve.plateau, resamples.plateau),
        step_s=fit.estimate(curve.step_s, resamples.step_s),
        step_s_per_request=fit.estimate(curve.step_s_per_request, resamples.step_s_per_request),
        cap=fit.cap,
        saturated=saturated,
        binding=binding,
        reason=fit.knee_text + cause if saturated else cause,
    )


def _loads(points: Sequence[LoadPoint]) -> tuple[_Load, ...]:
    """Usable points of the study's own subset by load, ascending."""
    groups: dict[int, list[LoadPoint]] = {}
    for point in points:
        seen = point.throughput_tokens_per_s.value > 0
        if seen and point.usable and point.role is LoadRole.PROBE:
            groups.setdefault(point.concurrency, []).append(point)
    return tuple(_Load(concurrency=load, points=tuple(groups[load])) for load in sorted(groups))


def _noise(loads: Sequence[_Load]) -> NoiseFit:
    return fit_noise(
        [point.throughput_tokens_per_s.value for point in load.points] for load in loads
    )


def _basis(loads: Sequence[_Load], noise: NoiseFit) -> str:
    return f"capped affine fit to {len(loads)} loads, residual bootstrap; {noise.basis}"


def _rungs(loads: Sequence[_Load], noise: NoiseFit) -> tuple[Rung, ...]:
    halves = {count: noise.half_width(count) for count in {len(load.points) for load in loads}}
    return tuple(_rung(load, halves[len(load.points)], noise.basis) for load in loads)


def _rung(load: _Load, half: float, basis: str) -> Rung:
    value = math.exp(load.log_throughput)
    peaks = [point.counters.peak_kv_usage for point in load.points]
    return Rung(
        concurrency=load.concurrency,
        repeats=len(load.points),
        throughput_tokens_per_s=Estimate(
            value=value,
            low=value * math.exp(-half),
            high=value * math.exp(half),
            source=Source.MEASURED,
            basis=basis,
        ),
        ttft_p50_s=_mean([at.p50 for at in _known(point.ttft_s for point in load.points)]),
        tpot_p50_s=_mean([at.p50 for at in _known(point.tpot_s for point in load.points)]),
        tpot_p95_s=_mean([at.p95 for at in _known(point.tpot_s for point in load.points)]),
        kv_peak_usage=max((peak for peak in peaks if peak is not None), default=None),
    )


def _known(values: Iterable[Quantiles | None]) -> list[Quantiles]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """The curve of a ladder and its resamples."""

    loads: tuple[_Load, ...]
    curve: Curves
    resamples: Curves
    basis: str

    @property
    def knee(self) -> float:
        return min(float(self.curve.knee[0]), self.curve.top)

    @property
    def flat(self) -> bool:
        """Whether half of the tested range reaches the plateau's share.

        Then the last doubling gained less than a ninth. A cap above that was not seen to hold.
        """
        return self.knee <= self.curve.top / 2

    @property
    def knee_text(self) -> str:
        return (
            f"{PLATEAU_SHARE:.0%} of {self.curve.plateau[0]:.4g} tokens/s is reached with"
            f" {self.knee:.3g} of up to {self.curve.top:.0f} requests in flight: "
        )

    @property
    def cap(self) -> Estimate | None:
        """Resamples without a cap count as capped at the top of the tested range."""
        if not np.isfinite(self.curve.cap[0]):
            return None
        return self.estimate(self.curve.cap, np.minimum(self.resamples.cap, self.curve.top))

    def estimate(self, value: Floats, resampled: Floats) -> Estimate:
        """The fitted value with the percentiles of the resamples."""
        found = float(value[0])
        low, high = (float(end) for end in np.percentile(resampled, _LEVEL))
        return Estimate(
            value=found,
            low=min(low, found),
            high=max(high, found),
            source=Source.MEASURED,
            basis=self.basis,
        )

    def concurrency(self, *, saturated: bool) -> Estimate:
        """The knee: the resamples' interval united with the rungs on both sides (handbook 4.3).

        Between two rungs nothing was measured: how the curve bends there is the model's word. So
        both ends are also moved outwards by what a wrong form may add.
        """
        knees = np.percentile(self.resamples.knee, _LEVEL) * (1 / _FORM, _FORM)
        low, high = (float(end) for end in np.clip(knees, 1.0, self.curve.top))
        rungs = [float(load.concurrency) for load in self.loads]
        below = max((rung for rung in rungs if rung <= self.knee), default=rungs[0])
        above = min((rung for rung in rungs if rung >= self.knee), default=rungs[-1])
        low = min(low, below, self.knee)
        if not saturated:
            return Estimate(
                value=self.curve.top,
                low=low,
                high=self.curve.top,
                source=Source.MEASURED,
                basis=f"still rising at the highest load tested: at least that; {self.basis}",
            )
        return Estimate(
            value=self.knee,
            low=low,
            high=max(high, above, self.knee),
            source=Source.MEASURED,
            basis=f"{self.basis}; united with the loads on both sides",
        )


def _plateau(fit: _Fit, max_num_seqs: int | None) -> Plateau:
    top = fit.loads[-1]
    return plateau_of(
        [point.counters for point in top.points],
        load=top.concurrency,
        in_flight=top.in_flight,
        max_num_seqs=max_num_seqs,
    )


def _held(plateau: Plateau, *, flat: bool) -> tuple[Binding, str] | None:
    """The resource that kept requests from running at once, with its figures.

    Peaks of a short load can be too low, so only a flat curve speaks against the client.
    """
    if plateau.scheduler_binds:
        return Binding.SCHEDULER_CAP, plateau.scheduler_text
    if plateau.cache_binds:
        return Binding.KV_CAPACITY, plateau.cache_text
    if plateau.client_binds and flat:
        return Binding.CLIENT, plateau.client_text
    return None


def _binding(
    fit: _Fit, max_num_seqs: int | None, cache_read_share: float | None
) -> tuple[Binding, str]:
    """What ends the rise, and a phrase with the figures that say so (handbook 4.3).

    A limit on what runs at once ends the rise only if throughput still rose up to it: where the
    knee lies below half of what ran, the steps themselves had become too slow before.
    """
    plateau = _plateau(fit, max_num_seqs)
    held = _held(plateau, flat=fit.flat)
    running = plateau.running if plateau.running is not None else max_num_seqs
    if held is not None and (running is None or fit.knee > _MOSTLY * running):
        return held
    if not fit.flat:
        return Binding.NOTHING, _rising(fit)
    step, each = float(fit.curve.step_s[0]), float(fit.curve.step_s_per_request[0])
    cost = f"a step of {step * 1e3:.3g} ms grows by {each * 1e3:.3g} ms with each request in it"
    if np.isfinite(fit.curve.cap[0]):
        cost = f"beyond {fit.curve.cap[0]:.3g} requests a step grows in proportion to them"
    if cache_read_share is not None and cache_read_share > _MOSTLY:
        text = f"{cost}, {cache_read_share:.0%} of that for reading its cache"
        return Binding.MEMORY_BANDWIDTH, text
    return Binding.COMPUTE, f"{cost}, and neither slots nor the KV cache held requests back"


def _rising(fit: _Fit) -> str:
    top = fit.curve.top
    gain = float((fit.curve.throughput(top) / fit.curve.throughput(top / 2))[0]) - 1
    return (
        f"throughput still rose by {gain:.0%} from {top / 2:g} to {top:g} requests in flight, the"
        f" highest load tested: it saturates at {top:g} or above"
    )
