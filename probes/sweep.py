"""What an earlier holder of the device left: engines, open runs, trials half measured."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from advisor.failures import explained
from advisor.states import FailureKind, RunState
from db import runs, trials
from db.audit import Actor
from db.session import Sessions, transaction
from db.tables import EngineRunRow
from probes.engine_log import packed_log
from probes.vllm.processes import kill_engines

LOG = logging.getLogger(__name__)


def sweep(
    sessions: Sessions,
    device_id: UUID,
    *,
    actor: Actor,
    now: Callable[[], datetime],
    logs: Path,
    log_limit_bytes: int,
) -> int:
    """End the open runs of a device, to be called by who has just taken its lease.

    Engines are found by the token in their environment, which no other process carries. Runs
    become failed(agent_lost), their trials are queued again with their finished load points, and
    what their engines wrote is kept. A run that another host ended meanwhile, when it took the
    study over, has left its log here and perhaps its engine: both are looked after too.
    Returns the number of runs that were open.
    """
    tokens = [file.stem for file in logs.glob("*.log")]
    with transaction(sessions) as session:
        left = runs.unfinished(session, device_id)
        ended = runs.ended_without_log(session, device_id, tokens)
    if left or ended:
        killed = kill_engines({run.token for run in (*left, *ended)})
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
                failure_detail=explained(
                    FailureKind.AGENT_LOST, "the agent that started it was lost"
                ),
            )
    _keep_logs(sessions, (*left, *ended), logs, log_limit_bytes)
    return len(left)


def _keep_logs(
    sessions: Sessions, swept: Sequence[EngineRunRow], logs: Path, limit_bytes: int
) -> None:
    for run in swept:
        packed = packed_log(logs / f"{run.token}.log", limit_bytes)
        with transaction(sessions) as session:
            runs.keep_log(session, run, packed)
