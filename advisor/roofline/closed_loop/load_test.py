"""Load tests of one served model: closed loops with what a client measured at each."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.closed_loop.loop import ClosedLoop, LoopTimes
from advisor.roofline.closed_loop.run import run_closed_loop
from advisor.roofline.closed_loop.scales import Scales, from_logs, scaled_tables
from advisor.roofline.step.machine import Machine
from advisor.roofline.step.served import ServedModel
from advisor.roofline.step.steptime import TableLimits

Floats = NDArray[np.float64]
_NEAR = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One load test: the loop, how many requests were sent, and their mean TTFT and TPOT."""

    loop: ClosedLoop
    requests: int
    ttft_s: float
    tpot_s: float

    def __post_init__(self) -> None:
        if self.requests < 1 or not (self.ttft_s > 0 and self.tpot_s > 0):
            raise InvalidInput("load_point", "has requests, and times above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """The points of one served model on one machine (its assumed shares); `room` scales per loop.

    A loop's `cache_tokens` is what the memory model says; its delays are replaced by the scales'.
    """

    served: ServedModel
    machine: Machine
    points: tuple[LoadPoint, ...]
    limits: TableLimits = field(init=False)

    def __post_init__(self) -> None:
        if not self.points:
            raise InvalidInput("load_test.points", "are none")
        object.__setattr__(self, "limits", _limits([point.loop for point in self.points]))

    def is_cramped_by(self, points: tuple[LoadPoint, ...]) -> bool:
        """Whether some loop comes near the room of the cache, so that the room matters."""
        return any(
            point.loop.cache_tokens is not None
            and point.loop.most_tokens > _NEAR * point.loop.cache_tokens
            for point in points
        )

    def logs(self) -> Floats:
        """Logarithms of TPOT and TTFT of every point, alternating."""
        return np.log([time for point in self.points for time in (point.tpot_s, point.ttft_s)])


def play(test: LoadTest, scales: Scales, points: tuple[LoadPoint, ...]) -> list[LoopTimes]:
    """What each point's loop shows under the scales, played through request by request."""
    limits = _limits([point.loop for point in points])
    tables = scaled_tables(test.served, test.machine, scales, limits)
    return [
        run_closed_loop(scaled_loop(point.loop, scales), tables, requests=point.requests)
        for point in points
    ]


def played_logs(test: LoadTest, logs: Floats) -> Floats:
    """As `LoadTest.logs`, of its points played under scales given as logarithms."""
    times = play(test, from_logs(logs), test.points)
    return np.log([time for one in times for time in (one.tpot_s, one.ttft_s)])


def scaled_loop(loop: ClosedLoop, scales: Scales) -> ClosedLoop:
    """The loop with the scales' delays and room; the room never falls below one request."""
    room = loop.cache_tokens
    if room is not None:
        room = max(loop.prompt_tokens + loop.output_tokens, int(room * scales.room))
    return replace(loop, cache_tokens=room, delay_s=scales.delay_s, answer_s=scales.delay_s)


def _limits(loops: list[ClosedLoop]) -> TableLimits:
    return TableLimits(
        max_tokens=max(loop.max_num_batched_tokens for loop in loops),
        max_requests=max(min(loop.concurrency, loop.max_num_seqs) for loop in loops),
        max_context=max(loop.prompt_tokens + loop.output_tokens for loop in loops),
    )
