"""Recommendations and their reviews."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response, status
from sqlalchemy.orm import Session

from api import views
from api.charts.gallery import charts_of
from api.deps import Db, Paging, Reviewer, Service, Viewer, identifier
from api.documents.content import document
from api.documents.markdown import as_markdown
from api.documents.page import as_html
from api.inputs import ReviewIn
from api.schemas import ChartView, Page, RecommendationView
from db import identity, measurements, purges, recommendations, studies
from db.recommendations import Decision, NewReview
from db.tables import RecommendationRow

WRITERS = {
    "html": (as_html, "text/html; charset=utf-8"),
    "md": (as_markdown, "text/markdown; charset=utf-8"),
}
REPORT: dict[str, object] = {
    "content": {kind.partition(";")[0]: {} for _, kind in WRITERS.values()}
}
router = APIRouter(prefix="/v1/recommendations", tags=["recommendations"])


def _view(session: Session, row: RecommendationRow) -> RecommendationView:
    reviews = recommendations.reviews(session, row.id)
    names: dict[UUID, str] = {
        user_id: identity.user(session, user_id).name
        for user_id in {item.user_id for item in reviews}
    }
    return views.recommendation(
        row,
        (views.review(item, names[item.user_id]) for item in reviews),
        purges.purged_at(session, [row.study_id]).get(row.study_id),
        measurements.of_target(session, studies.one(session, row.study_id, None).target_id),
    )


@router.get("")
def list_recommendations(
    caller: Viewer, session: Db, paging: Paging, study_id: str | None = None
) -> Page[RecommendationView]:
    """Recommendations of the caller's projects, newest first; of one study if given."""
    found = recommendations.page(
        session,
        caller.scope,
        study_id=None if study_id is None else identifier("study", study_id),
        limit=paging.limit,
        cursor=paging.cursor,
    )
    return Page(items=tuple(_view(session, row) for row in found.items), next=found.next)


@router.get("/{recommendation_id}")
def read_recommendation(recommendation_id: str, caller: Viewer, session: Db) -> RecommendationView:
    """One recommendation with its reviews."""
    identified = identifier("recommendation", recommendation_id)
    return _view(session, recommendations.one(session, identified, caller.scope))


@router.get("/{recommendation_id}/charts")
def read_charts(recommendation_id: str, caller: Viewer, session: Db) -> tuple[ChartView, ...]:
    """The pictures of a recommendation as plotly figures, each with its table."""
    identified = identifier("recommendation", recommendation_id)
    return charts_of(recommendations.one(session, identified, caller.scope).body)


@router.get(
    "/{recommendation_id}/report",
    response_class=Response,
    responses={status.HTTP_200_OK: {"description": "The report", **REPORT}},
)
def read_report(
    recommendation_id: str,
    caller: Viewer,
    session: Db,
    form: Annotated[Literal["html", "md"], Query(alias="format")] = "html",
) -> Response:
    """The whole recommendation as one HTML file without outside parts, or as Markdown."""
    identified = identifier("recommendation", recommendation_id)
    found = _view(session, recommendations.one(session, identified, caller.scope))
    write, media_type = WRITERS[form]
    name = f"rooftune-{found.id[:8]}.{form}"
    return Response(
        write(document(found)),
        media_type=media_type,
        headers={
            "content-disposition": f'inline; filename="{name}"',
            "x-content-type-options": "nosniff",
        },
    )


@router.post("/{recommendation_id}/reviews", status_code=status.HTTP_201_CREATED)
def review(
    *, recommendation_id: str, body: ReviewIn, caller: Reviewer, session: Db, service: Service
) -> RecommendationView:
    """Decide on one configuration of exactly this bundle; authors need a second person."""
    identified = identifier("recommendation", recommendation_id)
    recommendations.review(
        session,
        identified,
        caller.scope,
        NewReview(
            decision=Decision(body.decision),
            config_hash=body.config_hash,
            recommendation_hash=body.recommendation_hash,
            comment=body.comment,
        ),
        reviewer=caller.principal,
        now=service.clock(),
        single_user=service.settings.single_user,
    )
    return _view(session, recommendations.one(session, identified, caller.scope))
