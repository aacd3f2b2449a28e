"""A planted engine in virtual time, known to the last figure: what the protocol is tested on.

Steps are long and noisy, requests are not cheap or dear by turns: each step costs a fixed part, a
part per request and a part per new prompt token. Nothing in `advisor` imports it.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from advisor.measurement.records import EngineCounters, Outcome, RequestRecord

Floats = NDArray[np.float64]

_REMEMBERED = 0.9  # of the slow half of the noise, from step to step
_POWERS = _REMEMBERED ** np.arange(64)
_WEIGHTS = _POWERS / math.sqrt(float(_POWERS @ _POWERS))  # a sum of variance 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedServer:
    """Planted truth. A step of n requests with p new prompt tokens takes

    ``start * (fixed_s + request_s * n + prompt_s * p) * course(t) * noise`` seconds. The noise has
    mean 1 and the deviation `noise`; half of its variance changes slowly, over ten steps. A step
    yields a running request one token and the accepted ones: the first i + 1 draft tokens hold with
    probability ``survival[i]``. `kv_tokens` limits prompts and answers of all that run at once,
    `slots` their number.

    `slowed` are (since, until, factor): steps that begin within take so many times as long.
    """

    fixed_s: float = 0.02
    request_s: float = 0.0008
    prompt_s: float = 2e-5
    noise: float = 0.04
    survival: tuple[float, ...] = ()
    slots: int = 256
    kv_tokens: int | None = None
    start: float = 1.0
    slowed: tuple[tuple[float, float, float], ...] = ()
    prompt_tokens: tuple[int, int] = (30, 200)
    output_tokens: tuple[int, int] = (10, 40)

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a verification step yields."""
        return 1 + sum(self.survival)

    @property
    def most_at_once(self) -> float:
        """Requests that slots and cache hold in the mean."""
        if self.kv_tokens is None:
            return float(self.slots)
        mean = (sum(self.prompt_tokens) + sum(self.output_tokens)) / 2
        return min(float(self.slots), self.kv_tokens / mean)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One load: its records and what the engine counted."""

    records: list[RequestRecord]
    counters: EngineCounters


@dataclass(slots=True)
class _Slot:
    """A request of the load: its lengths and the tokens of each of its steps."""

    index: int
    prompt: int
    frames: tuple[int, ...]
    output: int
    intended_s: float
    begun_step: int = 0


@dataclass(slots=True)
class _Run:
    """The state of one load."""

    server: PlantedServer
    noise: Floats
    now_s: float = 0.0
    ends_s: list[float] = field(default_factory=list)
    ending: list[tuple[int, int, _Slot]] = field(default_factory=list)
    waiting: list[_Slot] = field(default_factory=list)
    held: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    records: list[RequestRecord] = field(default_factory=list)

    def step(self) -> int:
        """Admit, run one step, and return how many requests ended with it."""
        new = self._admitted()
        place = len(self.ends_s)
        for slot in new:
            slot.begun_step = place
            heapq.heappush(self.ending, (place + len(slot.frames), slot.index, slot))
        running = len(self.ending)
        self.peak_running = max(self.peak_running, running)
        self.peak_waiting = max(self.peak_waiting, len(self.waiting))
        server = self.server
        cost = server.fixed_s + server.request_s * running
        cost += server.prompt_s * sum(slot.prompt for slot in new)
        for since_s, until_s, factor in server.slowed:
            cost *= factor if since_s <= self.now_s < until_s else 1.0
        self.now_s += server.start * cost * float(self.noise[place % len(self.noise)])
        self.ends_s.append(self.now_s)
        ended = 0
        while self.ending and self.ending[0][0] <= place + 1:
            self._record(heapq.heappop(self.ending)[2])
            ended += 1
        return ended

    def _admitted(self) -> list[_Slot]:
        new: list[_Slot] = []
        limit = self.server.kv_tokens or math.inf
        while self.waiting and len(self.ending) + len(new) < self.server.slots:
            slot = self.waiting[0]
            needed = slot.prompt + slot.output
            if self.held + needed > limit and (self.ending or new):
                break
            self.held += needed
            new.append(self.waiting.pop(0))
        return new

    def _record(self, slot: _Slot) -> None:
        self.held -= slot.prompt + slot.output
        times = tuple(self.ends_s[slot.begun_step : slot.begun_step + len(slot.frames)])
        histogram = None
        if self.server.survival:
            places = range(1, len(self.server.survival) + 2)
            histogram = tuple(slot.frames[1:].count(place) for place in places)
        self.records.append(
            RequestRecord(
                request_id=str(slot.index),
                label="planted",
                outcome=Outcome.OK,
                intended_s=slot.intended_s,
                sent_s=slot.intended_s,
                end_s=times[-1],
                first_token_s=times[0],
                last_token_s=times[-1],
                prompt_tokens=slot.prompt,
                output_tokens=slot.output,
                finish_reason="length",
                frame_times_s=times,
                frame_tokens=slot.frames,
                accepted_histogram=histogram,
            )
        )


def closed_loop(
    server: PlantedServer, *, concurrency: int, requests: int, rng: np.random.Generator
) -> Served:
    """So many requests with `concurrency` in flight, the next sent when one ends."""
    coming = _slots(server, np.zeros(requests), rng)[::-1]
    run = _Run(server=server, noise=_noise(server, rng))
    run.waiting = [coming.pop() for _ in range(min(concurrency, requests))]
    while run.waiting or run.ending:
        for _ in range(run.step()):
            if coming:
                slot = coming.pop()
                slot.intended_s = run.now_s
                run.waiting.append(slot)
    return _served(run)


def open_loop(
    server: PlantedServer, *, rate_per_s: float, requests: int, rng: np.random.Generator
) -> Served:
    """Poisson arrivals at this rate, sent exactly then."""
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    coming = _slots(server, arrivals, rng)[::-1]
    run = _Run(server=server, noise=_noise(server, rng))
    while coming or run.waiting or run.ending:
        if not (run.waiting or run.ending):
            run.now_s = max(run.now_s, coming[-1].intended_s)
        while coming and coming[-1].intended_s <= run.now_s:
            run.waiting.append(coming.pop())
        run.step()
    return _served(run)


def with_start(server: PlantedServer, deviation: float, rng: np.random.Generator) -> PlantedServer:
    """The server after one more start, all of its steps longer or shorter by one factor."""
    return replace(server, start=math.exp(rng.normal(0, deviation)))


def _slots(server: PlantedServer, intended_s: Floats, rng: np.random.Generator) -> list[_Slot]:
    count = len(intended_s)
    prompts = rng.integers(*server.prompt_tokens, size=count, endpoint=True).tolist()
    outputs = rng.integers(*server.output_tokens, size=count, endpoint=True).tolist()
    slots = []
    for index, (prompt, tokens) in enumerate(zip(prompts, outputs, strict=True)):
        frames = _frames(server, tokens, rng)
        slots.append(
            _Slot(
                index=index,
                prompt=prompt,
                frames=frames,
                output=sum(frames),
                intended_s=float(intended_s[index]),
            )
        )
    return slots


def _frames(server: PlantedServer, tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Tokens of each step: the prompt's own yields one, the others one and what was accepted.

    The answer ends with a whole step, at `tokens` or just above: what is cut off of the last step
    would be a draft that was accepted and not counted.
    """
    if not server.survival or tokens == 1:
        return (1,) * tokens
    draws = rng.random(tokens - 1)
    made = 1 + (draws[:, np.newaxis] < np.asarray(server.survival)).sum(axis=1)
    steps = int(np.searchsorted(np.cumsum(made), tokens - 1)) + 1
    return (1, *made[:steps].tolist())


def _noise(server: PlantedServer, rng: np.random.Generator, count: int = 4096) -> Floats:
    """Factors of steps, of mean 1: half of the variance independent, half slow."""
    drawn = rng.standard_normal(count + len(_WEIGHTS) - 1)
    slow = np.convolve(drawn, _WEIGHTS, mode="valid")
    logs = server.noise * (rng.standard_normal(count) + slow) / math.sqrt(2)
    return np.exp(logs - server.noise**2 / 2)


def _served(run: _Run) -> Served:
    records: Sequence[RequestRecord] = run.records
    histograms = [item.accepted_histogram for item in records if item.accepted_histogram]
    positions = len(run.server.survival)
    counts = np.sum([list(histogram) for histogram in histograms], axis=0, dtype=int)
    at_least = [int(counts[place:].sum()) for place in range(1, positions + 1)]
    drafts = int(counts.sum()) if histograms else 0
    return Served(
        records=list(records),
        counters=EngineCounters(
            prompt_tokens=sum(item.prompt_tokens or 0 for item in records),
            generation_tokens=sum(item.output_tokens or 0 for item in records),
            engine_steps=len(run.ends_s),
            prefix_queries=0,
            prefix_hits=0,
            preemptions=0,
            drafts=drafts,
            draft_tokens=drafts * positions,
            accepted=sum(at_least),
            accepted_per_position=tuple(at_least) if histograms else (),
            peak_kv_usage=None,
            peak_running=run.peak_running,
            peak_waiting=run.peak_waiting,
        ),
    )
