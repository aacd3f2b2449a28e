"""The goal's limits on latency beside what was measured: over all requests and by class."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from advisor.estimate import Estimate
from advisor.measurement.noise import TPOT_PRIOR, TTFT_PRIOR
from advisor.measurement.records import LoadPoint
from advisor.recommender.arms import Arms, Figure, arms_of, tpot_arms, ttft_arms
from advisor.recommender.evidence import StudyEvidence
from advisor.units import seconds_text

# A 95th percentile of fewer requests is one of their few largest values: not known.
LEAST_FOR_P95 = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit that binds; `seen` is None where it was not measured, `lacking` says on what."""

    name: str
    limit_s: float
    seen: Estimate | None
    lacking: str = ""

    @property
    def excess(self) -> float:
        """How far it is missed, as a share of it; infinite where nobody knows, negative if kept."""
        return math.inf if self.seen is None else self.seen.value / self.limit_s - 1

    @property
    def complaint(self) -> str | None:
        """What is wrong, in words; None: it is kept."""
        limit = seconds_text(self.limit_s)
        if self.seen is None:
            return f"{self.name} was not measured{self.lacking}, so nobody knows if {limit} is kept"
        if self.seen.value <= self.limit_s:
            return None
        return (
            f"{self.name} of {seconds_text(self.seen.value)} is {self.excess:.0%} above the"
            f" limit of {limit}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """95th percentiles of every configuration; `classes` has those that the goal limits.

    The keys of `classes` are (class, "TTFT" or "TPOT").
    """

    ttft: Arms
    tpot: Arms
    classes: Mapping[tuple[str, str], Arms]

    @classmethod
    def of(cls, evidence: StudyEvidence) -> "Latencies":
        """The measured points of a study."""
        names = sorted(evidence.goal.class_limits)
        return cls(
            ttft=ttft_arms(evidence),
            tpot=tpot_arms(evidence),
            classes={(name, "TTFT"): arms_of(evidence, ttft_of(name), TTFT_PRIOR) for name in names}
            | {(name, "TPOT"): arms_of(evidence, tpot_of(name), TPOT_PRIOR) for name in names},
        )


def ttft_of(label: str) -> Figure:
    """95th percentile of the time to first token of one class, None below 20 requests."""

    def ttft(point: LoadPoint) -> float | None:
        found = [item.ttft_s for item in point.classes if item.label == label]
        if not found or found[0] is None or found[0].count < LEAST_FOR_P95:
            return None
        return found[0].p95 or None

    return ttft


def tpot_of(label: str) -> Figure:
    """95th percentile of the time per output token of one class, None below 20 requests."""

    def tpot(point: LoadPoint) -> float | None:
        found = [item.tpot_s for item in point.classes if item.label == label]
        if not found or found[0] is None or found[0].count < LEAST_FOR_P95:
            return None
        return found[0].p95 or None

    return tpot


def limits_of(
    evidence: StudyEvidence, latencies: Latencies | None, config_hash: str
) -> tuple[Limit, ...]:
    """The limits that bind, beside what a configuration showed at the goal's load.

    Without `latencies` nothing was measured.
    """
    return tuple(_limits(evidence, latencies, config_hash))


def _limits(
    evidence: StudyEvidence, latencies: Latencies | None, config_hash: str
) -> Iterator[Limit]:
    goal = evidence.goal

    def seen(arms: Arms | None) -> Estimate | None:
        return None if arms is None else arms.figure(config_hash, goal.concurrency)

    ttft, tpot = (None, None) if latencies is None else (latencies.ttft, latencies.tpot)
    if goal.ttft_p95_s is not None:
        yield Limit(name="TTFT p95", limit_s=goal.ttft_p95_s, seen=seen(ttft))
    if goal.tpot_p95_s is not None:
        yield Limit(name="TPOT p95", limit_s=goal.tpot_p95_s, seen=seen(tpot))
    for label, held in sorted(goal.class_limits.items()):
        for figure, limit_s in (("TTFT", held.ttft_p95_s), ("TPOT", held.tpot_p95_s)):
            if limit_s is None:
                continue
            arms = None if latencies is None else latencies.classes[label, figure]
            yield Limit(
                name=f'{figure} p95 of class "{label}"',
                limit_s=limit_s,
                seen=seen(arms),
                lacking=f" on {LEAST_FOR_P95} of its requests",
            )


def worst_excess(limits: tuple[Limit, ...]) -> float:
    """How far the worst limit is missed, as a share of it; 0: all are kept."""
    return max(0.0, *(item.excess for item in limits), 0.0)


def broken(limits: tuple[Limit, ...]) -> str | None:
    """The limits that are not kept, with how far they are missed; None: all are kept."""
    return "; ".join(text for item in limits if (text := item.complaint) is not None) or None
