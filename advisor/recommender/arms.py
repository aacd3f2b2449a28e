"""Measured configurations side by side: their usable points, the noise floor and the drift."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.estimate import Estimate, Source
from advisor.goal import Objective
from advisor.measurement.noise import (
    THROUGHPUT_PRIOR,
    TPOT_PRIOR,
    TTFT_PRIOR,
    NoiseFit,
    NoisePrior,
    fit_noise,
)
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.evidence import StudyEvidence, TrialEvidence
from advisor.recommender.recommendation import NoiseFloor

BASIS = "t interval of the noise floor"
Figure = Callable[[LoadPoint], float | None]
# By configuration hash, requests in flight and digest of the requests that were replayed: one tuple
# of values per engine start, in the order of the trials.
Starts = dict[tuple[str, int, str], tuple[tuple[float, ...], ...]]


def throughput(point: LoadPoint) -> float | None:
    """Output tokens/s, None when nothing came out."""
    return point.throughput_tokens_per_s.value or None


def full_throughput(point: LoadPoint) -> float | None:
    """Output tokens/s at full load, without the drain of a replay; for gangs over their span."""
    return point.loaded_tokens_per_s or throughput(point)


def swiftness(point: LoadPoint) -> float | None:
    """Requests per second of waiting: more is better, as for throughput."""
    return 1 / point.e2e_s.mean if point.e2e_s is not None and point.e2e_s.mean > 0 else None


def ttft_p95(point: LoadPoint) -> float | None:
    """Seconds."""
    return point.ttft_s.p95 if point.ttft_s is not None and point.ttft_s.p95 > 0 else None


def tpot_p95(point: LoadPoint) -> float | None:
    """Seconds."""
    return point.tpot_s.p95 if point.tpot_s is not None and point.tpot_s.p95 > 0 else None


def pace_of(label: str) -> Figure:
    """Tokens per second of one request of a class: the inverse of its mean TPOT."""

    def pace(point: LoadPoint) -> float | None:
        for figures in point.classes:
            if figures.label == label and figures.tpot_s is not None and figures.tpot_s.mean > 0:
                return 1 / figures.tpot_s.mean
        return None

    return pace


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """Values of `figure` on every configuration of a study.

    Configurations are only compared on the same requests: `subsets[load]` are the digests of what
    was replayed at that many requests in flight, with how many requests, the largest set first.
    `noise` is pooled over repeats within and between starts, `within` over those within a start.
    """

    baseline: str
    starts: Starts
    subsets: Mapping[int, Mapping[str, int]]
    noise: NoiseFit
    within: NoiseFit

    def values(self, config_hash: str, concurrency: int) -> tuple[float, ...]:
        """All repeats of all starts, on the requests that the comparison is about."""
        subset = self._subset(config_hash, concurrency)
        return () if subset is None else self._on(config_hash, concurrency, subset)

    def drift(self, concurrency: int) -> float | None:
        """Log ratio of the baseline's last start over its first; None with fewer than two."""
        subset = self._subset(self.baseline, concurrency)
        starts = self.starts.get((self.baseline, concurrency, subset or ""), ())
        return None if len(starts) <= 1 else log_mean(starts[-1]) - log_mean(starts[0])

    def figure(self, config_hash: str, concurrency: int) -> Estimate | None:
        """Geometric mean of the repeats with its interval.

        A configuration that was only measured on fewer requests than the baseline is given the
        baseline's figure times its ratio, so that all figures are about the same requests.
        """
        values = self.values(config_hash, concurrency)
        if not values:
            return None
        scale = 0.0
        base = self._subset(self.baseline, concurrency)
        if base is not None and base != self._subset(config_hash, concurrency):
            ratio = self.ratio(config_hash, concurrency)
            if ratio is not None:
                whole = self._on(self.baseline, concurrency, base)
                scale = log_mean(whole) + math.log(ratio.value) - log_mean(values)
        half = self.noise.half_width(len(values))
        return interval(log_mean(values) + scale, half, self._basis(values))

    def ratio(self, config_hash: str, concurrency: int) -> Estimate | None:
        """Configuration over baseline; the drift between baseline starts widens the interval."""
        subset = self._subset(config_hash, concurrency)
        if subset is None:
            return None
        before = self._on(self.baseline, concurrency, subset)
        after = self._on(config_hash, concurrency, subset)
        if not before:
            return None
        half = self.noise.half_width(len(before), len(after))
        half = math.hypot(half, (self.drift(concurrency) or 0.0) / 2)
        sizes = self.subsets[concurrency]
        few = "" if sizes[subset] == max(sizes.values()) else f" of only {sizes[subset]} requests"
        counts = f"{len(after)} against {len(before)} points{few}, {BASIS}"
        return interval(log_mean(after) - log_mean(before), half, counts)

    def _on(self, config_hash: str, concurrency: int, subset: str) -> tuple[float, ...]:
        return tuple(itertools.chain(*self.starts.get((config_hash, concurrency, subset), ())))

    def _subset(self, config_hash: str, concurrency: int) -> str | None:
        """The largest set of requests measured on it and on the baseline, else on it alone."""
        mine = [
            subset
            for subset in self.subsets.get(concurrency, {})
            if (config_hash, concurrency, subset) in self.starts
        ]
        both = [s for s in mine if (self.baseline, concurrency, s) in self.starts]
        return next(iter(both or mine), None)

    def _basis(self, values: Sequence[float]) -> str:
        count = len(values)
        return f"{count} point{'s' if count > 1 else ''}, {BASIS}"


def log_mean(values: Sequence[float]) -> float:
    """Mean of the logarithms of positive values."""
    return sum(math.log(value) for value in values) / len(values)


def interval(log_value: float, half: float, basis: str) -> Estimate:
    """A measured figure from its logarithm and half of the interval of that."""
    return Estimate(
        value=math.exp(log_value),
        low=math.exp(log_value - half),
        high=math.exp(log_value + half),
        source=Source.MEASURED,
        basis=basis,
    )


def objective_figure(evidence: StudyEvidence) -> Figure:
    """What the goal wants more of: tokens/s, or short waiting."""
    return throughput if evidence.goal.objective is Objective.THROUGHPUT else swiftness


def objective_arms(evidence: StudyEvidence) -> Arms:
    """The goal's objective."""
    return arms_of(evidence, objective_figure(evidence), THROUGHPUT_PRIOR)


def matched_ratio(
    before: Sequence[LoadPoint], after: Sequence[LoadPoint], figure: Figure, noise: NoiseFit
) -> Estimate | None:
    """`after` over `before` on the requests that both replayed, the larger set where several are.

    None where they share none with a figure.
    """
    sizes = {point.subset_digest: point.requests for point in (*before, *after)}
    for subset in sorted(sizes, key=lambda digest: (-sizes[digest], digest)):
        sides = [
            [
                value
                for point in points
                if point.subset_digest == subset and (value := figure(point)) is not None
            ]
            for points in (before, after)
        ]
        if all(sides):
            half = noise.half_width(len(sides[0]), len(sides[1]))
            return interval(
                log_mean(sides[1]) - log_mean(sides[0]),
                half,
                f"{len(sides[1])} against {len(sides[0])} points of {sizes[subset]} requests,"
                f" {BASIS}",
            )
    return None


def throughput_arms(evidence: StudyEvidence) -> Arms:
    """Output tokens/s."""
    return arms_of(evidence, throughput, THROUGHPUT_PRIOR)


def ttft_arms(evidence: StudyEvidence) -> Arms:
    """95th percentile of the time to first token, seconds."""
    return arms_of(evidence, ttft_p95, TTFT_PRIOR)


def tpot_arms(evidence: StudyEvidence) -> Arms:
    """95th percentile of the time per output token, seconds."""
    return arms_of(evidence, tpot_p95, TPOT_PRIOR)


def class_arms(evidence: StudyEvidence) -> dict[str, Arms]:
    """Pace of a single request, by class; the noise floor is pooled over the classes."""
    labels = sorted({item.label for _, point in usable_points(evidence) for item in point.classes})
    starts = {label: _starts(evidence, pace_of(label)) for label in labels}
    noise, within = _noise(starts.values(), TPOT_PRIOR)
    return {
        label: Arms(
            baseline=evidence.baseline.hash,
            starts=by_load,
            subsets=_subsets(evidence),
            noise=noise,
            within=within,
        )
        for label, by_load in starts.items()
    }


def arms_of(evidence: StudyEvidence, figure: Figure, prior: NoisePrior) -> Arms:
    """The study's usable points read through `figure`."""
    starts = _starts(evidence, figure)
    noise, within = _noise([starts], prior)
    return Arms(
        baseline=evidence.baseline.hash,
        starts=starts,
        subsets=_subsets(evidence),
        noise=noise,
        within=within,
    )


def usable_points(
    evidence: StudyEvidence, role: LoadRole = LoadRole.PROBE
) -> Iterator[tuple[TrialEvidence, LoadPoint]]:
    """Points of one role that may be compared, with their trial."""
    for trial in evidence.trials:
        for point in trial.points:
            if point.usable and point.role is role:
                yield trial, point


def noise_floor(arms: Arms) -> NoiseFloor:
    """The noise floor as a recommendation states it."""
    return NoiseFloor(
        relative_sd=arms.noise.relative_sd(),
        repeats=arms.noise.repeats,
        basis=arms.noise.basis,
    )


def _starts(evidence: StudyEvidence, figure: Figure) -> Starts:
    found: dict[tuple[str, int, str], dict[str, list[float]]] = {}
    hashes = {trial.plan.key: trial.plan.config.hash for trial in evidence.trials}
    for trial, point in usable_points(evidence):
        value = figure(point)
        if value is not None:
            load = (hashes[trial.plan.key], point.concurrency, point.subset_digest)
            by_trial = found.setdefault(load, {})
            by_trial.setdefault(trial.plan.key, []).append(value)
    return {key: tuple(map(tuple, by_trial.values())) for key, by_trial in found.items()}


def _subsets(evidence: StudyEvidence) -> dict[int, dict[str, int]]:
    """What was replayed at each load with its number of requests, the largest set first."""
    sizes: dict[int, dict[str, int]] = {}
    for _, point in usable_points(evidence):
        sizes.setdefault(point.concurrency, {})[point.subset_digest] = point.requests
    return {
        load: dict(sorted(found.items(), key=lambda item: -item[1]))
        for load, found in sizes.items()
    }


def _noise(tables: Iterable[Starts], prior: NoisePrior) -> tuple[NoiseFit, NoiseFit]:
    """The noise over all repeats of a load, and over those within a start."""
    groups = [starts for table in tables for starts in table.values()]
    return (
        fit_noise([tuple(itertools.chain(*starts)) for starts in groups], prior),
        fit_noise(itertools.chain(*groups), prior),
    )
