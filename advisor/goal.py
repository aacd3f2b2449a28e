"""What the user wants: an objective at a load, within limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from advisor.errors import InvalidInput


class Objective(StrEnum):
    """What a better configuration has more or less of."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLimits:
    """Limits on percentiles of one class of requests, in seconds. None does not bind."""

    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None

    def __post_init__(self) -> None:
        _check_limits(self.ttft_p95_s, self.tpot_p95_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Objective, the load to serve (requests in flight) and limits on percentiles in seconds.

    `concurrency` is the load that the verdicts and the ranking are about; every measured load is
    reported beside it. A limit of None does not bind. `min_top1_agreement` is the quality floor:
    the share of positions at which a configuration that changes outputs must keep the baseline's
    most likely token (teacher-forced, handbook 7.3). `class_limits` bind single classes of
    requests, by name, beside the limits on all of them.
    """

    objective: Objective = Objective.THROUGHPUT
    concurrency: int = 16
    ttft_p95_s: float | None = None
    tpot_p95_s: float | None = None
    min_top1_agreement: float | None = 0.9
    class_limits: Mapping[str, ClassLimits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InvalidInput("goal.concurrency", f"{self.concurrency} is below 1")
        floor = self.min_top1_agreement
        if floor is not None and not 0 <= floor <= 1:
            raise InvalidInput("goal.min_top1_agreement", f"{floor} is not a share")
        _check_limits(self.ttft_p95_s, self.tpot_p95_s)


def _check_limits(ttft_p95_s: float | None, tpot_p95_s: float | None) -> None:
    for name, limit in (("ttft_p95_s", ttft_p95_s), ("tpot_p95_s", tpot_p95_s)):
        if limit is not None and not 0 < limit < float("inf"):
            raise InvalidInput(f"goal.{name}", f"{limit} is not a positive number of seconds")
