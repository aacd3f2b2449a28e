"""Makes the loads of one server and tells how they get on; its first ones warm it up."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.canonical import digest
from advisor.errors import Unavailable
from advisor.measurement.asked import MeasurePlan, Stop
from advisor.measurement.records import LoopKind, Outcome, RequestRecord
from advisor.measurement.rounds import PlannedLoad
from probes.measure.loads import Taken, take
from probes.measure.sending import Shot, recorded_rate_per_s, rule_of
from probes.measure.server import Server
from probes.measure.workload import Deal, Dealer, Workload

MEASURING = "measuring"
WARM_TOKENS = 16
WARM_REQUESTS = 32
# What an answer that failed means for the user; anything else is named as it is.
_MEANINGS: Mapping[str, tuple[str, str]] = {
    "http_401": ("refuses the key", "give its key as a file: --api-key-file"),
    "http_403": ("refuses the key", "give its key as a file: --api-key-file"),
    "http_404": ("does not know the route or the model", "check the address and --model"),
    "http_429": ("refuses requests for their rate", "ask for a lower load, or lift its limit"),
    "not_a_stream": ("does not stream its answers", "times per token need a streaming endpoint"),
    "timeout:idle": ("began an answer and fell silent", "look into the server's log"),
    "timeout:connect": ("does not take connections", "check the address and the network"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is going on. `level` and `repeat` are None while nothing is measured yet.

    `spent_s` is the time since the start, `budget_s` what there is of it; `arm` is the side of a
    comparison.
    """

    phase: str
    done: int
    total: int
    spent_s: float
    budget_s: float
    level: float | None = None
    repeat: int | None = None
    arm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The requests that fit the server, how many do not, and what is to be said of both."""

    workload: Workload
    not_fitting: int
    remarks: tuple[str, ...]


def fitted(
    plan: MeasurePlan, server: Server, workload: Workload, max_model_len: int | None
) -> Fitted:
    """Leave out what does not fit `max_model_len` tokens (None: nothing is known of it)."""
    rule = rule_of(plan, server, workload)
    fitting, not_fitting, remarks = workload, 0, []
    if max_model_len is not None:
        fitting, split = workload.fitting(rule, max_model_len)
        not_fitting = len(split.not_fitting)
        remarks += [] if split.told is None else [split.told]
    if plan.stop is Stop.RECORDED and not rule.fixed:
        remarks.append("answers end where they end: only vLLM is known to keep to recorded lengths")
    return Fitted(workload=fitting, not_fitting=not_fitting, remarks=tuple(remarks))


def resolved_levels(plan: MeasurePlan, workload: Workload) -> tuple[float, ...]:
    """The levels upwards, each once; multiples of the recorded rate as rates."""
    levels = plan.levels
    if plan.kind is LoopKind.OPEN and plan.arrivals == "recorded":
        rate_per_s = recorded_rate_per_s(workload)
        levels = tuple(level * rate_per_s for level in levels)
    return tuple(sorted(set(levels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads of `workload` on `server`; `not_fitting` of its requests are not sent.

    `spent_s` is asked for the time since the start.
    """

    server: Server
    workload: Workload
    plan: MeasurePlan
    cancelled: threading.Event
    told: Callable[[Progress], None]
    spent_s: Callable[[], float]
    not_fitting: int = 0
    arm: str | None = None

    def load(self, planned: PlannedLoad, deal: Deal) -> Taken:
        """One measured load."""
        return self._take(planned, deal, self.plan, phase=MEASURING)

    def warm_up(self, dealer: Dealer, highest: float) -> None:
        """One request alone, whose failure tells what is wrong; then short ones at once.

        Nothing of it is recorded. `highest` is the highest level that is measured.
        """
        plan = replace(
            self.plan,
            kind=LoopKind.CLOSED,
            levels=(1.0,),
            stop=Stop.NATURAL,
            cap_tokens=WARM_TOKENS,
            default_tokens=WARM_TOKENS,
            slo=None,
        )
        most = int(highest) if self.plan.kind is LoopKind.CLOSED else WARM_REQUESTS // 4
        for count in (1, min(most, WARM_REQUESTS)):
            planned = PlannedLoad(level=float(count), repeat=1, requests=count)
            taken = self._take(planned, dealer.deal(count), plan, phase="warming up")
            if taken.point.succeeded == 0:
                raise self._refusal(taken.records)

    def _take(self, planned: PlannedLoad, deal: Deal, plan: MeasurePlan, *, phase: str) -> Taken:
        measuring = phase == MEASURING

        def told(done: int, total: int) -> None:
            self.told(
                Progress(
                    phase=phase,
                    done=done,
                    total=total,
                    spent_s=self.spent_s(),
                    budget_s=self.plan.budget_s,
                    level=planned.level if measuring else None,
                    repeat=planned.repeat if measuring else None,
                    arm=self.arm,
                )
            )

        told(0, len(deal.workload.requests))
        ids = [request.id for request in deal.workload.requests]
        shot = Shot(
            planned=planned,
            deal=deal,
            digest=digest({"workload": self.workload.digest, "requests": ids}),
            not_fitting=self.not_fitting,
        )
        return take(self.server, plan, shot, cancelled=self.cancelled, on_progress=told)

    def _refusal(self, records: Sequence[RequestRecord]) -> Unavailable:
        kinds = [record.error or record.outcome.value for record in records]
        kind = next(kind for kind in kinds if kind != Outcome.OK.value)
        found = _MEANINGS.get(kind.partition(":")[0]) or _MEANINGS.get(kind)
        what, remedy = found or ("answers no request", "look into the server's log")
        return Unavailable(f"{self.server.address.shown} {what} ({kind})", remedy)
