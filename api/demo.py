"""`rooftune demo`: the main job on this machine, through the REST API, as a client would do it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from advisor import canonical
from advisor.errors import RooftuneError, Unavailable
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.recommender.phrases import findings
from advisor.serving import FunctionalSettings, Levers
from advisor.states import (
    DEPLOYMENT_OVER,
    STUDY_OVER,
    DeploymentState,
    StudyState,
    TargetState,
)
from advisor.units import seconds_text
from api.client import Client, DeploymentView, RecommendationView, StudyView, TargetView, TrialView
from api.report import print_recommendation
from api.settings import inherited_environment
from api.up import CHECKOUT, Supervisor, interrupted_by_signals

SAMPLE = "traffic.jsonl"
NAME = "demo"
QUESTION = "What is the capital of France?"
ANSWER_TOKENS = 32
# The proxy's table follows the database by half a second.
PROXY_WAIT_S = 120.0
POLL_S = 0.5
READY_WITHIN_S = 900.0
# Room for every technique and the confirmation on a slow machine; what does not fit is left out.
# Requests and lengths are what make the demo short.
STUDY_BUDGET_S = 1080.0
REQUESTS_PER_POINT = 16
# Shorter requests than a real study would replay, for the same reason. What the user's environment
# sets comes before these.
AGENT_SETTINGS = {
    "ROOFTUNE_OUTPUT_TOKEN_CAP": "32",
    "ROOFTUNE_MEAN_PROMPT_LIMIT": "200",
    "ROOFTUNE_MICROBENCH_S": "3",
}
# `make setup` builds the demo model here; without it the agent does, in the data folder.
BUILT_MODEL = CHECKOUT / ".rooftune-dev" / "models" / "demo"
# A processor whose 16-bit matrix rate is below half of its 32-bit rate has no 16-bit arithmetic:
# vLLM's default would then be several times slower than what a user of that machine would serve.
SLOW_HALF = 0.5
T = TypeVar("T")


@dataclass(slots=True)
class Clock:
    """How long each part took, in seconds."""

    started: float = field(default_factory=time.monotonic)
    parts: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Times a block under `name`."""
        begun = time.monotonic()
        yield
        self.parts[name] = round(time.monotonic() - begun, 1)

    def total_s(self) -> float:
        """Since the demo began."""
        return round(time.monotonic() - self.started, 1)


class Demo:
    """One run of the main job with its progress bars."""

    def __init__(self, client: Client, progress: Progress) -> None:
        self.client = client
        self.progress = progress
        self.clock = Clock()

    def target(self) -> TargetView:
        """The demo model on this machine's engine, built and inspected by the agent."""
        bar = self.progress.add_task("device, engine and demo model", total=None)
        self._wait(bar, self.client.engines, lambda page: bool(page.items))
        self._wait(bar, self.client.devices, lambda page: any(d.facts for d in page.items))
        made = self.client.create_target(
            name=NAME,
            model="demo",
            functional=FunctionalSettings(
                max_model_len=2048, enforce_eager=True, kv_cache_space_gib=2
            ),
        )
        target = self._wait(
            bar, lambda: self.client.target(made.id), lambda t: t.state != TargetState.PENDING
        )
        if target.state is TargetState.FAILED:
            raise Unavailable(f"the demo target failed: {target.error}", "see the agent's log")
        self._close(bar)
        return target

    def study(self, workload_id: str, target: TargetView) -> StudyView:
        """The study, followed by its events until it is over."""
        study = self.client.create_study(
            name=NAME,
            workload_id=workload_id,
            target_id=target.id,
            goal=Goal(concurrency=16),
            baseline=starting_levers(target.device),
            budget_s=STUDY_BUDGET_S,
            requests_per_point=REQUESTS_PER_POINT,
        )
        bar = self.progress.add_task("study: planning", total=1.0)
        try:
            for _ in self.client.study_events(study.id):
                study = self.client.study(study.id)
                self.progress.update(bar, completed=study.progress, description=_headline(study))
        except KeyboardInterrupt:
            # Else the next demo on this data folder would wait for what is left of this one.
            self.client.cancel_study(study.id)
            raise
        study = self.client.study(study.id)
        if study.state not in STUDY_OVER or study.recommendation_id is None:
            raise Unavailable(f"the study ended {study.state}: {study.error}", "see its trials")
        self._close(bar)
        return study

    def approve(self, recommendation_id: str) -> RecommendationView:
        """Approve the first of the ranking."""
        found = self.client.recommendation(recommendation_id)
        return self.client.review(
            found.id,
            decision="approve",
            config_hash=found.body.best.config_hash,
            recommendation_hash=found.hash,
            comment="approved by rooftune demo",
        )

    def deploy(self, found: RecommendationView) -> DeploymentView:
        """Deploy the approved configuration and wait until it serves."""
        bar = self.progress.add_task("deployment", total=None)
        made = self.client.deploy(
            name=NAME, recommendation_id=found.id, config_hash=found.body.best.config_hash
        )
        settled = DEPLOYMENT_OVER | {DeploymentState.SERVING}
        deployment = self._wait(
            bar, lambda: self.client.deployment(made.id), lambda d: d.state in settled
        )
        if deployment.state is not DeploymentState.SERVING:
            raise Unavailable(
                f"the deployment is {deployment.state}: {deployment.reason}", "see the agent's log"
            )
        self._close(bar)
        return deployment

    def _wait(self, bar: TaskID, look: Callable[[], T], done: Callable[[T], bool]) -> T:
        end = time.monotonic() + READY_WITHIN_S
        while True:
            seen = look()
            if done(seen):
                return seen
            if time.monotonic() > end:
                waited = seconds_text(READY_WITHIN_S)
                raise Unavailable(f"nothing happened within {waited}", "see the logs folder")
            self.progress.update(bar, advance=0)
            time.sleep(POLL_S)

    def _close(self, bar: TaskID) -> None:
        self.progress.update(bar, total=1.0, completed=1.0)


def starting_levers(device: DeviceFacts | None) -> Levers:
    """Defaults of vLLM, but 32 bit where the processor was measured to lack 16-bit arithmetic."""
    rates = {} if device is None else device.matrix_rate_flops_per_s
    half, full = rates.get("bfloat16"), rates.get("float32")
    if half is None or full is None or half.value >= SLOW_HALF * full.value:
        return Levers()
    return Levers(dtype="float32")


def _headline(study: StudyView) -> str:
    now = next((trial for trial in study.trials if trial.state == "measuring"), None)
    what = "study: " + (now.plan.title if now is not None else study.state)
    if study.remaining_s is None or study.state in {StudyState.DONE, StudyState.INCONCLUSIVE}:
        return what
    return f"{what}, about {seconds_text(max(1.0, study.remaining_s))} left"


def ask(client: Client, deployment: DeploymentView) -> dict[str, object]:
    """One question to the deployment's OpenAI-compatible endpoint."""
    said = client.ask(
        deployment.url,
        QUESTION,
        model=deployment.name,
        max_tokens=ANSWER_TOKENS,
        wait_s=PROXY_WAIT_S,
    )
    return {
        "question": QUESTION,
        "text": said.text,
        "model": deployment.name,
        "usage": {"prompt_tokens": said.prompt_tokens, "completion_tokens": said.output_tokens},
        "url": deployment.url,
    }


def run(*, data_dir: Path, keep_running: bool, as_json: bool, console: Console) -> int:
    """Bring everything up, do the job, print the result; 0 when every part of it worked.

    Progress goes to `console`; with `as_json` the result is one JSON object on standard output.
    """
    sample = resources.files("samples") / SAMPLE
    clock = Clock()
    with (
        interrupted_by_signals(),
        _progress(console) as progress,
        Supervisor(data_dir=data_dir, environment=_environment(), notify=progress.say) as up,
    ):
        with clock.part("service"):
            up.wait_ready()
        with Client(up.urls.api, up.key) as client:
            demo = Demo(client, progress)
            result = _job(demo, clock, sample.read_bytes())
            found, deployment, study = result
            with clock.part("answer"):
                answer = ask(client, deployment)
            progress.stop()
            summary: dict[str, object] = {
                "study_id": study.id,
                "workload": {"id": study.workload_id, "digest": found.body.workload_digest},
                "recommendation_hash": found.hash,
                "recommendation": canonical.as_json(found.body),
                "findings": list(findings(found.body)),
                "trials": [measured(trial) for trial in study.trials],
                "deployment": {"id": deployment.id, "config_hash": deployment.config_hash},
                "answer": answer,
                "urls": canonical.as_json(up.urls),
                "seconds": {**clock.parts, "total": clock.total_s()},
            }
            _show(summary, found, console, as_json=as_json)
            if keep_running:
                console.print("everything keeps running; end it with Ctrl-C")
                up.wait()
            else:
                _take_down(client, deployment)
    return 0


def _environment() -> dict[str, str]:
    built = {"ROOFTUNE_DEMO_MODEL_DIR": str(BUILT_MODEL)} if BUILT_MODEL.exists() else {}
    return {**AGENT_SETTINGS, **built, **inherited_environment()}


def _job(
    demo: Demo, clock: Clock, sample: bytes
) -> tuple[RecommendationView, DeploymentView, StudyView]:
    with clock.part("upload"):
        workload = demo.client.upload_workload(sample, name=NAME, filename=SAMPLE)
    with clock.part("target"):
        target = demo.target()
    with clock.part("study"):
        study = demo.study(workload.id, target)
    with clock.part("review and deployment"):
        found = demo.approve(study.recommendation_id or "")
        deployment = demo.deploy(found)
    return found, deployment, study


def measured(trial: TrialView) -> dict[str, object]:
    """What one start measured: a line per load point, without the engine's counters."""
    return {
        "key": trial.key,
        "title": trial.plan.title,
        "state": trial.state,
        "points": [
            {
                "role": point.role.value,
                "concurrency": point.concurrency,
                "repeat": point.repeat,
                "succeeded": point.succeeded,
                "output_tokens": point.output_tokens,
                "longest_output_tokens": point.longest_output_tokens,
                "duration_s": round(point.duration_s, 2),
                "tokens_per_s": round(point.throughput_tokens_per_s.value, 2),
                "loaded_tokens_per_s": point.loaded_tokens_per_s,
                "flaws": list(point.flaws),
            }
            for point in trial.points
        ],
    }


def _take_down(client: Client, deployment: DeploymentView) -> None:
    client.stop_deployment(deployment.id)
    end = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < end:
        if client.deployment(deployment.id).state in DEPLOYMENT_OVER:
            return
        time.sleep(POLL_S)
    raise RooftuneError("the deployment did not stop")


def _show(
    summary: dict[str, object], found: RecommendationView, console: Console, *, as_json: bool
) -> None:
    if as_json:
        print(json.dumps(summary, allow_nan=False))  # noqa: T201 the command's one output
        return
    print_recommendation(found.body, console)
    console.print_json(json.dumps({key: summary[key] for key in ("answer", "urls", "seconds")}))


def _progress(console: Console) -> "_LoggingProgress":
    return _LoggingProgress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
    )


class _LoggingProgress(Progress):
    """Progress bars that can say a line above themselves."""

    def say(self, line: str) -> None:
        """One line above the bars."""
        self.console.print(line)
