"""How well the load client itself did: its delays, its event loop and its processor time."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.measurement.records import ClientHealth

TICK_S = 0.01
_P99 = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHealth:
    """One client process over one load; the terms are those of `ClientHealth`.

    `send_delays_s` has one value per attempt: from when it could be sent to when its bytes went
    out, without the time in which the network connected.
    """

    cpu_share: float
    loop_delay_p99_s: float
    frames: int
    send_delays_s: tuple[float, ...]


class LoopWatch:
    """Asks the event loop for a call every `TICK_S` and notes how late each one is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._delays_s: list[float] = []
        self._cpu_s = time.process_time()
        self._start_s = clock()
        self._due_s = self._start_s + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_s = self._clock()
        self._delays_s.append(max(0.0, now_s - self._due_s))
        self._due_s = now_s + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def stop(self, *, frames: int, send_delays_s: Sequence[float]) -> ProcessHealth:
        """The health since this watch was made."""
        self._timer.cancel()
        span_s = max(self._clock() - self._start_s, 1e-9)
        return ProcessHealth(
            cpu_share=(time.process_time() - self._cpu_s) / span_s,
            loop_delay_p99_s=_quantile(self._delays_s, _P99),
            frames=frames,
            send_delays_s=tuple(send_delays_s),
        )


def joined_health(parts: Sequence[ProcessHealth]) -> ClientHealth:
    """All processes of one load: delays over all requests, the rest of the worst process."""
    delays_s = [delay for part in parts for delay in part.send_delays_s]
    return ClientHealth(
        processes=len(parts),
        cpu_share=max(part.cpu_share for part in parts),
        send_delay_p50_s=_quantile(delays_s, 0.5),
        send_delay_p99_s=_quantile(delays_s, _P99),
        send_delay_max_s=max(delays_s, default=0.0),
        loop_delay_p99_s=max(part.loop_delay_p99_s for part in parts),
        frames=sum(part.frames for part in parts),
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
