"""Load ladders of planted engines, written down instead of replayed: the knee is known.

Throughput comes from a step-time form that nothing in `advisor` imports. Counters say what an
engine of that kind would say at each load.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from advisor.estimate import Estimate, Source
from advisor.measurement.records import EngineCounters, LoadPoint
from advisor.measurement.saturation import Binding, fit_saturation, ladder
from advisor.traffic.figures import Quantiles
from tests.fakes.planted_world import QUIET
from tests.fakes.records import NOTHING

StepTime = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedLadder:
    """An engine that runs up to `slots` requests at once; a step of n of them takes `step_s(n)`.

    `held_by` is what keeps others from running: cache, scheduler or client.
    """

    step_s: StepTime
    slots: float = math.inf
    held_by: Binding = Binding.COMPUTE
    top: int = 32

    def throughput(self, in_flight: float) -> float:
        """Tokens per second."""
        running = min(in_flight, self.slots)
        return running / self.step_s(running)

    @property
    def knee(self) -> float:
        """The smallest load with 0.9 of the highest throughput up to the top, by search."""
        loads = np.linspace(1, self.top, 20_000)
        values = np.array([self.throughput(load) for load in loads])
        return float(loads[np.argmax(values >= 0.9 * values.max())])

    @property
    def max_num_seqs(self) -> int:
        """What the engine of this kind would be started with."""
        return int(self.slots) if self.held_by is Binding.SCHEDULER_CAP else 256

    def points(
        self, rng: np.random.Generator, *, sd: float = 0.02, repeats: int = 1
    ) -> tuple[LoadPoint, ...]:
        """Every rung `repeats` times with lognormal noise of `sd`."""
        return tuple(
            load_point(
                load,
                self.throughput(load) * math.exp(rng.normal(0, sd)),
                repeat=repeat,
                step_s=self.step_s(min(load, self.slots)),
                counters=self.counters(load),
            )
            for load in ladder(self.top)
            for repeat in range(1, repeats + 1)
        )

    def counters(self, load: int) -> EngineCounters:
        """Gauges and preemptions at one load."""
        running = int(min(load, self.slots))
        left = load - running
        inside = self.held_by is not Binding.CLIENT
        full = self.held_by is Binding.KV_CAPACITY
        return counters(
            peak_running=running,
            peak_waiting=left if inside else 0,
            peak_kv_usage=min(1.0, load / self.slots) if full else 0.01 * running,
            preemptions=left if full else 0,
        )


def affine(step_s: float, step_s_per_request: float) -> StepTime:
    """``T0 + T1 n``."""
    return lambda running: step_s + step_s_per_request * running


def max_plus(weights_s: float, request_s: float, cache_s: float, fixed_s: float) -> StepTime:
    """Reading weights or computing, whichever is slower, then reading the cache and the rest."""
    return lambda running: max(weights_s, request_s * running) + cache_s * running + fixed_s


def counters(**gauges: float) -> EngineCounters:
    """Counters of an engine that did nothing but show these gauges."""
    return replace(NOTHING, **gauges)  # type: ignore[arg-type]


def load_point(
    concurrency: int,
    tokens_per_s: float,
    *,
    repeat: int = 1,
    step_s: float = 0.05,
    in_flight: float | None = None,
    counters: EngineCounters,
) -> LoadPoint:
    """A quiet, usable point with this throughput."""
    return LoadPoint(
        concurrency=concurrency,
        repeat=repeat,
        subset_digest="planted",
        requests=64,
        succeeded=64,
        failed=0,
        failures={},
        duration_s=60.0,
        throughput_tokens_per_s=_exactly(tokens_per_s),
        requests_per_s=1.0,
        output_tokens=round(60 * tokens_per_s),
        prompt_tokens=6400,
        ttft_s=_all_equal(4 * step_s),
        tpot_s=_all_equal(step_s),
        e2e_s=None,
        classes=(),
        acceptance=None,
        tokens_per_engine_step=None,
        prefix_hit_share=None,
        in_flight_mean=float(concurrency) if in_flight is None else in_flight,
        counters=counters,
        host=QUIET,
        usable=True,
    )


def _exactly(value: float) -> Estimate:
    return Estimate(value=value, low=value, high=value, source=Source.MEASURED, basis="planted")


def _all_equal(value: float) -> Quantiles:
    return Quantiles(
        count=64,
        unknown=0,
        mean=value,
        p5=value,
        p25=value,
        p50=value,
        p75=value,
        p95=value,
        max=value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Many noisy ladders of one planted engine: shares of the runs, and the median width.

    `held` is the share whose interval holds the true knee, `causes` the share whose binding
    resource is right, `width` the high end of the interval over its low end.
    """

    held: float
    causes: float
    width: float


def repeated(planted: PlantedLadder, *, runs: int, seed: int = 17) -> Repeated:
    """`runs` ladders with one or two points per rung, each with noise of its own."""
    truth = planted.knee
    rng = np.random.default_rng(seed)
    found = []
    for run in range(runs):
        points = planted.points(rng, repeats=1 + run % 2)
        fit = fit_saturation(points, max_num_seqs=planted.max_num_seqs, seed=run)
        if fit is not None:
            found.append(fit)
    knees = [fit.concurrency for fit in found]
    return Repeated(
        held=sum(knee.low <= truth <= knee.high for knee in knees) / runs,
        causes=sum(fit.binding is planted.held_by for fit in found) / runs,
        width=float(np.median([knee.high / knee.low for knee in knees])),
    )


COMPUTE = PlantedLadder(step_s=affine(0.02, 0.006))
CACHE = PlantedLadder(step_s=affine(0.02, 0.0006), slots=11, held_by=Binding.KV_CAPACITY)
SCHEDULER = PlantedLadder(step_s=affine(0.02, 0.0004), slots=8, held_by=Binding.SCHEDULER_CAP)
CLIENT = PlantedLadder(step_s=affine(0.02, 0.001), slots=6, held_by=Binding.CLIENT)
MAX_PLUS = PlantedLadder(step_s=max_plus(0.02, 0.0025, 0.0001, 0.002))
STEEP = PlantedLadder(step_s=affine(0.01, 0.006))
RISING = PlantedLadder(step_s=affine(0.02, 0.0002))
# The four kinds of resource that bind, and two more forms of the step time.
BOUND = {"compute": COMPUTE, "kv": CACHE, "scheduler": SCHEDULER, "client": CLIENT}
KINDS = {**BOUND, "max-plus": MAX_PLUS, "steep": STEEP}
