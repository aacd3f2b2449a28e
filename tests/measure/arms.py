"""Loads on a running engine through the product's own protocol, and rounds of them, A B A."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Event

from typing_extensions import override

from advisor.canonical import digest
from advisor.errors import EngineFailed
from advisor.measurement.asked import MeasurePlan
from advisor.measurement.records import LoadPoint, LoopKind
from advisor.measurement.rounds import PlannedLoad
from advisor.states import FailureKind
from probes.measure.loads import take
from probes.measure.own import OwnServer
from probes.measure.sending import Shot
from probes.measure.workload import Deal, Workload
from probes.vllm.engine import RunningEngine
from tests.measure.contenders import Load, requests_of

# What is done around a load of arm B: nothing, or a planted slowdown.
Treatment = Callable[[], AbstractContextManager[None]]


@dataclass(kw_only=True)
class Bench:
    """Closed loads of one kind on one engine.

    `taken` counts the loads, `disturbed` those of them that other processes disturbed.
    """

    engine: RunningEngine
    load: Load
    taken: int = 0
    disturbed: int = 0

    def throughput(self, treatment: Treatment = nullcontext, *, resets: bool = True) -> float:
        """Output tokens per second of one load.

        A disturbed one is made once more: a machine that is never quiet is measured all the same.
        """
        with treatment():
            point = self._point(resets=resets)
        if point.host.disturbed and resets:
            with treatment():
                point = self._point(resets=resets)
        refuse_failures(point)
        return point.throughput_tokens_per_s.value

    def round(self, treatment: Treatment) -> "Round":
        """A load of arm B, under the treatment, between two of arm A, over the same requests."""
        before = self.throughput()
        treated = self.throughput(treatment)
        return Round(before=before, treated=treated, after=self.throughput())

    def _point(self, *, resets: bool) -> LoadPoint:
        server = OwnServer(engine=self.engine) if resets else Warm(engine=self.engine)
        requests = tuple(requests_of(self.load))
        self.taken += 1
        workload = Workload(
            digest=digest({"prompts": list(self.load.prompts), "tokens": self.load.tokens}),
            requests=requests,
            prompt_tokens=(None,) * len(requests),
            output_tokens=(None,) * len(requests),
        )
        planned = PlannedLoad(
            level=float(self.load.concurrency), requests=len(requests), repeat=self.taken
        )
        deal = Deal(workload=workload, laps=(0,) * len(requests), again=True)
        shot = Shot(planned=planned, deal=deal, digest=workload.digest, not_fitting=0)
        plan = MeasurePlan(
            kind=LoopKind.CLOSED,
            levels=(planned.level,),
            requests=len(requests),
            cap_tokens=self.load.tokens,
            default_tokens=self.load.tokens,
        )
        point = take(server, plan, shot, cancelled=Event()).point
        self.disturbed += point.host.disturbed
        return point


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Throughputs of three loads in a row: arm A, arm B, arm A again.

    What drifts evenly over the three takes nothing from B against the mean of both A.
    """

    before: float
    treated: float
    after: float

    @property
    def change(self) -> tuple[float, float]:
        """A, as the geometric mean of its two loads, and B."""
        return math.sqrt(self.before * self.after), self.treated


def refuse_failures(point: LoadPoint) -> None:
    """A load with failed requests is no figure."""
    if point.failed:
        raise EngineFailed(FailureKind.LOAD_FAILED, "; ".join(point.flaws))


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm(OwnServer):
    """An engine whose prefix cache is left as the load before left it: what the protocol avoids."""

    @override
    def fresh(self) -> None:
        """Nothing."""
