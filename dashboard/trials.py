"""The trials of a study and their load points, as tables."""

from collections.abc import Mapping, Sequence

import streamlit as st

from advisor.estimate import Estimate
from advisor.goal import Goal
from advisor.measurement.records import AcceptanceFigures, LoadPoint, LoadRole
from advisor.recommender.evidence import TrialPlan
from advisor.recommender.ladder import open_points
from advisor.recommender.phrases import settings_text
from advisor.states import RunState, TrialState
from advisor.units import seconds_text
from api.client import StudyView, TrialView
from dashboard.listing import grid, table
from dashboard.wording import (
    NOT_MEASURED,
    joined,
    latency_text,
    origin_text,
    plain,
    rate_text,
    share_text,
    size_text,
    words,
)

ROLES: Mapping[LoadRole, str] = {
    LoadRole.PROBE: "closed loop",
    LoadRole.HELD_OUT: "held-out requests",
    LoadRole.STATIC: "in gangs",
    LoadRole.CONTROL: "closed loop, the gangs' requests",
}
WRONG = "what went wrong"
NOT_PREDICTED = "not predicted"
LEFT_OUT = "left out: smaller loads are saturated"


def show_trials(study: StudyView) -> None:
    """One row per trial and load, then one section of load points per trial."""
    if not study.trials:
        st.info("No trial has started yet.")
    rows = [row for trial in study.trials for row in _rows(trial)]
    if not any(row[WRONG] for row in rows):
        rows = [{name: cell for name, cell in row.items() if name != WRONG} for row in rows]
    table(rows)
    if rows:
        st.caption(
            "Throughput in output tokens per second with its interval. A prediction was computed"
            f" before the first probe ({plain(joined(_origins(study)))}). The goal is about"
            f" {_loads(study.goal)}."
        )
    for trial in study.trials:
        if trial.points or trial.runs:
            title = f"{trial.seq}. {plain(trial.plan.title)}: {_done(trial)}"
            with st.expander(title, expanded=trial.state is TrialState.MEASURING):
                _detail(trial)


def show_plan(plans: Sequence[TrialPlan]) -> None:
    """What the planner would still do."""
    if not plans:
        return
    expected_s = sum(plan.expected_s for plan in plans)
    with st.expander(f"Still planned: {len(plans)} trials, about {seconds_text(expected_s)}"):
        table(
            [
                {
                    "configuration": plan.title,
                    "settings": settings_text(plan.config.overrides()),
                    "loads": ", ".join(str(point.concurrency) for point in plan.points),
                    "expected": seconds_text(plan.expected_s),
                    "predicted": joined(
                        [f"at {load}: {rate_text(rate)}" for load, rate in plan.predicted]
                    ),
                }
                for plan in plans
            ]
        )


def now_text(trial: TrialView) -> str:
    """What a trial under measurement does at the moment."""
    title = trial.plan.title
    if not trial.runs or trial.runs[-1].state is RunState.STARTING:
        return f"starting the engine for {title}"
    left = open_points(trial.plan, trial.points)
    if not left:
        what = "comparing answers" if trial.plan.quality is not None else "finishing"
        return f"{title}: {what}"
    point = left[0]
    done = len(trial.points)
    return (
        f"measuring {title} at {point.concurrency} in flight ({ROLES[point.role]}),"
        f" load point {done + 1} of at most {done + len(left)}"
    )


def _origins(study: StudyView) -> list[str]:
    """Where the predictions come from, each origin once."""
    found = [rate for trial in study.trials for _, rate in trial.plan.predicted]
    return list(dict.fromkeys(origin_text(rate) for rate in found))


def _loads(goal: Goal) -> str:
    return f"{goal.concurrency} request{'s' if goal.concurrency > 1 else ''} in flight"


def _done(trial: TrialView) -> str:
    return f"{len(trial.points)} of {len(trial.plan.points)} load points, {words(trial.state)}"


def _rows(trial: TrialView) -> list[dict[str, str]]:
    predicted = dict(trial.plan.predicted)
    order = list(LoadRole)
    planned = {(point.role, point.concurrency) for point in trial.plan.points}
    planned |= {(point.role, point.concurrency) for point in trial.points}
    planned |= {(LoadRole.PROBE, load) for load in predicted}
    loads = sorted(planned, key=lambda item: (order.index(item[0]), item[1]))
    return [
        {
            "#": str(trial.seq),
            "configuration": trial.plan.title,
            "state": words(trial.state),
            "in flight": str(load) if role is LoadRole.PROBE else f"{load}, {ROLES[role]}",
            "predicted": _predicted(predicted, role, load),
            "measured": _measured(trial, role, load),
            WRONG: _failure(trial),
        }
        for role, load in loads
    ]


def _predicted(predicted: Mapping[int, Estimate], role: LoadRole, load: int) -> str:
    """Predictions are about the closed loop over the study's own requests."""
    rate = predicted.get(load) if role is LoadRole.PROBE else None
    return NOT_PREDICTED if rate is None else rate_text(rate)


def _measured(trial: TrialView, role: LoadRole, load: int) -> str:
    """Each repeat of the load; one with flaws is marked, for it does not count."""
    found = [point for point in trial.points if point.concurrency == load and point.role is role]
    if not found:
        return LEFT_OUT if _left_out(trial, role, load) else NOT_MEASURED
    return joined(
        [
            rate_text(point.throughput_tokens_per_s) + ("" if point.usable else ", not used")
            for point in found
        ]
    )


def _left_out(trial: TrialView, role: LoadRole, load: int) -> bool:
    """Whether the ladder ended below this load."""
    return trial.state is TrialState.DONE and any(
        point.optional and point.role is role and point.concurrency == load
        for point in trial.plan.points
    )


def _failure(trial: TrialView) -> str:
    if trial.failure_kind is None:
        return trial.reason or ""
    return f"{words(trial.failure_kind)}: {trial.reason or 'no reason given'}"


def _detail(trial: TrialView) -> None:
    st.caption(
        f"Settings: {plain(settings_text(trial.plan.config.overrides()))}."
        f" Configuration hash `{trial.config_hash}`."
    )
    table([_point(point) for point in trial.points])
    accepted = [point for point in trial.points if point.acceptance is not None]
    if accepted:
        st.markdown("**Acceptance of drafts**")
        table([acceptance_row(f"{p.concurrency}", p.acceptance) for p in accepted if p.acceptance])
    st.markdown("**Engine starts**")
    grid(
        [
            {
                "attempt": str(run.attempt),
                "state": words(run.state),
                "start": seconds_text(run.facts.start_s)
                if run.facts and run.facts.start_s is not None
                else "not reported",
                "weights": size_text(run.facts.weight_bytes if run.facts else None),
                "KV cache": size_text(run.facts.kv_cache_bytes if run.facts else None),
                "failure": joined([words(run.failure_kind or ""), run.failure_detail or ""]),
            }
            for run in trial.runs
        ]
    )


def _point(point: LoadPoint) -> dict[str, str]:
    requests = f"{point.succeeded} of {point.requests}"
    if point.failures:
        requests += f" ({', '.join(f'{n} {kind}' for kind, n in point.failures.items())})"
    return {
        "in flight": f"{point.concurrency}, {ROLES[point.role]}, repeat {point.repeat}",
        "requests": requests,
        "throughput": rate_text(point.throughput_tokens_per_s),
        "first token p50 / p95": latency_text(point.ttft_s),
        "per token p50 / p95": latency_text(point.tpot_s),
        "end to end p50 / p95": latency_text(point.e2e_s),
        "tokens per engine step": f"{point.tokens_per_engine_step:.2f}"
        if point.tokens_per_engine_step is not None
        else NOT_MEASURED,
        "prefix hits": share_text(point.prefix_hit_share),
        "KV peak": share_text(point.counters.peak_kv_usage),
        "flaws": joined(point.flaws) or "none",
    }


def acceptance_row(label: str, found: AcceptanceFigures) -> dict[str, str]:
    """Acceptance of a draft method in one place; nothing drafted is not 0 %."""
    if found.per_position is None:
        positions = found.reason or "nothing was drafted"
    else:
        positions = ", ".join(
            f"{rate.value * 100:.0f} % ({rate.low * 100:.0f} to {rate.high * 100:.0f})"
            for rate in found.per_position
        )
    steps = found.tokens_per_step
    return {
        "where": label,
        "accepted by position": positions,
        "drafts": f"{found.drafts:,}",
        "accepted tokens": f"{found.accepted:,} of {found.draft_tokens:,}",
        "steps with a draft": share_text(found.coverage),
        "tokens per step": NOT_MEASURED if steps is None else f"{steps:.2f}",
    }
