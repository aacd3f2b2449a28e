"""Calls about studies and what comes of them."""

import time
from collections.abc import Iterator, Sequence

import httpx

from advisor.canonical import as_json
from advisor.goal import Goal
from advisor.serving import Levers
from api.calls.connection import Connection, page_of, part
from api.codec import read
from api.schemas import (
    ChartView,
    EventView,
    Page,
    RecommendationView,
    StudySummary,
    StudyView,
)
from api.wire import ApiProblem

RESUME_ATTEMPTS = 6
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
QUIET_S = 10.0


class StudyCalls(Connection):
    """Studies, recommendations, reviews."""

    def create_study(  # noqa: PLR0913  (one argument per field of the form)
        self,
        *,
        name: str,
        workload_id: str,
        target_id: str,
        goal: Goal | None = None,
        baseline: Levers | None = None,
        baseline_command: str | None = None,
        techniques: Sequence[str] | None = None,
        budget_s: float = 1800.0,
        requests_per_point: int = 48,
        seed: int = 0,
        ladder_top: int = 32,
        confirm: bool = True,
        idempotency_key: str | None = None,
    ) -> StudyView:
        """Queue a study for an agent of the target's device class.

        `baseline` are the levers to start from (None: vLLM's defaults), or `baseline_command` is
        the user's own ``vllm serve`` line; `techniques` are the keys to test (None: all).
        `ladder_top` is the highest load of the baseline's ladder, `confirm` asks for the finalist
        against the baseline on held-out requests.
        """
        body = {
            "name": name,
            "workload_id": workload_id,
            "target_id": target_id,
            "goal": as_json(goal or Goal()),
            "baseline": None if baseline is None else as_json(baseline),
            "baseline_command": baseline_command,
            "techniques": None if techniques is None else list(techniques),
            "budget_s": budget_s,
            "requests_per_point": requests_per_point,
            "seed": seed,
            "ladder_top": ladder_top,
            "confirm": confirm,
        }
        return self._wire.post("/v1/studies", StudyView, body, idempotency_key)

    def studies(self, *, limit: int = 50, cursor: str | None = None) -> Page[StudySummary]:
        """Studies, newest first."""
        return self._wire.get("/v1/studies", Page[StudySummary], page_of(limit, cursor))

    def study(self, study_id: str) -> StudyView:
        """One study with its trials and what is still planned."""
        return self._wire.get(f"/v1/studies/{part(study_id)}", StudyView)

    def cancel_study(self, study_id: str) -> StudyView:
        """Ask for the end of a study; its agent stops at the next safe point."""
        return self._wire.post(f"/v1/studies/{part(study_id)}/cancel", StudyView, None)

    def study_events(self, study_id: str, last_id: int = 0) -> Iterator[EventView]:
        """Events after `last_id` until the study is over; a broken stream is resumed."""
        path = f"/v1/studies/{part(study_id)}/events"
        failures = 0
        while failures < RESUME_ATTEMPTS:
            begun = time.monotonic()
            try:
                for frame in self._wire.frames(path, last_id):
                    failures = 0
                    if frame.event == "end":
                        return
                    event = read(frame.data, EventView)
                    last_id = event.id
                    yield event
            except httpx.TransportError:
                pass
            except ApiProblem as problem:
                if problem.status != httpx.codes.SERVICE_UNAVAILABLE:
                    raise
            # A stream may be quiet for long and be cut by what lies between: no failure of ours.
            failures = 0 if time.monotonic() - begun > QUIET_S else failures
            time.sleep(min(FIRST_WAIT_S * 2.0**failures, LONGEST_WAIT_S))
            failures += 1
        raise self._wire.unreachable()

    def recommendations(
        self, study_id: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[RecommendationView]:
        """Recommendations, newest first; of one study if given."""
        params = page_of(limit, cursor) | ({"study_id": study_id} if study_id else {})
        return self._wire.get("/v1/recommendations", Page[RecommendationView], params)

    def recommendation(self, recommendation_id: str) -> RecommendationView:
        """One recommendation with its reviews."""
        path = f"/v1/recommendations/{part(recommendation_id)}"
        return self._wire.get(path, RecommendationView)

    def recommendation_charts(self, recommendation_id: str) -> tuple[ChartView, ...]:
        """The pictures of a recommendation as plotly figures, each with its table."""
        path = f"/v1/recommendations/{part(recommendation_id)}/charts"
        return self._wire.get(path, tuple[ChartView, ...])

    def recommendation_report(self, recommendation_id: str, form: str = "html") -> str:
        """The whole recommendation as one document; `form` is html or md."""
        path = f"/v1/recommendations/{part(recommendation_id)}/report"
        return self._wire.send("GET", path, params={"format": form}).text

    def review(
        self,
        recommendation_id: str,
        *,
        decision: str,
        config_hash: str,
        recommendation_hash: str,
        comment: str = "",
    ) -> RecommendationView:
        """Approve, reject or send back; `decision` is approve, reject or request_changes."""
        body = {
            "decision": decision,
            "config_hash": config_hash,
            "recommendation_hash": recommendation_hash,
            "comment": comment,
        }
        path = f"/v1/recommendations/{part(recommendation_id)}/reviews"
        return self._wire.post(path, RecommendationView, body)
