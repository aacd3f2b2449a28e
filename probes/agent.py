"""The agent's loop: level-triggered, deployments first, else targets, else one step of a study."""

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from advisor.errors import RooftuneError, StateConflict, Unavailable
from advisor.states import DEPLOYMENT_OVER, STUDY_OVER, DeploymentState, StudyState, TargetState
from db import deployments, devices, studies, takeover, targets
from db.session import transaction
from probes.deployments import Deployments
from probes.erasure import erase_purged
from probes.inspection import inspect_next, unfit
from probes.study import Advance
from probes.workplace import Workplace

WATCH_S = 1.0
SEEN_EVERY_S = 10.0
PATIENCE = 5  # turns that may find the database away before the job in hand is given up
LEASE = "device lease"
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the agent works on, to be marked failed if that breaks."""

    noun: str
    id: UUID


class Agent:
    """Looks after one device. `wake` ends a pause; the workplace's `stop` ends the loop."""

    def __init__(self, place: Workplace, wake: threading.Event) -> None:
        self.place = place
        self.wake = wake
        self.deployments = Deployments(place)
        self.job: Job | None = None
        self.unavailable = 0
        self.told: set[UUID] = set()
        self.unfit: set[UUID] = set()  # studies that this host cannot take over
        self.seen_s = -SEEN_EVERY_S

    def run(self) -> None:
        """Until `stop`: look, do one thing, look again. Ends with no engine of ours left."""
        try:
            while not self.place.stop.is_set():
                pause_s = self.guarded_turn()
                if pause_s > 0:
                    self.wake.wait(pause_s)
                    self.wake.clear()
        finally:
            self.deployments.close()

    def guarded_turn(self) -> float:
        """One turn, whatever happens in it; seconds until the next."""
        self.job = None
        try:
            pause_s = self.turn()
        except StateConflict as error:
            if error.noun != LEASE:
                self.failed(error)
            LOG.warning("%s", error)
            return WATCH_S
        except Unavailable as error:
            self.unavailable += 1
            LOG.warning("turn %d without: %s", self.unavailable, error)
            if self.unavailable >= PATIENCE:
                self.failed(error)
            return self.place.settings.poll_s
        except Exception as error:  # noqa: BLE001 - the outermost loop of this process
            self.failed(error)
            return WATCH_S
        self.unavailable = 0
        return pause_s

    def show_alive(self) -> None:
        """Tell now and then that this device has an agent."""
        if time.monotonic() - self.seen_s >= SEEN_EVERY_S:
            with transaction(self.place.sessions) as session:
                devices.seen(session, self.place.device.id, self.place.now())
            self.seen_s = time.monotonic()

    def turn(self) -> float:
        """One thing of the first kind that has work; 0 when there may be more."""
        self.show_alive()
        place = self.place
        erase_purged(place)
        serving = self.deployments.reconcile(self.take)
        if inspect_next(place, self.take):
            return 0.0
        if serving:
            self.tell_waiting()
            return WATCH_S
        if self.advance_study():
            return 0.0
        return place.settings.poll_s

    def take(self, noun: str, noun_id: UUID) -> None:
        """Note the job that is in hand from now on."""
        self.job = Job(noun=noun, id=noun_id)

    def advance_study(self) -> bool:
        """One step of the oldest study of this device, under its lease."""
        place = self.place
        self.take_over_lost()
        with transaction(place.sessions) as session:
            study = studies.claim_work(session, device=place.device, now=place.now())
        if study is None:
            return False
        study_id = study.id
        hold = place.hold(f"study {study_id}", watch=lambda: self.cancelled(study_id))
        if hold is None:
            return False
        self.take("study", study_id)
        with hold:
            Advance(place, hold, study_id).step()
        return True

    def take_over_lost(self) -> None:
        """Take the oldest study whose host disappeared, if this host can go on with it."""
        place, after_s = self.place, self.place.settings.takeover_s
        with transaction(place.sessions) as session:
            lost = takeover.orphaned(session, place.device, now=place.now(), after_s=after_s)
            found = [(study.id, targets.one(session, study.target_id, None)) for study in lost]
        for study_id, target in found:
            if study_id in self.unfit:
                continue
            reason = unfit(place, target)
            if reason is not None:
                self.unfit.add(study_id)
                LOG.warning("study %s is not taken over: %s", study_id, reason)
                continue
            with transaction(place.sessions) as session:
                takeover.take_over(
                    session,
                    study_id,
                    place.device,
                    now=place.now(),
                    after_s=after_s,
                    actor=place.actor,
                )
            return

    def cancelled(self, study_id: UUID) -> str | None:
        """A reason to end the running trial."""
        with transaction(self.place.sessions) as session:
            wanted = studies.one(session, study_id, None)
        return "the study was cancelled" if wanted.cancel_requested else None

    def tell_waiting(self) -> None:
        """While the only device serves, studies wait: each is told once, and may be cancelled."""
        place = self.place
        with transaction(place.sessions) as session:
            waiting = studies.waiting(session, place.device)
            for study in waiting:
                if study.cancel_requested:
                    studies.transition(
                        session, study, StudyState.CANCELLED, actor=place.actor, now=place.now()
                    )
        for study in waiting:
            if study.id not in self.told and not study.cancel_requested:
                self.told.add(study.id)
                reason = f"device {place.device.name} serves a deployment; stop it to let this run"
                place.event("study", study.id, "waiting", {"reason": reason})

    def failed(self, error: Exception) -> None:
        """Mark the job in hand failed. The traceback goes to the log, the message to the row."""
        job = self.job
        # A foreign error's message may quote the text that it worked on; its type says enough.
        text = str(error) if isinstance(error, RooftuneError) else type(error).__name__
        frames = "".join(traceback.format_tb(error.__traceback__))
        LOG.error("%s failed: %s\nTraceback:\n%s", job or "the turn", text, frames)
        if job is None:
            return
        marks: dict[str, Callable[[UUID, str], None]] = {
            "study": self.fail_study,
            "target": self.fail_target,
            "deployment": self.fail_deployment,
        }
        try:
            marks[job.noun](job.id, text)
        except RooftuneError as second:
            LOG.error(  # noqa: TRY400 - the traceback that matters is logged above
                "%s %s could not be marked failed: %s", job.noun, job.id, second
            )

    def fail_study(self, study_id: UUID, text: str) -> None:
        """The study is over; its measured points stay."""
        place = self.place
        with transaction(place.sessions) as session:
            row = studies.one(session, study_id, None)
            if row.state not in STUDY_OVER:
                studies.transition(
                    session,
                    row,
                    StudyState.FAILED,
                    actor=place.actor,
                    now=place.now(),
                    detail={"error": text},
                )

    def fail_target(self, target_id: UUID, text: str) -> None:
        """The target cannot be used."""
        place = self.place
        with transaction(place.sessions) as session:
            row = targets.one(session, target_id, None)
            if row.state == TargetState.PENDING:
                targets.mark_failed(session, row, text, actor=place.actor, now=place.now())

    def fail_deployment(self, deployment_id: UUID, text: str) -> None:
        """The deployment is over; its engine, if any, is stopped at the next look."""
        place = self.place
        with transaction(place.sessions) as session:
            row = deployments.one(session, deployment_id, None)
            if row.state not in DEPLOYMENT_OVER:
                deployments.transition(
                    session,
                    row,
                    DeploymentState.FAILED,
                    actor=place.actor,
                    now=place.now(),
                    reason=text,
                )
