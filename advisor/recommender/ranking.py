"""Configurations in the order to prefer them: measured ones, and a combination not yet measured.

The goal's limits come first, then its objective. Configurations that the noise cannot tell apart
are ordered by how little they override.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from advisor.canonical import as_json, canonical_bytes
from advisor.estimate import Estimate, Source
from advisor.measurement.records import LoadRole
from advisor.recommender.arms import (
    objective_arms,
    throughput_arms,
)
from advisor.recommender.evidence import StudyEvidence, TrialPlan
from advisor.recommender.limits import Latencies, Limit, broken, limits_of, worst_excess
from advisor.recommender.quality import spoiled
from advisor.recommender.recommendation import RankedConfig
from advisor.recommender.screening import predicted_throughput
from advisor.recommender.space import BASELINE, combination_trial, improvements
from advisor.serving import LeverValue, ServingConfig
from advisor.techniques import Technique

BASELINE_TITLE = "Baseline"
# Half of the interval of a log ratio of means of so many points each.
HalfWidth = Callable[[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration with its figures at the goal's load, before it has a rank.

    `score` orders candidates, more is better: the measured figure of the objective, for an
    unmeasured configuration its pessimistic end. `points` counts measured points, 0: predicted.
    `excess` is how far the worst limit of the goal is missed, as a share of it; 0: all kept.
    `limits` are those that bind, beside what was seen. `spoiled` says why its answers are below the
    goal's floor.
    """

    config: ServingConfig
    title: str
    score: float
    points: int
    throughput: Estimate
    gain: Estimate
    ttft_p95_s: Estimate | None
    tpot_p95_s: Estimate | None
    excess: float
    spoiled: str | None = None
    limits: tuple[Limit, ...] = ()

    @property
    def why_not(self) -> str | None:
        """What of the goal is not kept; None: all of it is."""
        return "; ".join(text for text in (broken(self.limits), self.spoiled) if text) or None

    @property
    def feasible(self) -> bool:
        """Whether every limit of the goal and its floor for the answers are kept."""
        return self.excess <= 0 and self.spoiled is None

    @property
    def overrides(self) -> int:
        """How many levers a deployment would have to set."""
        return len(self.config.overrides())


def ranked(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> tuple[RankedConfig, ...]:
    """All candidates in order; empty when the baseline has no usable point at the goal's load."""
    arms = objective_arms(evidence)
    ordered = ordering(candidates(evidence, techniques), arms.noise.half_width)
    return tuple(
        RankedConfig(
            rank=rank,
            config=candidate.config,
            config_hash=candidate.config.hash,
            title=candidate.title,
            overrides=override_texts(candidate.config),
            throughput_tokens_per_s=candidate.throughput,
            gain=candidate.gain,
            ttft_p95_s=candidate.ttft_p95_s,
            tpot_p95_s=candidate.tpot_p95_s,
            feasible=candidate.feasible,
            tied_with_better=any(
                better.overrides < candidate.overrides
                and _tied(better, candidate, arms.noise.half_width)
                for better in ordered[: rank - 1]
            ),
            why_not=candidate.why_not,
        )
        for rank, candidate in enumerate(ordered, 1)
    )


def candidates(evidence: StudyEvidence, techniques: tuple[Technique, ...]) -> tuple[Candidate, ...]:
    """Every configuration with a usable point at the goal's load, and a predicted combination."""
    goal = evidence.goal.concurrency
    objective, output = objective_arms(evidence), throughput_arms(evidence)
    latencies = Latencies.of(evidence)
    found: dict[str, Candidate] = {}
    for trial in evidence.trials:
        config = trial.plan.config
        score = objective.figure(config.hash, goal)
        rate, gain = output.figure(config.hash, goal), objective.ratio(config.hash, goal)
        if config.hash in found or score is None or rate is None or gain is None:
            continue
        limits = limits_of(evidence, latencies, config.hash)
        found[config.hash] = Candidate(
            config=config,
            title=BASELINE_TITLE if trial.plan.key == BASELINE else trial.plan.title,
            score=score.value,
            points=len(objective.values(config.hash, goal)),
            throughput=rate,
            gain=_itself(gain) if config == evidence.baseline else gain,
            ttft_p95_s=latencies.ttft.figure(config.hash, goal),
            tpot_p95_s=latencies.tpot.figure(config.hash, goal),
            limits=limits,
            excess=worst_excess(limits),
            spoiled=spoiled(evidence, config, techniques),
        )
    baseline = found.get(evidence.baseline.hash)
    if baseline is None:
        return ()
    return (*found.values(), *_combined(evidence, techniques, found, baseline))


def ordering(candidates_: Iterable[Candidate], half_width: HalfWidth) -> tuple[Candidate, ...]:
    """Better before worse, and within the noise simpler first; then those that break a limit.

    These follow from the nearest miss on; last comes what spoils the answers.
    """
    remaining = sorted(
        candidates_,
        key=lambda c: (c.spoiled is not None, c.excess, -c.score, c.overrides, c.config.hash),
    )
    order: list[Candidate] = []
    while remaining:
        tied = [c for c in remaining if c is remaining[0] or _tied(remaining[0], c, half_width)]
        chosen = min(tied, key=lambda c: c.overrides)
        order.append(chosen)
        remaining.remove(chosen)
    return tuple(order)


def _tied(first: Candidate, second: Candidate, half_width: HalfWidth) -> bool:
    """Whether both keep the limits and the noise cannot tell them apart."""
    if not (first.feasible and second.feasible):
        return False
    apart = abs(math.log(first.score) - math.log(second.score))
    return apart <= half_width(max(1, first.points), max(1, second.points))


def unchanged(evidence: StudyEvidence) -> tuple[RankedConfig, ...]:
    """The baseline alone, for a study whose baseline has no point that may be compared.

    Its throughput is the mean of the unusable points at the goal's load, between their extremes;
    without any, the roofline's. Empty when not even that can be said.
    """
    rate = _unusable_rate(evidence) or predicted_throughput(
        evidence, evidence.baseline, evidence.goal.concurrency
    )
    if rate is None:
        return ()
    missed = broken(limits_of(evidence, None, evidence.baseline.hash))
    return (
        RankedConfig(
            rank=1,
            config=evidence.baseline,
            config_hash=evidence.baseline.hash,
            title=BASELINE_TITLE,
            overrides=override_texts(evidence.baseline),
            throughput_tokens_per_s=rate,
            gain=Estimate(
                value=1.0, low=1.0, high=1.0, source=rate.source, basis="the baseline itself"
            ),
            ttft_p95_s=None,
            tpot_p95_s=None,
            feasible=missed is None,
            tied_with_better=False,
            why_not=missed,
        ),
    )


def _unusable_rate(evidence: StudyEvidence) -> Estimate | None:
    rates = [
        point.throughput_tokens_per_s.value
        for trial in evidence.trials
        for point in trial.points
        if trial.plan.config == evidence.baseline
        and point.role is LoadRole.PROBE
        and point.concurrency == evidence.goal.concurrency
        and point.output_tokens
    ]
    if not rates:
        return None
    return Estimate(
        value=sum(rates) / len(rates),
        low=min(rates),
        high=max(rates),
        source=Source.MEASURED,
        basis=f"{len(rates)} points that are not usable for comparison, their extremes",
    )


def override_texts(config: ServingConfig) -> dict[str, str]:
    """The levers that a deployment sets, by vLLM's name, as its command line takes them."""
    return {name: _lever_text(value) for name, value in config.overrides().items()}


def _combined(
    evidence: StudyEvidence,
    techniques: tuple[Technique, ...],
    found: dict[str, Candidate],
    baseline: Candidate,
) -> tuple[Candidate, ...]:
    """The combination of all improving changes, if it exists and was not measured."""
    plan = combination_trial(evidence, techniques)
    if plan is None or plan.config.hash in found:
        return ()
    singles = [
        found[technique.variant(evidence.baseline).hash]
        for technique in improvements(evidence, techniques)
    ]
    gain = combined_gain(evidence, plan, singles)
    unseen = limits_of(evidence, None, plan.config.hash)
    return (
        Candidate(
            config=plan.config,
            title=f"{plan.title} (predicted)",
            score=baseline.score * gain.low,
            points=0,
            throughput=_scaled(baseline.throughput, gain),
            gain=gain,
            ttft_p95_s=None,
            tpot_p95_s=None,
            limits=unseen,
            excess=worst_excess(unseen),
        ),
    )


def combined_gain(
    evidence: StudyEvidence, plan: TrialPlan, singles: Sequence[Candidate]
) -> Estimate:
    """Measured gains multiplied, times how far the roofline says that they add up.

    The roofline enters only as a ratio of ratios: whether the changes get in each other's way.
    Without its word that factor is unknown, and the low end is the best single gain.
    """
    goal = evidence.goal.concurrency
    value = math.prod(single.gain.value for single in singles)
    low = math.prod(single.gain.low for single in singles)
    high = math.prod(single.gain.high for single in singles)
    rates = [
        predicted_throughput(evidence, config, goal)
        for config in (evidence.baseline, plan.config, *(single.config for single in singles))
    ]
    known = [rate.value for rate in rates if rate is not None]
    together = 1.0
    if len(known) == len(rates):
        before, after, *apart = known
        together = after / before / math.prod(rate / before for rate in apart)
    best_single = max(single.gain.low for single in singles)
    ends = (low * min(1.0, together), high * max(1.0, together), best_single, value * together)
    return Estimate(
        value=value * together,
        low=min(ends),
        high=max(ends),
        source=Source.CALIBRATED_ROOFLINE,
        basis="measured single gains multiplied, interaction by the roofline",
    )


def _scaled(baseline: Estimate, gain: Estimate) -> Estimate:
    return Estimate(
        value=baseline.value * gain.value,
        low=baseline.low * gain.low,
        high=baseline.high * gain.high,
        source=gain.source,
        basis=f"measured baseline; {gain.basis}",
    )


def _itself(gain: Estimate) -> Estimate:
    return Estimate(value=1.0, low=1.0, high=1.0, source=gain.source, basis="the baseline itself")


def _lever_text(value: LeverValue) -> str:
    plain = as_json(value)
    return plain if isinstance(plain, str) else canonical_bytes(plain).decode()
