"""Watches an engine while it is under load: a dead one and a hung one end the load at once.

A client's own limits are minutes; the watchdog asks the process twice a second and the engine's
counters now and then. ``/health`` is no help: its front end answers while the engine's core hangs.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from advisor.errors import EngineFailed
from advisor.states import FailureKind
from probes.vllm.engine import RunningEngine
from probes.vllm.failures import last_lines
from probes.vllm.metrics import EngineSnapshot, UnusableCounters

POLL_S = 0.5
# The counters are asked so often within the limit that a hang is noticed within a tenth of it.
LOOKS_PER_LIMIT = 10
METRICS_TIMEOUT_S = 5.0
# Steps that make no token (endless preemption, say) are waited for so many times as long: one
# prompt may take many steps before its first token.
FRUITLESS = 4.0
# The client sees closed connections before the guardian has reaped the engine.
END_LIMIT_S = 5.0
END_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the counters said, and since when they say no more than that (monotonic seconds)."""

    steps: float
    tokens: float
    steps_since_s: float
    tokens_since_s: float


class Progress:
    """Tells whether an engine that has requests still gets on, from one look to the next."""

    def __init__(self, *, limit_s: float) -> None:
        self.limit_s = limit_s
        self._seen: _Seen | None = None
        self._silent_since_s: float | None = None

    def observe(
        self, snapshot: EngineSnapshot | None, *, now_s: float, busy: bool = False
    ) -> str | None:
        """Why it counts as hung, or None. `snapshot` None: its counters did not answer.

        `busy` says that requests are out, whatever the engine knows of them: a core that stopped
        before it took a request in reports none.
        """
        if snapshot is None:
            self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
            silent_s = now_s - self._silent_since_s
            return f"/metrics did not answer for {silent_s:.0f} s" if self._over(silent_s) else None
        self._silent_since_s = None
        steps, tokens = _done(snapshot)
        queued = (snapshot.running or 0) + (snapshot.waiting or 0)
        before = self._seen
        if before is None or not (busy or queued):
            self._seen = _Seen(
                steps=steps, tokens=tokens, steps_since_s=now_s, tokens_since_s=now_s
            )
            return None
        self._seen = _Seen(
            steps=steps,
            tokens=tokens,
            steps_since_s=now_s if steps != before.steps else before.steps_since_s,
            tokens_since_s=now_s if tokens != before.tokens else before.tokens_since_s,
        )
        return self._stalled(now_s, queued)

    def _stalled(self, now_s: float, queued: int) -> str | None:
        seen = self._seen
        if seen is None:
            return None
        no_step_s, no_token_s = now_s - seen.steps_since_s, now_s - seen.tokens_since_s
        held = f"{queued} requests in the engine"
        if self._over(no_step_s) and self._over(no_token_s):
            return f"no step and no token for {no_step_s:.0f} s with {held}"
        if self._over(no_token_s / FRUITLESS):
            return f"steps, but no token for {no_token_s:.0f} s with {held}"
        return None

    def _over(self, seconds: float) -> bool:
        return seconds >= self.limit_s


class Watchdog:
    """A thread that ends a load by `ended` when the engine died, hung, or `cancelled` was set."""

    def __init__(self, engine: RunningEngine, cancelled: threading.Event, *, busy: bool) -> None:
        self.ended = threading.Event()
        self.verdict: EngineFailed | None = None
        self._engine = engine
        self._cancelled = cancelled
        self._busy = busy
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="engine-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()

    def judge(self) -> None:
        """Stop watching; the verdict is final then.

        A load may end because its engine died, faster than the next look at it: one that no longer
        answers is waited for until its process is gone or the limit is over.
        """
        self.close()
        if self.verdict is None and not self._cancelled.is_set():
            self.verdict = self._dead()

    def _dead(self) -> EngineFailed | None:
        limit_s = time.monotonic() + END_LIMIT_S
        try:
            self._engine.check_alive()
            while not self._engine.healthy() and time.monotonic() < limit_s:
                time.sleep(END_POLL_S)
                self._engine.check_alive()
        except EngineFailed as error:
            return error
        return None

    def _watch(self) -> None:
        progress = Progress(limit_s=self._engine.hang_s)
        every_s = max(POLL_S, self._engine.hang_s / LOOKS_PER_LIMIT)
        looked_s = time.monotonic() - every_s
        while not self._closed.wait(POLL_S):
            if self._cancelled.is_set():
                self.ended.set()
                return
            now_s = time.monotonic()
            look = now_s - looked_s >= every_s
            looked_s = now_s if look else looked_s
            self.verdict = self._found(progress if look else None)
            if self.verdict is not None:
                self.ended.set()
                return

    def _found(self, progress: Progress | None) -> EngineFailed | None:
        """The process first; the counters where `progress` is given."""
        try:
            self._engine.check_alive()
            if progress is None:
                return None
            snapshot = self._engine.snapshot_or_none(METRICS_TIMEOUT_S)
        except UnusableCounters:
            return None  # it answers, with counters that say nothing: its process is all there is
        except EngineFailed as error:
            return error
        reason = progress.observe(snapshot, now_s=time.monotonic(), busy=self._busy)
        return None if reason is None else hung(self._engine, reason)


@contextmanager
def watched(
    engine: RunningEngine, cancelled: threading.Event, *, busy: bool = True
) -> Iterator[threading.Event]:
    """Watch `engine` in the block; yields the event that ends the load inside it.

    When the engine died or hung, the block ends with `EngineFailed` (`DIED` or what its log says,
    `HUNG`), whatever the load itself raised. `busy` False where requests may be absent for long,
    as between the arrivals of an open loop: then only what the engine says that it holds counts.
    """
    dog = Watchdog(engine, cancelled, busy=busy)
    dog.start()
    try:
        yield dog.ended
    except EngineFailed as error:
        dog.judge()
        if dog.verdict is not None:
            raise dog.verdict from error
        raise
    else:
        dog.judge()
    finally:
        dog.close()
    if dog.verdict is not None:
        raise dog.verdict


def hung(engine: RunningEngine, reason: str) -> EngineFailed:
    """The failure of an engine that stands still, with the end of its log."""
    tail = "\n".join(last_lines(engine.read_log()))
    return EngineFailed(FailureKind.HUNG, f"{reason}\n{tail}")


def _done(snapshot: EngineSnapshot) -> tuple[float, float]:
    """Steps and tokens since the engine's start; an engine that counts no steps counts as one."""
    totals = snapshot.totals
    tokens = totals.get("vllm:generation_tokens_total", 0.0) + totals.get(
        "vllm:prompt_tokens_total", 0.0
    )
    return totals.get("vllm:iteration_tokens_total_count", tokens), tokens
