"""What an earlier holder of the device left: engines, open runs, trials half measured."""

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import UUID

from advisor.states import FailureKind, RunState
from db import runs, trials
from db.audit import Actor
from db.session import Sessions, transaction
from probes.vllm.processes import kill_engines

LOG = logging.getLogger(__name__)


def sweep(
    sessions: Sessions,
    device_id: UUID,
    *,
    actor: Actor,
    now: Callable[[], datetime],
    logs: Path,
) -> int:
    """End the open runs of a device, to be called by who has just taken its lease.

    Engines are found by the token in their environment, which no other process carries. Runs
    become failed(agent_lost), their trials are queued again with their finished load points.
    Returns the number of runs that were open.
    """
    with transaction(sessions) as session:
        left = runs.unfinished(session, device_id)
    if left:
        killed = kill_engines({run.token for run in left})
        LOG.warning("swept %d open engine runs, killed %d processes", len(left), killed)
    with transaction(sessions) as session:
        trials.abandon(session, device_id=device_id, actor=actor, now=now())
        for run in runs.unfinished(session, device_id):
            runs.ended(
                session,
                run,
                RunState.FAILED,
                now=now(),
                failure_kind=FailureKind.AGENT_LOST,
                failure_detail="the agent that started it was lost",
            )
    for run in left:
        (logs / f"{run.token}.log").unlink(missing_ok=True)
    return len(left)
