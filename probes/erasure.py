"""What this machine holds of purged workloads, removed: calibrated checkpoints and engine logs."""

import fcntl
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from db import purges
from db.purges import Unswept
from db.session import transaction
from probes.quantizer import CHECKPOINTS, MANIFEST
from probes.workplace import Workplace

LOG = logging.getLogger(__name__)


def erase_purged(place: Workplace) -> int:
    """Sweep this machine's disk for every purged workload not looked for yet; how many there were.

    Level-triggered: an agent that was away does it when it is back. What cannot be removed now is
    tried again at the next look.
    """
    with transaction(place.sessions) as session:
        waiting = purges.unswept(session, place.device.id)
    done = 0
    for item in waiting:
        try:
            removed = _removed(place, item)
        except OSError as error:  # a file in use, a disk that is gone: the next look comes
            LOG.warning("workload %s: %s, looking again", item.workload_id, error.strerror)
            continue
        with transaction(place.sessions) as session:
            purges.swept(
                session, item.workload_id, place.device.id, removed=removed, now=place.now()
            )
        done += 1
    return done


def _removed(place: Workplace, item: Unswept) -> int:
    """Remove files and folders of one workload; how many there were."""
    removed = 0
    for token in item.run_tokens:
        log = place.log_folder / f"{token}.log"
        if log.exists():
            log.unlink()
            removed += 1
    if item.digest is not None:
        for home in _calibrated(place.settings.data_dir.absolute() / CHECKPOINTS, item.digest):
            _remove_checkpoint(home)
            removed += 1
    return removed


def _calibrated(folder: Path, workload_digest: str) -> Iterator[Path]:
    """Checkpoints whose manifest names the workload, whole or not."""
    for manifest in sorted(folder.glob(f"*/{MANIFEST}")):
        try:
            held = json.loads(manifest.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(held, dict) and held.get("workload_digest") == workload_digest:
            yield manifest.parent


def _remove_checkpoint(home: Path) -> None:
    """Under its lock; one that is being made raises `BlockingIOError`."""
    with home.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(home)
