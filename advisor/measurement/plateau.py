"""What kept requests from running at once, by the engine's counters at one load (handbook 4.3)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from advisor.measurement.records import EngineCounters

Number = TypeVar("Number", int, float)

# A gauge that is sampled every half second misses the height of a load by a request or so.
_NEARLY = 0.9
_CACHE_FULL, _CACHE_TIGHT = 0.95, 0.8
_CLEARLY_FEWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """The highest load of a ladder as the engine saw it.

    `in_flight` is what the client had in flight on the mean. `running`, `waiting` and `kv_usage`
    are the highest samples, None where none was taken; `max_num_seqs` is the engine's own.
    """

    load: int
    in_flight: float
    running: int | None
    waiting: int | None
    kv_usage: float | None
    preemptions: int
    max_num_seqs: int | None

    @property
    def scheduler_binds(self) -> bool:
        """Whether all slots ran while requests waited; without samples the load says so."""
        slots = self.max_num_seqs
        if slots is None or self.load <= slots or self.preemptions or not self._waits:
            return False
        return self.running is None or self.waiting is None or self.running >= _NEARLY * slots

    @property
    def cache_binds(self) -> bool:
        """Whether the KV cache was full while requests waited, or requests were preempted."""
        if self.preemptions:
            return True
        if self.kv_usage is None or not self._waits:
            return False
        # A prompt that needs more blocks than are left waits before the cache is quite full.
        short = self.running is not None and self.running < self.load
        return self.kv_usage >= (_CACHE_TIGHT if short else _CACHE_FULL)

    @property
    def client_binds(self) -> bool:
        """Whether the engine had clearly fewer requests than the client had in flight."""
        if self.running is None or self.waiting is None:
            return False
        return self.running + self.waiting < _CLEARLY_FEWER * self.in_flight

    @property
    def scheduler_text(self) -> str:
        """One phrase with the figures of `scheduler_binds`."""
        ran = "" if self.running is None else f", ran up to {self.running}"
        kept = "" if self.waiting is None else f" and kept up to {self.waiting} waiting"
        return f"the engine admits {self.max_num_seqs} at once (max_num_seqs){ran}{kept}"

    @property
    def cache_text(self) -> str:
        """One phrase with the figures of `cache_binds`."""
        used = "" if self.kv_usage is None else f"{self.kv_usage:.0%} of the KV cache was in use, "
        waited = f" and up to {self.waiting} waited" if self.waiting else ""
        return f"{used}{self.preemptions} requests were preempted{waited}"

    @property
    def client_text(self) -> str:
        """One phrase with the figures of `client_binds`."""
        return (
            f"the engine had at most {self.running} running and {self.waiting} waiting of"
            f" {self.in_flight:.0f} requests that the client had in flight"
        )

    @property
    def _waits(self) -> bool:
        """Whether requests waited, as far as anybody knows."""
        return self.waiting is None or self.waiting > 0


def plateau_of(
    counters: Sequence[EngineCounters], *, load: int, in_flight: float, max_num_seqs: int | None
) -> Plateau:
    """The highest samples over the repeats of one load."""
    return Plateau(
        load=load,
        in_flight=in_flight,
        running=_most([item.peak_running for item in counters]),
        waiting=_most([item.peak_waiting for item in counters]),
        kv_usage=_most([item.peak_kv_usage for item in counters]),
        preemptions=sum(item.preemptions for item in counters),
        max_num_seqs=max_num_seqs,
    )


def _most(values: Sequence[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)
