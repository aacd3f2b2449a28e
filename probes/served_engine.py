"""The engine of a deployment while it serves: does it get on, what is open in it."""

import time
from dataclasses import dataclass
from uuid import UUID

from advisor.errors import EngineFailed
from probes.vllm.engine import RunningEngine
from probes.vllm.metrics import UnusableCounters
from probes.vllm.watchdog import LOOKS_PER_LIMIT, METRICS_TIMEOUT_S, Progress


@dataclass(kw_only=True)
class Serving:
    """The engine that serves a deployment now, and its row in the database."""

    deployment_id: UUID
    run_id: UUID
    engine: RunningEngine
    progress: Progress
    failed_checks: int = 0
    looked_s: float = 0.0

    def stalled(self) -> str | None:
        """Why it counts as hung: /health answers, the requests in it get no token."""
        now_s = time.monotonic()
        if now_s - self.looked_s < self.engine.hang_s / LOOKS_PER_LIMIT:
            return None
        self.looked_s = now_s
        try:
            snapshot = self.engine.snapshot_or_none(METRICS_TIMEOUT_S)
        except UnusableCounters:
            return None
        return self.progress.observe(snapshot, now_s=now_s)


def requests_open(engine: RunningEngine) -> int:
    """Requests that an engine runs or queues; a dead one has none."""
    try:
        snapshot = engine.snapshot()
    except (EngineFailed, UnusableCounters):
        return 0
    return (snapshot.running or 0) + (snapshot.waiting or 0)
