"""Targets, studies, recommendation and deployments: what is shown and what a button asks for."""

from collections.abc import Sequence
from dataclasses import replace

from streamlit.testing.v1 import AppTest

from advisor.goal import Goal
from advisor.measurement.records import LoadPoint, LoadRole
from advisor.recommender.evidence import StudyOptions
from advisor.recommender.ladder import open_points
from advisor.states import DeploymentState, RunState, StudyState, TargetState, TrialState
from advisor.techniques import TECHNIQUES
from api.client import TrialView
from tests.dashboard.conftest import Opened
from tests.dashboard.test_workloads import GOOD, shown
from tests.fakes import views
from tests.fakes.planted_client import PlantedClient


def press(at: AppTest, label: str) -> AppTest:
    """Press the button of this label."""
    return next(item for item in at.button if item.label == label).click().run()


def fill(at: AppTest, label: str, text: str) -> None:
    """Type into the field of this label."""
    fields = [*at.text_input, *at.text_area]
    next(item for item in fields if item.label == label).input(text)


def test_a_ready_target_shows_its_arithmetic_and_its_measured_ridge(opened: Opened) -> None:
    """135 M parameters, 22.5 KiB per token, the ridge with the corners of both intervals."""
    at = opened(PlantedClient(known_targets=[views.target()]), "targets")

    assert not at.exception
    assert "134,515,008" in shown(at)
    assert "22.50 KiB" in shown(at)
    assert "18.0 GB/s (16.0 to 20.0)" in shown(at)
    assert "8.3 FLOP/B (7.0 to 10.0)" in shown(at)


def test_a_failed_target_says_why(opened: Opened) -> None:
    """In the agent's words."""
    failed = views.target(TargetState.FAILED, error="architecture 'X' is not described yet")
    at = opened(PlantedClient(known_targets=[failed]), "targets")

    assert not at.exception
    assert "is not described yet" in at.error[0].value


def test_creating_a_target_sends_the_functional_settings(opened: Opened) -> None:
    """Empty fields stay at vLLM's own."""
    client = PlantedClient()
    at = opened(client, "targets")
    fill(at, "Name", "mine")
    at.number_input[0].set_value(2048)
    press(at, "Create")
    action, told = client.asked[0]

    assert not at.exception
    assert (action, told["name"], told["model"]) == ("create_target", "mine", "demo")
    assert told["functional"] == replace(views.target().functional, enforce_eager=False)


def test_a_running_study_shows_progress_and_the_time_left(opened: Opened) -> None:
    """What is measured now, how far it is, and what is still to come."""
    at = opened(PlantedClient(known_studies=[views.running_study()]), "studies")

    assert not at.exception
    assert [item.value for item in at.progress] == [40]
    assert "about 2 min 30 s left" in at.progress[0].text
    assert any("Still planned" in item.label for item in at.expander)


def test_a_finished_study_shows_predictions_beside_measurements_and_failures(
    opened: Opened,
) -> None:
    """One row per trial and load; a failed trial has its kind and reason, and no zero."""
    at = opened(PlantedClient(known_studies=[views.finished_study()]), "studies")
    trials = next(item.value for item in at.table if "what went wrong" in item.value)
    failed = trials[trials["state"] == "failed"]

    assert not at.exception
    assert not at.progress
    assert len(failed) == 1
    assert set(failed["measured"]) == {"not measured"}
    assert all("out of memory" in cell.replace("\\", "") for cell in failed["what went wrong"])
    assert all("tok/s" in cell for cell in trials[trials["in flight"] == "16"]["predicted"])
    assert "roofline:" in shown(at)


def test_cancelling_asks_once_and_then_waits(opened: Opened) -> None:
    """The button gives way to a note."""
    client = PlantedClient(known_studies=[views.running_study()])
    at = press(opened(client, "studies"), "Cancel the study")

    assert [action for action, _ in client.asked] == ["cancel_study"]
    assert "next safe point" in at.warning[0].value
    assert "Cancel the study" not in [item.label for item in at.button]


def test_a_study_is_started_with_the_chosen_techniques_and_limits(opened: Opened) -> None:
    """Milliseconds and minutes of the form are seconds for the service."""
    upload = views.workload(GOOD, name="text", filename="a.jsonl")
    client = PlantedClient(uploads=[upload], known_targets=[views.target()])
    at = opened(client, "studies")
    fill(at, "Name", "mine")
    next(item for item in at.number_input if "First token" in item.label).set_value(250.0)
    at.multiselect[0].unselect(TECHNIQUES[0].key)
    press(at, "Start")
    _, told = client.asked[0]

    assert not at.exception
    assert told["goal"] == Goal(concurrency=16, ttft_p95_s=0.25)
    assert told["techniques"] == [item.key for item in TECHNIQUES[1:]]
    assert told["budget_s"] == 1800.0
    assert (told["baseline_command"], told["ladder_top"], told["confirm"]) == (None, 32, True)


def test_a_study_takes_the_users_own_command_the_ladder_and_the_floor(opened: Opened) -> None:
    """The line goes as it is; 0 % is no floor; confirming can be left out."""
    upload = views.workload(GOOD, name="text", filename="a.jsonl")
    client = PlantedClient(uploads=[upload], known_targets=[views.target()])
    at = opened(client, "studies")
    fill(at, "Name", "mine")
    fill(at, "Your own baseline", "vllm serve demo --max-num-seqs 64\n")
    next(item for item in at.number_input if "ladder" in item.label).set_value(8)
    next(item for item in at.number_input if "Same tokens" in item.label).set_value(0.0)
    next(item for item in at.checkbox if "Confirm" in item.label).uncheck()
    press(at, "Start")
    _, told = client.asked[0]

    assert not at.exception
    assert told["baseline_command"] == "vllm serve demo --max-num-seqs 64"
    assert (told["ladder_top"], told["confirm"]) == (8, False)
    assert told["goal"] == Goal(concurrency=16, min_top1_agreement=None)


def test_a_study_shows_the_users_command_and_what_of_it_is_not_kept(opened: Opened) -> None:
    """As the service gives it back."""
    options = StudyOptions(
        baseline_command="vllm serve demo --max-num-seqs 64",
        baseline_notes=("--swap-space is not known",),
    )
    study = replace(views.running_study(), options=options)
    at = opened(PlantedClient(known_studies=[study]), "studies")

    assert not at.exception
    assert "vllm serve demo --max-num-seqs 64" in [item.value for item in at.code]
    assert "--swap-space is not known" in shown(at)


def ready(trial: TrialView, points: Sequence[LoadPoint]) -> TrialView:
    """The trial with an engine that answers and these points done."""
    run = replace(trial.runs[-1], state=RunState.READY)
    return replace(trial, runs=(run,), points=tuple(points), state=TrialState.MEASURING)


def test_progress_says_the_load_and_the_role_that_is_measured_now(opened: Opened) -> None:
    """The first planned point without a record; without an engine, that it starts."""
    study = views.running_study()
    baseline, second = views.finished_study().trials[0], study.trials[1]
    first, *_ = baseline.points
    begun = ready(baseline, [first])
    waiting = open_points(begun.plan, begun.points)[0]
    measuring = opened(PlantedClient(known_studies=[replace(study, trials=(begun,))]), "studies")
    starting = opened(
        PlantedClient(known_studies=[replace(study, trials=(replace(second, runs=()),))]), "studies"
    )

    now = measuring.progress[0].text.replace("\\", "")

    assert f"at {waiting.concurrency} in flight (closed loop)" in now
    assert "load point 2 of at most" in now
    assert "starting the engine for" in starting.progress[0].text


def test_a_load_point_says_which_requests_it_replayed(opened: Opened) -> None:
    """Gangs and held-out requests are rows of their own, apart from the closed loop."""
    study = views.finished_study()
    trial = study.trials[0]
    held_out = replace(trial.points[0], role=LoadRole.HELD_OUT)
    changed = replace(trial, points=(*trial.points, held_out))
    at = opened(PlantedClient(known_studies=[replace(study, trials=(changed,))]), "studies")

    assert not at.exception
    assert f"{held_out.concurrency}, held-out requests" in shown(at)


def test_a_study_that_failed_says_why(opened: Opened) -> None:
    """And does not look again."""
    failed = replace(views.finished_study(), state=StudyState.FAILED, error="no agent came")
    at = opened(PlantedClient(known_studies=[failed]), "studies")

    assert "no agent came" in at.error[0].value


def test_the_recommendation_shows_ranking_and_verdicts_with_where_they_come_from(
    opened: Opened,
) -> None:
    """Every verdict's kind and sentence, predictions beside measurements."""
    at = opened(PlantedClient(found=[views.recommendation()]), "recommendation")
    body = views.body()
    ranked = next(item.value for item in at.table if "gain" in item.value)

    assert not at.exception
    assert len(ranked) == len(body.ranked)
    assert all(verdict.sentence in shown(at) for verdict in body.verdicts)
    assert "measured here" in shown(at)
    assert body.hash in shown(at)
    assert "Only an approved configuration" in at.info[-1].value


def test_approving_reviews_exactly_what_is_shown(opened: Opened) -> None:
    """The hash of the bundle and of the chosen configuration; then it can be deployed."""
    client = PlantedClient(found=[views.recommendation()])
    at = opened(client, "recommendation")
    chosen = views.body().ranked[1].config_hash
    at.selectbox(key="review_config").select(chosen)
    fill(at, "Comment", "fine")
    at.button(key="approve").click().run()
    action, told = client.asked[0]

    assert not at.exception
    assert action == "review"
    assert told == {
        "decision": "approve",
        "config_hash": chosen,
        "recommendation_hash": views.body().hash,
        "comment": "fine",
    }
    fill(at, "Name of the endpoint", "demo")
    press(at, "Deploy")
    assert client.asked[1] == ("deploy", {"name": "demo", "config_hash": chosen})


def test_a_rejected_recommendation_cannot_be_decided_again_or_deployed(opened: Opened) -> None:
    """Its review stays visible."""
    review = views.review("reject", views.body().best.config_hash, comment="too slow")
    at = opened(PlantedClient(found=[views.recommendation([review])]), "recommendation")

    assert not at.exception
    assert "too slow" in shown(at)
    assert "Deploy" not in [item.label for item in at.button]
    assert "Approve" not in [item.label for item in at.button]


def test_a_deployment_shows_how_to_call_it_and_answers_a_question(opened: Opened) -> None:
    """The answer is text, whatever it contains."""
    client = PlantedClient(served=[views.deployment()])
    at = opened(client, "deployments")
    codes = "\n".join(item.value for item in at.code)
    fill(at, "Question", "What is the capital of France?")
    press(at, "Ask")

    assert not at.exception
    assert f"curl {views.URL}/chat/completions" in codes
    assert f'base_url="{views.URL}"' in codes
    assert client.asked[0][1]["model"] == "demo"
    assert [item.value for item in at.text] == ["Paris *is* the answer."]
    assert "12 prompt tokens, 7 output tokens" in shown(at)


def test_stopping_a_deployment_asks_the_service(opened: Opened) -> None:
    """Then it drains and there is nothing left to press."""
    client = PlantedClient(served=[views.deployment()])
    at = press(opened(client, "deployments"), "Stop this deployment")

    assert [action for action, _ in client.asked] == ["stop_deployment"]
    assert "Draining" in at.info[0].value
    assert "Stop this deployment" not in [item.label for item in at.button]


def test_a_deployment_that_is_not_serving_takes_no_question(opened: Opened) -> None:
    """It says its state and its reason."""
    failed = replace(views.deployment(DeploymentState.FAILED), reason="out of memory")
    at = opened(PlantedClient(served=[failed]), "deployments")

    assert not at.exception
    assert "out of memory" in at.error[0].value
    assert "Ask" not in [item.label for item in at.button]
