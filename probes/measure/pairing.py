"""Drives the loads of a comparison: pairs A B, B A, ... of the same requests."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from advisor.errors import EngineFailed, RooftuneError
from advisor.measurement.asked import MeasurePlan
from advisor.measurement.comparison import PairedLoad
from advisor.measurement.protocol.pairs import Arm, abba
from advisor.measurement.records import LoopKind
from advisor.measurement.report import Rank
from advisor.measurement.rounds import PlannedLoad, requests_of
from advisor.states import FailureKind
from probes.measure.driver import AGAIN, broken_off
from probes.measure.loader import Loader, Progress, fitted, resolved_levels
from probes.measure.server import Server
from probes.measure.workload import Deal, Dealer, Workload

# Opens one side: an endpoint as it runs, an engine of ours by a start of its own.
OpenSide = Callable[[], AbstractContextManager[Server]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The loads of all whole pairs, in order, and how it ended."""

    loads: tuple[PairedLoad, ...]
    complete: bool
    remarks: tuple[str, ...]


@dataclass(kw_only=True)
class Pairing:
    """One comparison. `loads` begins with those of an earlier run.

    Both loads of a pair send the same requests. With `repeats` all pairs do; without it, where a
    prefix cache can neither be emptied nor kept apart, every pair has requests of its own.
    `max_model_len` is the smaller length of both sides, None where that is told by the first start.
    """

    sides: Mapping[Arm, OpenSide]
    workload: Workload
    plan: MeasurePlan
    pairs: int
    repeats: bool
    max_model_len: int | None
    progress: Callable[[Progress], None]
    taken: Callable[[Paired], None]
    cancelled: threading.Event
    loads: list[PairedLoad] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    _remarks: list[str] = field(default_factory=list)
    _dealer: Dealer | None = None
    _not_fitting: int = 0
    _warm: set[Arm] = field(default_factory=set)
    _longest_s: float = 0.0

    def run(self) -> Paired:
        """Make the pairs that are missing, until the budget is spent or it is cancelled.

        A side that is lost ends it with the whole pairs; before the first one it raises
        `Unavailable` or `EngineFailed`.
        """
        self._began_s = self.clock()
        self._levels = resolved_levels(self.plan, self.workload)
        done = {load.pair for load in self.loads}
        complete = True
        try:
            for pair, order in enumerate(abba(self.pairs), 1):
                if pair in done:
                    continue
                if self._spent_s() + self._longest_s > self.plan.budget_s:
                    self._remarks.append(
                        f"the budget of {self.plan.budget_s:.0f} s ended after"
                        f" {len({load.pair for load in self.loads})} of {self.pairs} pairs;"
                        f" {AGAIN} and a larger --budget"
                    )
                    complete = False
                    break
                began_s = self.clock()
                self.loads += list(self._pair(pair, order))
                self._longest_s = max(self._longest_s, self.clock() - began_s)
                self.taken(self.so_far())
        except RooftuneError as error:
            complete = False
            self._remarks.append(broken_off(error, kept=bool(self.loads)))
        return self.so_far(complete=complete)

    def so_far(self, *, complete: bool = False) -> Paired:
        """The whole pairs until now."""
        return Paired(
            loads=tuple(self.loads), complete=complete, remarks=tuple(dict.fromkeys(self._remarks))
        )

    def _spent_s(self) -> float:
        return self.clock() - self._began_s

    def _pair(self, pair: int, order: tuple[Arm, Arm]) -> Iterator[PairedLoad]:
        """Both sides on the same deals, all levels of a side in a row."""
        deals: dict[float, Deal] = {}
        for arm in order:
            with self.sides[arm]() as server:
                dealer = self._dealer or self._deal_out(server)
                loader = self._loader(server, arm)
                if arm not in self._warm:
                    loader.warm_up(dealer, self._levels[-1])
                if server.rank is not Rank.OWN_ENGINE:
                    self._warm.add(arm)  # one of ours has just been started, every time
                for level in self._levels:
                    if self.cancelled.is_set():
                        raise EngineFailed(FailureKind.CANCELLED, "interrupted")
                    requests = requests_of(self.plan, level)
                    planned = PlannedLoad(level=level, repeat=pair, requests=requests)
                    if level not in deals:
                        deals[level] = dealer.deal(requests)
                    taken = loader.load(planned, deals[level])
                    yield PairedLoad(arm=arm, pair=pair, level=level, point=taken.point)

    def _deal_out(self, server: Server) -> Dealer:
        length = self.max_model_len or server.identity.max_model_len
        found = fitted(self.plan, server, self.workload, length)
        self._remarks += found.remarks
        self._not_fitting = found.not_fitting
        self._dealer = Dealer(
            workload=found.workload,
            seed=self.plan.seed,
            repeats=self.repeats,
            recorded=self.plan.arrivals == "recorded" and self.plan.kind is LoopKind.OPEN,
        )
        return self._dealer

    def _loader(self, server: Server, arm: Arm) -> Loader:
        return Loader(
            server=server,
            workload=self.workload,
            plan=self.plan,
            cancelled=self.cancelled,
            told=self.progress,
            spent_s=self._spent_s,
            not_fitting=self._not_fitting,
            arm=arm.value,
        )
