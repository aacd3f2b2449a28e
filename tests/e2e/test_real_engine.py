"""The spine on real vLLM: upload, study, review, deploy, and the `openai` client at the end."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import openai
import psutil
import pytest

from advisor.goal import Goal
from advisor.serving import FunctionalSettings
from advisor.states import DEPLOYMENT_OVER, DeploymentState, StudyState, TargetState, TrialState
from api.client import Client, DeploymentView, RecommendationView, StudyView, TargetView
from api.demo import starting_levers
from api.settings import inherited_environment
from api.up import Supervisor
from tests.fakes.ports import free_port_base

ROOT = Path(__file__).parents[2]
TECHNIQUE = "continuous_batching"
T = TypeVar("T")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.processes,
    pytest.mark.postgres,
]


def settled(look: Callable[[], T], done: Callable[[T], bool], within_s: float) -> T:
    end = time.monotonic() + within_s
    while not done(seen := look()) and time.monotonic() < end:
        time.sleep(0.5)
    return seen


def ours(data_dir: Path) -> list[psutil.Process]:
    """Processes whose command line or environment names our data folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != psutil.Process().pid and any(str(data_dir) in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def service(tmp_path: Path, demo_model: Path) -> Iterator[Supervisor]:
    """The whole service with the real engine, on a folder of its own."""
    environment = {
        **inherited_environment(),
        "ROOFTUNE_DEMO_MODEL_DIR": str(demo_model),
        "ROOFTUNE_CHECK_NEIGHBOURS": "false",
        "ROOFTUNE_OUTPUT_TOKEN_CAP": "48",
        "ROOFTUNE_MICROBENCH_S": "2",
    }
    data_dir = tmp_path / "service"
    with Supervisor(
        data_dir=data_dir, port_base=free_port_base(), environment=environment
    ) as supervisor:
        supervisor.wait_ready()
        yield supervisor

    assert ours(data_dir) == []


def ready_target(client: Client) -> TargetView:
    """The demo model on the real engine, inspected by the agent."""
    settled(client.engines, lambda page: bool(page.items), 240)
    settled(client.devices, lambda page: any(device.facts for device in page.items), 240)
    made = client.create_target(
        name="demo",
        model="demo",
        functional=FunctionalSettings(max_model_len=2048, enforce_eager=True, kv_cache_space_gib=1),
    )
    target = settled(
        lambda: client.target(made.id), lambda t: t.state is not TargetState.PENDING, 240
    )

    assert target.state is TargetState.READY, target.error
    return target


def finished_study(client: Client, target: TargetView) -> StudyView:
    """A study of one technique on a few requests of the sample."""
    sample = b"\n".join((ROOT / "samples" / "traffic.jsonl").read_bytes().splitlines()[:60])
    workload = client.upload_workload(sample, name="small", filename="small.jsonl")
    study = client.create_study(
        name="small",
        workload_id=workload.id,
        target_id=target.id,
        goal=Goal(concurrency=4),
        baseline=starting_levers(target.device),
        techniques=[TECHNIQUE],
        requests_per_point=6,
        budget_s=280,
        ladder_top=1,
        confirm=False,
    )
    kinds = {event.kind for event in client.study_events(study.id)}
    study = client.study(study.id)

    assert study.state in {StudyState.DONE, StudyState.INCONCLUSIVE}, study.error
    assert "progress" in kinds
    return study


def serving(client: Client, found: RecommendationView) -> DeploymentView:
    """The first of the ranking, approved and deployed."""
    best = found.body.best.config_hash
    client.review(found.id, decision="approve", config_hash=best, recommendation_hash=found.hash)
    made = client.deploy(name="small", recommendation_id=found.id, config_hash=best)
    live = settled(
        lambda: client.deployment(made.id),
        lambda d: d.state in DEPLOYMENT_OVER | {DeploymentState.SERVING},
        300,
    )

    assert live.state is DeploymentState.SERVING, live.reason
    return live


@pytest.mark.timeout(900)
def test_a_small_study_on_the_real_engine_ends_in_a_served_answer(service: Supervisor) -> None:
    """Everything between an upload and an answer is the real thing; nothing is left behind."""
    with Client(service.urls.api, service.key) as client:
        study = finished_study(client, ready_target(client))
        found = client.recommendation(study.recommendation_id or "")
        live = serving(client, found)
        time.sleep(1.0)  # the proxy reads its table twice a second
        texts = _answers(live.url, service.key)
        client.stop_deployment(live.id)
        stopped = settled(
            lambda: client.deployment(live.id), lambda d: d.state in DEPLOYMENT_OVER, 60
        )

    trials = {trial.plan.technique: trial for trial in study.trials}
    [verdict] = found.body.verdicts
    assert trials[TECHNIQUE].state is TrialState.DONE
    assert all(point.failed == 0 for point in trials[TECHNIQUE].points)
    assert {point.counters.peak_running for point in trials[TECHNIQUE].points} == {1}
    assert max(point.counters.peak_running or 0 for point in trials[None].points) > 1
    assert verdict.technique == TECHNIQUE
    assert found.body.engine.kv_cache_tokens
    assert found.body.memory.kv_peak_usage
    assert texts[0] == texts[1]
    assert "Paris" in texts[0]
    assert stopped.state is DeploymentState.STOPPED


def _answers(url: str, key: str) -> tuple[str, str]:
    """The same question streamed and plain, at temperature 0."""
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120) as client:
        asked = [{"role": "user", "content": "What is the capital of France?"}]
        options = {"model": "small", "messages": asked, "temperature": 0, "max_tokens": 16}
        plain = client.chat.completions.create(**options)  # type: ignore[call-overload]
        chunks = client.chat.completions.create(  # type: ignore[call-overload]
            **options, stream=True, stream_options={"include_usage": True}
        )
        parts, usage = [], None
        for chunk in chunks:
            usage = chunk.usage or usage
            parts += [choice.delta.content or "" for choice in chunk.choices]

    assert usage is not None
    assert usage.completion_tokens == plain.usage.completion_tokens
    return plain.choices[0].message.content, "".join(parts)
