"""Limits on latency, the share of requests that keeps them, and whether a load passes.

A load passes or fails by a test that may be looked at after every repeat, so that repeating until
it passes is no trick (handbook 11.4).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, betaincc, betaln

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.goal import ClassLimits, Goal
from advisor.measurement.acceptance import wilson
from advisor.measurement.clusters import effective_count
from advisor.measurement.protocol.intervals import design_effect
from advisor.measurement.records import Outcome, RequestRecord

# A wrong pass (or fail) of a load is at most this likely, however often it is repeated.
ERROR = 0.05
_PERCENTILE = 0.95  # the limits of a goal are on the 95th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Limits on single requests in seconds (None does not bind), and the share that must keep them.

    `label` restricts it to one class of requests.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    attainment: float = 0.9
    label: str | None = None

    def __post_init__(self) -> None:
        limits = {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "e2e_s": self.e2e_s}
        for name, limit in limits.items():
            if limit is not None and not 0 < limit < math.inf:
                raise InvalidInput(f"slo.{name}", f"{limit} is not a positive number of seconds")
        if all(limit is None for limit in limits.values()):
            raise InvalidInput("slo", "has no limit")
        if not 0 < self.attainment < 1:
            raise InvalidInput("slo.attainment", f"{self.attainment} is not between 0 and 1")

    @property
    def text(self) -> str:
        """The limits for a person."""
        named = (("TTFT", self.ttft_s), ("TPOT", self.tpot_s), ("end-to-end time", self.e2e_s))
        limits = " and ".join(
            f"{name} <= {limit:g} s" for name, limit in named if limit is not None
        )
        whose = "" if self.label is None else f" of class {self.label}"
        return f"{limits} in {self.attainment:.0%} of requests{whose}"

    def met_by(self, record: RequestRecord) -> bool:
        """Whether the request kept every limit; what is not known was not kept.

        Only a success that was seen to begin and whose tokens were counted can keep a limit; a
        success of one token has no TPOT, which then does not bind. Times count from the intended
        send time (case S-06).
        """
        if record.outcome is not Outcome.OK or not record.output_tokens:
            return False
        ttft_s, tpot_s = record.ttft_s, record.tpot_s
        if ttft_s is None or (tpot_s is None and record.output_tokens > 1):
            return False
        pairs = ((ttft_s, self.ttft_s), (tpot_s or 0.0, self.tpot_s), (record.e2e_s, self.e2e_s))
        return all(limit is None or took_s <= limit for took_s, limit in pairs)

    def share_used(self, record: RequestRecord) -> float | None:
        """The largest share of a limit that a success used up; None where none is known."""
        if record.outcome is not Outcome.OK:
            return None
        pairs = (
            (record.ttft_s, self.ttft_s),
            (record.tpot_s, self.tpot_s),
            (record.e2e_s, self.e2e_s),
        )
        known = [took / limit for took, limit in pairs if took is not None and limit is not None]
        return max(known, default=None)


def slos_of(goal: Goal) -> tuple[Slo, ...]:
    """The goal's limits on 95th percentiles, one each: 95 % of requests must keep it.

    All of them must be met, each by its own share of requests; no limit gives none.
    """
    everybody = ClassLimits(ttft_p95_s=goal.ttft_p95_s, tpot_p95_s=goal.tpot_p95_s)
    return tuple(
        slo
        for label, limits in ((None, everybody), *sorted(goal.class_limits.items()))
        for slo in _of_limits(limits, label)
    )


def _of_limits(limits: ClassLimits, label: str | None) -> Iterable[Slo]:
    if limits.ttft_p95_s is not None:
        yield Slo(ttft_s=limits.ttft_p95_s, attainment=_PERCENTILE, label=label)
    if limits.tpot_p95_s is not None:
        yield Slo(tpot_s=limits.tpot_p95_s, attainment=_PERCENTILE, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """Requests that kept the limits, of so many, as counts of independent requests.

    `requests` is the plain number; with sessions the counts are smaller (`clusters`).
    """

    met: float
    counted: float
    requests: int
    slo: Slo

    def __post_init__(self) -> None:
        if not 0 <= self.met <= self.counted or self.counted <= 0:
            raise InvalidInput("attained", f"{self.met} of {self.counted} requests")

    @property
    def estimate(self) -> Estimate:
        """The share with its 95 % interval."""
        return wilson(
            self.met,
            self.counted,
            basis=f"{self.requests} requests worth {self.counted:.0f} independent ones, Wilson",
        )

    @property
    def passed(self) -> bool:
        """Whether it is shown that the wanted share keeps the limits."""
        return _evidence(self, above=True) >= math.log(1 / ERROR)

    @property
    def failed(self) -> bool:
        """Whether it is shown that fewer do."""
        return _evidence(self, above=False) >= math.log(1 / ERROR)

    def joined(self, other: "Attained") -> "Attained":
        """Both samples of one load together."""
        if other.slo != self.slo:
            raise InvalidInput("attained", "of other limits cannot be joined")
        return Attained(
            met=self.met + other.met,
            counted=self.counted + other.counted,
            requests=self.requests + other.requests,
            slo=self.slo,
        )


def _evidence(found: Attained, *, above: bool) -> float:
    """Logarithm of the evidence that the true share lies above (or below) the wanted one.

    A likelihood ratio against the wanted share, averaged over all shares on the one side. On the
    other side it exceeds 1 / `ERROR` with a probability of at most `ERROR` at any number of looks
    (Ville's inequality; Robbins, 1970).
    """
    wanted = found.slo.attainment
    hits, misses = found.met + 1, found.counted - found.met + 1
    side = betaincc(hits, misses, wanted) if above else betainc(hits, misses, wanted)
    width = 1 - wanted if above else wanted
    if side <= 0:
        return -math.inf
    likelihood = (hits - 1) * math.log(wanted) + (misses - 1) * math.log1p(-wanted)
    return float(betaln(hits, misses)) + math.log(float(side) / width) - likelihood


def attained(records: Sequence[RequestRecord], slo: Slo) -> Attained:
    """How many requests kept the limits; failures and cancelled ones did not.

    Neighbours in time are alike as far as the sample shows it. No request of the class raises
    `InvalidInput`.
    """
    members = [record for record in records if slo.label in {None, record.label}]
    if not members:
        raise InvalidInput("records", f"hold no request for {slo.text}")
    groups: dict[tuple[str, str], list[bool]] = {}
    for index, record in enumerate(members):
        alone = record.session is None
        key = ("request", str(index)) if alone else ("session", str(record.session))
        groups.setdefault(key, []).append(slo.met_by(record))
    met = np.array([float(sum(kept)) for kept in groups.values()])
    sizes = np.array([float(len(kept)) for kept in groups.values()])
    counted = min(effective_count(met, sizes), len(members) / _alike(members, slo))
    share = float(met.sum() / sizes.sum())
    return Attained(met=share * counted, counted=counted, requests=len(members), slo=slo)


def _alike(members: Sequence[RequestRecord], slo: Slo) -> float:
    """The design effect of requests that run at once and share their steps.

    Where some miss a limit, their neighbours do. How near each came to its limit shows that also
    where none misses: a quiet minute is no proof of as many independent requests.
    """
    in_order = sorted(members, key=lambda item: item.intended_s)
    kept = np.array([slo.met_by(item) for item in in_order], dtype=float)
    near = [share for item in in_order if (share := slo.share_used(item)) is not None]
    effects = [design_effect(series) for series in (kept, np.array(near)) if len(series)]
    return max(effects)


def attainment(records: Sequence[RequestRecord], slo: Slo) -> Estimate:
    """Share of requests that kept the limits."""
    return attained(records, slo).estimate


def least_requests(slo: Slo) -> int:
    """Independent requests that a load needs to pass if every one of them keeps the limits."""
    count = 1
    while not Attained(met=count, counted=count, requests=count, slo=slo).passed:
        count += 1
    return count


def goodput_per_s(records: Sequence[RequestRecord], slo: Slo) -> float:
    """Requests per second that kept the limits, over first send to last end (handbook 12)."""
    if not records:
        raise InvalidInput("records", "are empty")
    span = max(r.end_s for r in records) - min(r.intended_s for r in records)
    if span <= 0:
        raise InvalidInput("records", "all requests began and ended at one instant")
    return sum(slo.met_by(record) for record in records) / span
