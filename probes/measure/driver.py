"""Drives the loads of one measurement: warm up, each level once, the search, then repeats."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.canonical import digest
from advisor.errors import EngineFailed, RooftuneError, Unavailable
from advisor.measurement.asked import MeasurePlan, Stop
from advisor.measurement.capacity import Capacity, Search, Tried, TryLoad, next_load
from advisor.measurement.overload import Growth, queue_growth
from advisor.measurement.records import LoadPoint, LoopKind, Outcome, RequestRecord
from advisor.measurement.report import Rank
from advisor.measurement.rounds import (
    PlannedLoad,
    expected_s,
    next_repeat,
    of_level,
    requests_of,
)
from advisor.measurement.slo import attained
from advisor.states import FailureKind
from probes.measure.loads import Taken, take
from probes.measure.sending import Shot, recorded_rate_per_s, rule_of
from probes.measure.server import Server
from probes.measure.workload import Deal, Dealer, Workload

WARM_TOKENS = 16
WARM_REQUESTS = 32
_AGAIN = "run the command again with the same --out to go on"
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

    `spent_s` is the time since the start, `budget_s` what there is of it.
    """

    phase: str
    done: int
    total: int
    spent_s: float
    budget_s: float
    level: float | None = None
    repeat: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who is told: of progress, and of each load with what the search makes of it."""

    progress: Callable[[Progress], None]
    taken: Callable[[LoadPoint, Tried | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All loads of a measurement, in order, and how it ended."""

    loads: tuple[LoadPoint, ...]
    tried: tuple[Tried, ...]
    capacity: Capacity | None
    complete: bool
    remarks: tuple[str, ...]


@dataclass
class Driver:
    """One measurement of one server. `loads` and `tried` begin with those of an earlier run."""

    server: Server
    workload: Workload
    plan: MeasurePlan
    listener: Listener
    cancelled: threading.Event
    loads: list[LoadPoint] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _capacity: Capacity | None = None
    _remarks: list[str] = field(default_factory=list)
    _not_fitting: int = 0

    def run(self) -> Measured:
        """Measure until nothing is left to learn, the budget is spent or it is cancelled.

        A server that is lost on the way ends it with what was measured; before the first load it
        raises `Unavailable` or `EngineFailed`.
        """
        self._began_s = self.clock()
        self._earlier = len(self.loads)
        self._levels = self._resolved_levels()
        self._deal_out()
        try:
            if self._next() is not None:
                self._warm_up()
            complete = self._measure_all()
        except RooftuneError as error:
            if not self.loads and not _cancelled(error):
                raise
            complete = False
            said = "it was interrupted" if _cancelled(error) else f"it ended early: {error}"
            self._remarks.append(f"{said}; {_AGAIN}")
        return self.so_far(complete=complete)

    def so_far(self, *, complete: bool = False) -> Measured:
        """What was measured until now."""
        return Measured(
            loads=tuple(self.loads),
            tried=tuple(self.tried),
            capacity=self._capacity,
            complete=complete,
            remarks=tuple(self._remarks),
        )

    @property
    def spent_s(self) -> float:
        """Seconds since the start of this run."""
        return self.clock() - self._began_s

    def _resolved_levels(self) -> tuple[float, ...]:
        """Multiples of the recorded rate as rates."""
        levels = self.plan.levels
        if self.plan.kind is LoopKind.OPEN and self.plan.arrivals == "recorded":
            rate_per_s = recorded_rate_per_s(self.workload)
            levels = tuple(level * rate_per_s for level in levels)
        return tuple(sorted(set(levels)))

    def _deal_out(self) -> None:
        """Leave out what does not fit, and draw the order of the rest."""
        plan, server = self.plan, self.server
        rule = rule_of(plan, server, self.workload)
        fitting, limit = self.workload, server.identity.max_model_len
        if limit is not None:
            fitting, split = self.workload.fitting(rule, limit)
            self._not_fitting = len(split.not_fitting)
            self._remarks += [] if split.told is None else [split.told]
        if plan.stop is Stop.RECORDED and not rule.fixed:
            self._remarks.append(
                "answers end where they end: only vLLM is known to keep to recorded lengths"
            )
        own = server.rank is Rank.OWN_ENGINE
        self._dealer = Dealer(
            workload=fitting,
            seed=plan.seed,
            repeats=own or server.salt(plan.salt).value != "none",
            recorded=plan.arrivals == "recorded" and plan.kind is LoopKind.OPEN,
        )

    def _measure_all(self) -> bool:
        """Whether all was measured that was asked for."""
        while (planned := self._next()) is not None:
            if self.cancelled.is_set():
                raise EngineFailed(FailureKind.CANCELLED, "interrupted")
            # Each run makes one load at least: going on must get on.
            spent_s = self.spent_s + expected_s(self.loads, planned)
            if len(self.loads) > self._earlier and spent_s > self.plan.budget_s:
                self._remarks.append(
                    f"the budget of {self.plan.budget_s:.0f} s is spent: not all is as precise as"
                    f" asked; {_AGAIN} and a larger --budget"
                )
                return all(of_level(self.loads, level) for level in self._levels) and (
                    self.plan.slo is None or self._capacity is not None
                )
            self._record(self._take(planned))
        return True

    def _next(self) -> PlannedLoad | None:
        once = next_repeat(replace(self.plan, most_repeats=1), self.loads, self._levels)
        if once is not None:
            return once
        if self.plan.slo is not None and self._capacity is None:
            searched = self._searched()
            if searched is not None:
                return searched
        return next_repeat(self.plan, self.loads, self._levels)

    def _searched(self) -> PlannedLoad | None:
        """The next load of the search, None once it has ended."""
        search = Search(
            lowest=self._levels[0],
            highest=self._levels[-1],
            precision=self.plan.precision,
            whole=self.plan.kind is LoopKind.CLOSED,
        )
        step = next_load(self.tried, search)
        if isinstance(step, Capacity):
            self._capacity = step
            return None
        made = of_level(self.loads, step.load)
        if len(made) >= self.plan.most_repeats + search.most_repeats:
            self._capacity = _undecided(self.tried, step, made[-1])
            return None
        return PlannedLoad(
            level=step.load, repeat=len(made) + 1, requests=requests_of(self.plan, step.load)
        )

    def _take(self, planned: PlannedLoad) -> Taken:
        deal = self._dealer.deal(planned.requests)
        return self._load(planned, deal, self.plan, phase="measuring")

    def _load(self, planned: PlannedLoad, deal: Deal, plan: MeasurePlan, *, phase: str) -> Taken:
        def told(done: int, total: int) -> None:
            measuring = phase == "measuring"
            self.listener.progress(
                Progress(
                    phase=phase,
                    done=done,
                    total=total,
                    spent_s=self.spent_s,
                    budget_s=self.plan.budget_s,
                    level=planned.level if measuring else None,
                    repeat=planned.repeat if measuring else None,
                )
            )

        told(0, len(deal.workload.requests))
        shot = Shot(
            planned=planned,
            deal=deal,
            digest=_digest(self.workload, deal),
            not_fitting=self._not_fitting,
        )
        return take(self.server, plan, shot, cancelled=self.cancelled, on_progress=told)

    def _record(self, taken: Taken) -> None:
        point = taken.point
        self.loads.append(point)
        tried = None if self.plan.slo is None else self._judged(point, taken.records)
        if tried is not None:
            self.tried.append(tried)
        self.listener.taken(point, tried)

    def _judged(self, point: LoadPoint, records: Sequence[RequestRecord]) -> Tried | None:
        """What the load says of the limits; None where neighbours disturbed it."""
        if self.plan.slo is None or point.host.disturbed:
            return None
        kept = (attained(records, self.plan.slo),)
        limited = point.client.reason if point.client and point.client.limited else None
        if point.open_loop is None:
            return Tried(load=float(point.concurrency), attained=kept, limited=limited)
        growth = queue_growth(records, least_span_s=0.9 * self.plan.least_span_s)
        return Tried(
            load=point.open_loop.rate_per_s,
            attained=kept,
            # Whether a queue grows slowly cannot be told from few requests; then the limits decide.
            holds=growth.verdict is not Growth.GROWS,
            limited=limited,
        )

    def _warm_up(self) -> None:
        """One request alone, whose failure tells what is wrong; then short ones at once.

        Nothing of it is recorded.
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
        closed = self.plan.kind is LoopKind.CLOSED
        most = int(self._levels[-1]) if closed else WARM_REQUESTS // 4
        for count in (1, min(most, WARM_REQUESTS)):
            deal = self._dealer.deal(count)
            planned = PlannedLoad(level=float(count), repeat=1, requests=count)
            taken = self._load(planned, deal, plan, phase="warming up")
            if taken.point.succeeded == 0:
                raise self._refusal(taken.records)

    def _refusal(self, records: Sequence[RequestRecord]) -> Unavailable:
        kinds = [record.error or record.outcome.value for record in records]
        kind = next(kind for kind in kinds if kind != Outcome.OK.value)
        found = _MEANINGS.get(kind.partition(":")[0]) or _MEANINGS.get(kind)
        what, remedy = found or ("answers no request", "look into the server's log")
        return Unavailable(f"{self.server.address.shown} {what} ({kind})", remedy)


def _undecided(tried: Sequence[Tried], step: TryLoad, last: LoadPoint) -> Capacity:
    """The search gives up where a load cannot be measured."""
    return Capacity(
        load=None,
        fails_at=None,
        undecided=(step.load,),
        tries=len(tried),
        reason=f"the load could not be measured: {', '.join(last.flaws) or step.reason}",
    )


def _digest(workload: Workload, deal: Deal) -> str:
    ids = [request.id for request in deal.workload.requests]
    return digest({"workload": workload.digest, "requests": ids})


def _cancelled(error: RooftuneError) -> bool:
    return isinstance(error, EngineFailed) and error.kind == FailureKind.CANCELLED
