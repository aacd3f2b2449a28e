"""Studies: start, watch, cancel."""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, status
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from advisor.errors import StateConflict
from advisor.recommender import planner
from advisor.recommender.evidence import StudyOptions, TrialPlan
from advisor.states import STUDY_OVER, StudyState, TargetState
from advisor.techniques import technique
from api import views
from api.baselines import starting_point
from api.deps import (
    Ask,
    Db,
    IdempotencyKey,
    Paging,
    Parts,
    Service,
    Submitter,
    Viewer,
    identifier,
    once,
)
from api.events import Look, Stream, last_event_id
from api.inputs import StudyIn
from api.schemas import Page, StudySummary, StudyView, TrialView
from db import events, purges, recommendations, runs, studies, targets, trials, workloads
from db.session import transaction
from db.tables import EngineRunRow, StudyRow

router = APIRouter(prefix="/v1/studies", tags=["studies"])
NOUN = "study"


@router.post("", status_code=status.HTTP_202_ACCEPTED)
def create_study(
    *,
    body: StudyIn,
    caller: Submitter,
    session: Db,
    service: Service,
    idempotency_key: IdempotencyKey = None,
) -> StudyView:
    """Queue a study; an agent of the target's device class takes it."""

    def make() -> StudyView:
        workload = workloads.one(session, identifier("workload", body.workload_id), caller.scope)
        workloads.refuse_purged(session, workload.id, "studied")
        target = targets.one(session, identifier("target", body.target_id), caller.scope)
        if target.state == TargetState.FAILED:
            raise StateConflict("target", target.state, "studied")
        start = starting_point(
            body.baseline_command,
            None if body.baseline is None else body.baseline.to_domain(),
            functional=target.functional,
            model=target.model,
        )
        new = studies.NewStudy(
            project_id=workload.project_id,
            name=body.name,
            workload_id=workload.id,
            target_id=target.id,
            goal=body.goal.to_domain(),
            baseline=start.config,
            techniques=_asked(body.techniques),
            budget_s=body.budget_s,
            requests_per_point=body.requests_per_point,
            seed=body.seed,
            options=StudyOptions(
                ladder_top=body.ladder_top,
                confirm=body.confirm,
                baseline_command=start.command,
                baseline_notes=start.notes,
            ),
        )
        principal = caller.principal
        row = studies.create(
            session,
            new,
            created_by=principal.user_id,
            actor=principal.actor,
            now=service.clock(),
        )
        return _view(session, row)

    ask = Ask.of(caller, idempotency_key, "POST /v1/studies", body)
    return once(session, ask, StudyView, make, status=status.HTTP_202_ACCEPTED, now=service.clock())


@router.get("")
def list_studies(caller: Viewer, session: Db, paging: Paging) -> Page[StudySummary]:
    """Studies of the caller's projects, newest first."""
    found = studies.page(session, caller.scope, limit=paging.limit, cursor=paging.cursor)
    gone = purges.purged_at(session, [row.id for row in found.items])
    items = tuple(views.study_summary(row, gone.get(row.id)) for row in found.items)
    return Page(items=items, next=found.next)


@router.get("/{study_id}")
def read_study(study_id: str, caller: Viewer, session: Db) -> StudyView:
    """One study with its trials, and what the planner would still do."""
    return _view(session, studies.one(session, identifier(NOUN, study_id), caller.scope))


@router.post("/{study_id}/cancel", status_code=status.HTTP_202_ACCEPTED)
def cancel_study(study_id: str, caller: Submitter, session: Db, service: Service) -> StudyView:
    """End a study: at once while it waits, else at the agent's next safe point."""
    row = studies.request_cancel(
        session,
        identifier(NOUN, study_id),
        caller.scope,
        actor=caller.principal.actor,
        now=service.clock(),
    )
    return _view(session, row)


@router.get("/{study_id}/events", response_class=StreamingResponse)
def stream_events(
    *,
    study_id: str,
    caller: Viewer,
    service: Service,
    session: Db,
    last_event_id_header: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> StreamingResponse:
    """Server-sent events of a study after `Last-Event-ID`, ending with `end` when it is over."""
    row = studies.one(session, identifier(NOUN, study_id), caller.scope)
    stream = Stream(
        hub=service.hub,
        noun=NOUN,
        noun_id=str(row.id),
        look=_look(service, row),
        poll_s=service.settings.events_poll_s,
        keepalive_s=service.settings.events_keepalive_s,
    )
    return StreamingResponse(
        stream.frames(last_event_id(last_event_id_header)),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def _asked(keys: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The techniques to test, each looked up; an unknown one lists the known ones."""
    return None if keys is None else tuple(technique(key).key for key in keys)


def _look(parts: Parts, row: StudyRow) -> Callable[[int], Look]:
    def look(last_id: int) -> Look:
        # State first: what is appended after it was read is found by the next look.
        with transaction(parts.sessions) as session:
            state = studies.one(session, row.id, None).state
            found = events.after(session, NOUN, str(row.id), last_id)
        over = state if StudyState(state) in STUDY_OVER else None
        return Look(events=tuple(views.event(item) for item in found), over=over)

    return look


def _view(session: Session, row: StudyRow) -> StudyView:
    return views.study(
        row,
        _trials(session, row),
        _plan(session, row),
        recommendations.of_study(session, row.id),
        purged_at=purges.purged_at(session, [row.id]).get(row.id),
    )


def _trials(session: Session, row: StudyRow) -> list[TrialView]:
    starts: dict[UUID | None, list[EngineRunRow]] = {}
    for run in runs.of_study(session, row.id):
        starts.setdefault(run.trial_id, []).append(run)
    points = trials.points(session, row.id)
    return [
        views.trial(
            trial, starts.get(trial.id, ()), [item.point for item in points.get(trial.id, ())]
        )
        for trial in trials.of_study(session, row.id)
    ]


def _plan(session: Session, row: StudyRow) -> tuple[TrialPlan, ...]:
    """What is still to do; nothing is known before the target was inspected."""
    if StudyState(row.state) in STUDY_OVER:
        return ()
    target = targets.one(session, row.target_id, None)
    if target.state != TargetState.READY:
        return ()
    return planner.plan_preview(studies.evidence(session, row.id))
