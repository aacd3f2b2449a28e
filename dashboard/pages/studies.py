"""Studies: start one, watch it live, stop it."""

import streamlit as st

from advisor.goal import Goal, Objective
from advisor.recommender.evidence import StudyOptions
from advisor.recommender.phrases import settings_text
from advisor.states import STUDY_OVER, StudyState, TargetState, TrialState
from advisor.techniques import TECHNIQUES
from advisor.units import MILLISECONDS_PER_S, seconds_text
from api.client import StudySummary, StudyView, TargetView, WorkloadView
from dashboard.app import run
from dashboard.listing import grid, newest, pick, show
from dashboard.session import act, client, readable_errors, say
from dashboard.settings import DashboardSettings
from dashboard.trials import now_text, show_plan, show_trials
from dashboard.wording import plain, time_text, words

MINUTE_S = 60
LONGEST_COMMAND = 8000
LONGEST_MINUTES = 7 * 24 * 60


def page() -> None:
    """Form, list, one study."""
    st.title("Studies")
    st.caption(
        "A study tries techniques on a real engine with requests of your workload, one"
        " configuration at a time, and measures what each of them does."
    )
    studies = newest(client().studies)
    workloads = newest(client().workloads)
    targets = [item for item in newest(client().targets) if item.state is TargetState.READY]
    with st.expander("New study", expanded=not studies):
        _create(workloads, targets)
    if not studies:
        st.info("No study yet.")
        return
    chosen = pick("study", studies, lambda item: f"{item.name}, {words(item.state)}")
    poll_s = DashboardSettings().dashboard_poll_s
    running = chosen.state not in STUDY_OVER
    st.fragment(_one, run_every=poll_s if running else None)(chosen.id, chosen.state)
    with st.expander(f"All studies ({len(studies)})"):
        grid([_line(item) for item in studies])


def _create(workloads: list[WorkloadView], targets: list[TargetView]) -> None:
    if not workloads or not targets:
        st.info("A study needs an uploaded workload and a target that is ready.")
        return
    samples = {item.id: f"{item.name} ({item.requests:,} requests)" for item in workloads}
    models = {item.id: f"{item.name} on {item.device_class}" for item in targets}
    titles = {item.key: item.title for item in TECHNIQUES}
    with st.form("study", border=False):
        name = st.text_input("Name", max_chars=80, placeholder="my-study")
        left, right = st.columns(2)
        workload = left.selectbox("Workload", list(samples), format_func=lambda key: samples[key])
        target = right.selectbox("Target", list(models), format_func=lambda key: models[key])
        goal = _goal()
        command = _command()
        cells = st.columns(4, vertical_alignment="bottom")
        minutes = cells[0].number_input(
            "Engine time (minutes)", min_value=1, max_value=LONGEST_MINUTES, value=30
        )
        requests = cells[1].number_input("Requests per load point", min_value=1, value=48)
        seed = cells[2].number_input("Seed", min_value=0, value=0)
        top = cells[3].number_input(
            "Highest load of the ladder",
            min_value=1,
            max_value=1024,
            value=32,
            help="The baseline is measured at 1, 2, 4, ... requests in flight up to this many, or"
            " until it saturates.",
        )
        confirm = _confirm()
        keys = st.multiselect(
            "Techniques to test",
            list(titles),
            default=list(titles),
            format_func=lambda key: titles[key],
        )
        asked = st.form_submit_button("Start", type="primary")
    if not asked:
        return
    if not keys:
        st.error("Choose at least one technique.")
        return
    with readable_errors():
        made = client().create_study(
            name=name.strip(),
            workload_id=workload,
            target_id=target,
            goal=goal,
            techniques=None if len(keys) == len(titles) else keys,
            budget_s=float(minutes * MINUTE_S),
            requests_per_point=requests,
            seed=seed,
            baseline_command=command.strip() or None,
            ladder_top=top,
            confirm=confirm,
        )
        show("study", made.id)
        say(f"Study {plain(made.name)} is queued.")
        st.rerun()


def _command() -> str:
    return st.text_area(
        "Your own baseline",
        max_chars=LONGEST_COMMAND,
        height=80,
        placeholder="vllm serve my-model --max-num-seqs 64",
        help="A `vllm serve` command line. Its levers are what every technique is compared"
        " with; empty means vLLM's defaults. Settings that are not known are listed in the"
        " recommendation.",
    )


def _confirm() -> bool:
    return st.checkbox(
        "Confirm the best configuration on other requests",
        value=True,
        help="At the end the best configuration meets the baseline on requests that no other"
        " trial saw.",
    )


def _goal() -> Goal:
    """Objective, load and limits from the form; empty limits do not bind."""
    cells = st.columns(5, vertical_alignment="bottom")
    objective = cells[0].selectbox("Objective", [item.value for item in Objective])
    concurrency = cells[1].number_input("Requests in flight", min_value=1, max_value=1024, value=16)
    first = cells[2].number_input("First token p95 limit (ms)", min_value=1.0, value=None)
    each = cells[3].number_input("Per token p95 limit (ms)", min_value=0.1, value=None)
    floor = cells[4].number_input(
        "Same tokens at least (%)",
        min_value=0.0,
        max_value=100.0,
        value=90.0,
        step=1.0,
        format="%.0f",
        help="Quality floor: at this share of positions a technique that changes outputs must keep"
        " the baseline's most likely token. 0: no floor.",
    )
    return Goal(
        objective=Objective(objective),
        concurrency=concurrency,
        ttft_p95_s=None if first is None else first / MILLISECONDS_PER_S,
        tpot_p95_s=None if each is None else each / MILLISECONDS_PER_S,
        min_top1_agreement=floor / 100 if floor > 0 else None,
    )


def _line(study: StudySummary) -> dict[str, str]:
    return {
        "name": study.name,
        "state": words(study.state),
        "progress": f"{study.progress * 100:.0f} %",
        "in flight": str(study.goal.concurrency),
        "budget": seconds_text(study.budget_s),
        "device class": study.device_class,
        "created": time_text(study.created_at),
        "ended": time_text(study.ended_at),
    }


def _one(study_id: str, shown: StudyState) -> None:
    """Draws itself again while the study runs; its end redraws the page, without polling."""
    with readable_errors():
        study = client().study(study_id)
        if study.state in STUDY_OVER and shown not in STUDY_OVER:
            st.rerun()
        _study(study)


def _study(study: StudyView) -> None:
    st.header(plain(study.name))
    baseline = plain(settings_text(study.baseline.overrides()))
    st.caption(
        f"{study.goal.objective.value} at {study.goal.concurrency} requests in flight;"
        f" baseline: {baseline}; {study.requests_per_point} requests per load point;"
        f" seed {study.seed}; ladder up to {study.options.ladder_top};"
        f" budget {seconds_text(study.budget_s)} of engine time"
    )
    _options(study.options)
    _state(study)
    if study.recommendation_id is not None:
        st.page_link(
            "pages/recommendation.py",
            label="Open the recommendation",
            icon=":material/fact_check:",
            query_params={"recommendation": study.recommendation_id},
        )
    st.subheader("Trials")
    show_trials(study)
    show_plan(study.plan)


def _options(options: StudyOptions) -> None:
    if options.baseline_command is not None:
        st.caption("The baseline is this command:")
        st.code(options.baseline_command, language=None, wrap_lines=True)
    for note in options.baseline_notes:
        st.caption(f"Baseline: {plain(note)}")


def _state(study: StudyView) -> None:
    if study.state in STUDY_OVER:
        _outcome(study)
        return
    st.progress(min(1.0, max(0.0, study.progress)), text=_headline(study))
    if study.cancel_requested:
        st.warning("Asked to stop; the agent stops at the next safe point.")
    elif st.button("Cancel the study", key="cancel"):
        act(lambda: client().cancel_study(study.id), "The study was asked to stop.")


def _outcome(study: StudyView) -> None:
    ended = f"ended {time_text(study.ended_at)}"
    why = f": {plain(study.error)}" if study.error else ""
    match study.state:
        case StudyState.DONE:
            st.success(f"Done, {ended}.")
        case StudyState.FAILED:
            st.error(f"Failed{why}; {ended}.")
        case state:
            st.warning(f"{words(state).capitalize()}{why}; {ended}.")


def _headline(study: StudyView) -> str:
    now = next((item for item in study.trials if item.state is TrialState.MEASURING), None)
    what = words(study.state) if now is None else plain(now_text(now))
    if study.state is StudyState.QUEUED:
        return f"{what}: waits for an agent of {plain(study.device_class)}"
    if study.remaining_s is None:
        return f"{what}; time left not known yet"
    return f"{what}; about {seconds_text(max(1.0, study.remaining_s))} left"


if __name__ == "__main__":
    run(page)
