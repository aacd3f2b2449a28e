"""Recommendations and their reviews: what was approved is a hash, and only that may be deployed."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from advisor.errors import InvalidInput, NotAllowed, NotFound, StateConflict
from advisor.recommender.recommendation import Recommendation
from advisor.serving import ServingConfig
from advisor.states import RECOMMENDATION_TRANSITIONS, RecommendationState, moved
from db import audit, events, studies
from db.audit import Actor
from db.identity import Principal
from db.ownership import owned, owned_page
from db.paging import Page
from db.tables import RecommendationRow, ReviewRow, StudyRow

NOUN = "recommendation"
ADVISOR = Actor(name="advisor")


class Decision(StrEnum):
    """What a reviewer says."""

    APPROVE = "approve"
    REJECT = "reject"
    REQUEST_CHANGES = "request_changes"


LEADS_TO: Mapping[Decision, RecommendationState] = {
    Decision.APPROVE: RecommendationState.APPROVED,
    Decision.REJECT: RecommendationState.REJECTED,
    Decision.REQUEST_CHANGES: RecommendationState.CHANGES_REQUESTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReview:
    """A decision on one ranked configuration of one bundle, both named by their hashes."""

    decision: Decision
    config_hash: str
    recommendation_hash: str
    comment: str


def create(
    session: Session,
    study: StudyRow,
    recommendation: Recommendation,
    *,
    now: datetime,
    actor: Actor = ADVISOR,
) -> RecommendationRow:
    """Keep the study's recommendation as it is; a study has one (`AlreadyExists`)."""
    locked = studies.lock(session, study.id)
    row = RecommendationRow(
        id=uuid.uuid4(),
        project_id=locked.project_id,
        study_id=locked.id,
        hash=recommendation.hash,
        body=recommendation,
        state=RecommendationState.PROPOSED.value,
        created_at=now,
    )
    session.add(row)
    session.flush()
    body = {"recommendation_id": str(row.id), "hash": row.hash, "state": row.state}
    _audited(session, row, action="propose", actor=actor, now=now, detail=body)
    events.append(session, noun=studies.NOUN, noun_id=study.id, kind=NOUN, body=body, now=now)
    return row


def one(
    session: Session, recommendation_id: uuid.UUID, project_ids: frozenset[uuid.UUID] | None
) -> RecommendationRow:
    """One recommendation of these projects; raises `NotFound`."""
    return owned(session, RecommendationRow, recommendation_id, noun=NOUN, project_ids=project_ids)


def of_study(session: Session, study_id: uuid.UUID) -> RecommendationRow | None:
    """The recommendation of a study, if it came that far."""
    query = select(RecommendationRow).where(RecommendationRow.study_id == study_id)
    return session.scalars(query).one_or_none()


def page(
    session: Session,
    project_ids: frozenset[uuid.UUID] | None,
    *,
    limit: int,
    cursor: str | None,
    study_id: uuid.UUID | None = None,
) -> Page[RecommendationRow]:
    """Recommendations of these projects (and of one study), newest first."""
    query = select(RecommendationRow)
    if study_id is not None:
        query = query.where(RecommendationRow.study_id == study_id)
    return owned_page(
        session,
        RecommendationRow,
        project_ids=project_ids,
        limit=limit,
        cursor=cursor,
        query=query,
    )


def reviews(session: Session, recommendation_id: uuid.UUID) -> list[ReviewRow]:
    """Reviews of a recommendation, oldest first."""
    query = select(ReviewRow).where(ReviewRow.recommendation_id == recommendation_id)
    return list(session.scalars(query.order_by(ReviewRow.at, ReviewRow.id)))


def review(
    session: Session,
    recommendation_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    new: NewReview,
    *,
    reviewer: Principal,
    now: datetime,
    single_user: bool,
) -> ReviewRow:
    """Record a decision and move the recommendation.

    The hashes must be those of the stored bundle and of one of its configurations. Who created
    the study may not approve its recommendation, unless `single_user`.
    """
    row = _locked(session, one(session, recommendation_id, project_ids).id)
    if new.recommendation_hash != row.hash:
        raise StateConflict(NOUN, row.hash, new.recommendation_hash)
    if new.config_hash not in {ranked.config_hash for ranked in row.body.ranked}:
        raise InvalidInput("config_hash", "is not a configuration of this recommendation")
    study = session.get_one(StudyRow, row.study_id)
    own = study.created_by == reviewer.user_id
    if new.decision is Decision.APPROVE and own and not single_user:
        raise NotAllowed(
            "approve the recommendation of your own study", "ask another reviewer to do it"
        )
    state = RecommendationState(row.state)
    row.state = moved(NOUN, RECOMMENDATION_TRANSITIONS, state, LEADS_TO[new.decision]).value
    made = ReviewRow(
        id=uuid.uuid4(),
        recommendation_id=row.id,
        recommendation_hash=row.hash,
        config_hash=new.config_hash,
        user_id=reviewer.user_id,
        decision=new.decision.value,
        comment=new.comment,
        at=now,
    )
    session.add(made)
    session.flush()
    body = {
        "recommendation_id": str(row.id),
        "state": row.state,
        "decision": new.decision.value,
        "config_hash": new.config_hash,
        "by": reviewer.name,
    }
    action = new.decision.value
    _audited(session, row, action=action, actor=reviewer.actor, now=now, detail=body)
    studies.lock(session, row.study_id)
    events.append(session, noun=studies.NOUN, noun_id=row.study_id, kind=NOUN, body=body, now=now)
    return made


def approved_config(
    session: Session,
    recommendation_id: uuid.UUID,
    project_ids: frozenset[uuid.UUID] | None,
    config_hash: str,
) -> ServingConfig:
    """The configuration of this hash, if a review approved exactly it; else `NotAllowed`."""
    row = _locked(session, one(session, recommendation_id, project_ids).id)
    query = select(ReviewRow.id).where(
        ReviewRow.recommendation_id == row.id,
        ReviewRow.recommendation_hash == row.hash,
        ReviewRow.config_hash == config_hash,
        ReviewRow.decision == Decision.APPROVE.value,
    )
    approved = session.scalars(query.limit(1)).first() is not None
    if not approved or row.state != RecommendationState.APPROVED.value:
        raise NotAllowed("deploy this configuration", "have it approved by a reviewer first")
    for ranked in row.body.ranked:
        # The hash is computed anew: what runs is what was approved, bit for bit.
        if ranked.config_hash == config_hash == ranked.config.hash:
            return ranked.config
    raise NotFound("configuration", config_hash)


def _locked(session: Session, recommendation_id: uuid.UUID) -> RecommendationRow:
    query = select(RecommendationRow).where(RecommendationRow.id == recommendation_id)
    locked = query.with_for_update(key_share=True)
    return session.scalars(locked, execution_options={"populate_existing": True}).one()


def _audited(
    session: Session,
    row: RecommendationRow,
    *,
    action: str,
    actor: Actor,
    now: datetime,
    detail: Mapping[str, object],
) -> None:
    audit.write(
        session,
        actor=actor,
        action=action,
        noun=NOUN,
        noun_id=row.id,
        now=now,
        project_id=row.project_id,
        detail=detail,
    )
