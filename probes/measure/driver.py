"""Drives the loads of one measurement: warm up, each level once, the search, then repeats."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from advisor.errors import EngineFailed, RooftuneError
from advisor.measurement.asked import MeasurePlan, Salt
from advisor.measurement.capacity import Capacity, Search, Tried, TryLoad, next_load
from advisor.measurement.overload import Growth, queue_growth
from advisor.measurement.records import LoadPoint, LoopKind, RequestRecord
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
from probes.measure.loader import Loader, Progress, fitted, resolved_levels
from probes.measure.loads import Taken
from probes.measure.server import Server
from probes.measure.workload import Dealer, Workload

AGAIN = "run the command again with the same --out to go on"


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

    def run(self) -> Measured:
        """Measure until nothing is left to learn, the budget is spent or it is cancelled.

        A server that is lost on the way ends it with what was measured; before the first load it
        raises `Unavailable` or `EngineFailed`.
        """
        self._began_s = self.clock()
        self._earlier = len(self.loads)
        self._levels = resolved_levels(self.plan, self.workload)
        self._deal_out()
        try:
            if self._next() is not None:
                self._loader.warm_up(self._dealer, self._levels[-1])
            complete = self._measure_all()
        except RooftuneError as error:
            complete = False
            self._remarks.append(broken_off(error, kept=bool(self.loads)))
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

    def _deal_out(self) -> None:
        """Leave out what does not fit, and draw the order of the rest."""
        plan, server = self.plan, self.server
        found = fitted(plan, server, self.workload, server.identity.max_model_len)
        self._remarks += found.remarks
        own = server.rank is Rank.OWN_ENGINE
        self._dealer = Dealer(
            workload=found.workload,
            seed=plan.seed,
            repeats=own or server.salt(plan.salt) is not Salt.NONE,
            recorded=plan.arrivals == "recorded" and plan.kind is LoopKind.OPEN,
        )
        self._loader = Loader(
            server=server,
            workload=self.workload,
            plan=plan,
            cancelled=self.cancelled,
            told=self.listener.progress,
            spent_s=lambda: self.spent_s,
            not_fitting=found.not_fitting,
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
                    f" asked; {AGAIN} and a larger --budget"
                )
                return all(of_level(self.loads, level) for level in self._levels) and (
                    self.plan.slo is None or self._capacity is not None
                )
            self._record(self._loader.load(planned, self._dealer.deal(planned.requests)))
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


def _undecided(tried: Sequence[Tried], step: TryLoad, last: LoadPoint) -> Capacity:
    """The search gives up where a load cannot be measured."""
    return Capacity(
        load=None,
        fails_at=None,
        undecided=(step.load,),
        tries=len(tried),
        reason=f"the load could not be measured: {', '.join(last.flaws) or step.reason}",
    )


def broken_off(error: RooftuneError, *, kept: bool) -> str:
    """What is said of a run that `error` ended with something `kept`.

    Raises it where there is nothing to keep and nobody asked for the end.
    """
    cancelled = isinstance(error, EngineFailed) and error.kind == FailureKind.CANCELLED
    if not kept and not cancelled:
        raise error
    return f"{'it was interrupted' if cancelled else f'it ended early: {error}'}; {AGAIN}"
