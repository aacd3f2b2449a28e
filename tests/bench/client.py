"""How much the load client can take on one processor: its delays, and where they begin to grow.

Client and server have a processor each. The server's own lateness stands beside every level: where
the server was late, the level says nothing of the client.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from probes.load.plan import CHAT_PATH, LoadPlan, PlannedRequest
from probes.load.runner import Loaded, run_load
from probes.load.schedule import Schedule
from tests.bench.figures import Figure
from tests.fakes.paced_server import Lateness, Pace, Paced, paced_server

STREAMS, PER_STREAM_S = 200, 50.0
TTFT_S = 0.2
TOKENS = 150
# Requests after one another in each slot: sends fall into the middle of the streams of others.
ROUNDS = 3
MOST_DELAY_S, MOST_CPU = 0.005, 0.95
MOST_STREAMS = 6400


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One load: so many streams at a time, and how client and server did."""

    streams: int
    frames_per_s: float
    send_delay_p99_s: float
    loop_delay_p99_s: float
    cpu_share: float
    failed: int
    server: Lateness

    @property
    def server_in_time(self) -> bool:
        """Whether the server kept its pace: frames less than half a gap late."""
        return self.server.late_p99_s < 0.5 / PER_STREAM_S and self.server.cpu_share < MOST_CPU

    @property
    def held(self) -> bool:
        """Whether the client was in time, with processor time to spare."""
        in_time = self.send_delay_p99_s <= MOST_DELAY_S and self.cpu_share <= MOST_CPU
        return in_time and not self.failed

    @override
    def __str__(self) -> str:
        return (
            f"{self.streams} streams, {self.frames_per_s:.0f} frames/s: send delay p99"
            f" {self.send_delay_p99_s * 1e3:.2f} ms, loop {self.loop_delay_p99_s * 1e3:.2f} ms, CPU"
            f" {self.cpu_share:.2f}; the server's frames were late by"
            f" {self.server.late_p99_s * 1e3:.2f} ms (p99), CPU {self.server.cpu_share:.2f}"
        )


def figures() -> Iterator[Figure]:
    """The delay at 200 streams, and the most streams at which the client was in time."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        yield _delay(None, "one processor: client and server cannot have one each")
        return
    with paced_server(Pace(ttft_s=TTFT_S, gap_s=1 / PER_STREAM_S, cpu=cpus[1])) as server:
        levels = list(_levels(server, cpu=cpus[0]))
    yield _delay(levels[0].send_delay_p99_s * 1e3, str(levels[0]))
    yield _ceiling(levels)


def _levels(server: Paced, *, cpu: int) -> Iterator[Level]:
    """Twice the streams each time, until client or server is late."""
    streams = STREAMS
    while streams <= MOST_STREAMS:
        found = level(server, streams, cpu=cpu)
        yield found
        if not found.held or not found.server_in_time:
            return
        streams *= 2


def level(server: Paced, streams: int, *, cpu: int) -> Level:
    """One load of that many streams from a client on processor `cpu`.

    This process, which reads the records, runs there too.
    """
    plan = LoadPlan(
        host=server.host,
        port=server.port,
        schedule=Schedule(concurrency=streams, ramp_s=TTFT_S + TOKENS / PER_STREAM_S),
        requests=tuple(_request(place) for place in range(streams * ROUNDS)),
    )
    server.lateness()
    with pinned_to(cpu):
        loaded = run_load(plan)
    return _level(streams, loaded, server.lateness())


def _request(place: int) -> PlannedRequest:
    return PlannedRequest(
        request_id=str(place),
        label=None,
        path=CHAT_PATH,
        body={
            "model": "paced",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": TOKENS,
            "messages": [{"role": "user", "content": f"question {place} " * 50}],
        },
    )


def _level(streams: int, loaded: Loaded, server: Lateness) -> Level:
    records = loaded.records
    times_s = [time_s for record in records for time_s in record.frame_times_s]
    # The middle half of the frames: neither the ramp nor the end of the load.
    first_s, last_s = np.quantile(times_s, [0.25, 0.75])
    # From the slot's end to the bytes of the next request, connecting included.
    delays_s = [record.sent_s - record.intended_s for record in records]
    return Level(
        streams=streams,
        frames_per_s=float(0.5 * len(times_s) / (last_s - first_s)),
        send_delay_p99_s=max(float(np.quantile(delays_s, 0.99)), loaded.health.send_delay_p99_s),
        loop_delay_p99_s=loaded.health.loop_delay_p99_s,
        cpu_share=loaded.health.cpu_share,
        failed=sum(record.error is not None for record in records),
        server=server,
    )


@contextmanager
def pinned_to(cpu: int) -> Iterator[None]:
    """This process, and those that it starts, on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _delay(value: float | None, detail: str) -> Figure:
    return Figure(
        name="client_send_delay_p99_ms", value=value, unit="ms", better="lower", detail=detail
    )


def _ceiling(levels: Sequence[Level]) -> Figure:
    held = [found for found in levels if found.held and found.server_in_time]
    last = levels[-1]
    if last.held and last.server_in_time:
        why = "the search ended there"
    elif last.server_in_time:
        why = f"the client did not hold {last}"
    else:
        why = f"the server did not hold {last}, so that the client's ceiling is at or above this"
    return Figure(
        name="client_ceiling_streams",
        value=float(held[-1].streams) if held else None,
        unit="streams",
        better="higher",
        detail=f"of {PER_STREAM_S:.0f} tokens/s on one core, doubled; {why}",
    )
