"""A place for a whole agent: a tiny model folder, a workload, a target, and the agent's process."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from advisor.canonical import digest
from advisor.goal import Goal
from advisor.recommender.evidence import StudyOptions
from advisor.serving import FunctionalSettings, ServingConfig
from advisor.states import StudyState
from advisor.traffic.columns import requests_to_parquet
from advisor.traffic.summary import summarise
from advisor.traffic.trace import Request, RequestKind, TraceReport
from db import deployments, engines, identity, recommendations, studies, targets, workloads
from db.identity import Principal, utc_now
from db.recommendations import Decision, NewReview
from db.session import Sessions, transaction
from db.studies import NewStudy
from db.tables import (
    DeploymentRow,
    DeviceRow,
    EngineRow,
    EngineRunRow,
    RecommendationRow,
    StudyRow,
    TargetRow,
)
from db.targets import NewTarget
from db.workloads import NewWorkload
from probes.vllm.processes import find_engines
from tests.fakes.findings import recommendation
from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json

LAUNCHER = Path(__file__).resolve().parent / "planted_engine.py"
DEVICE_CLASS = "planted"
HOST = "test-host"
SYSTEM = "You answer briefly and politely, and you always name the section that you quote. " * 3
# Neither a ladder nor a confirmation: a study of a few engine starts.
BASELINE = ServingConfig(functional=FunctionalSettings(max_model_len=2048))
NARROW = StudyOptions(ladder_top=1, confirm=False)
TRUTH: Mapping[str, Any] = {
    "base_step_s": 0.002,
    "token_s": 1e-5,
    "start_s": 0.05,
    "dtype_factors": {"float32": 1.6},
    "acceptance": [{"contains": "copy", "per_position": [0.8, 0.7, 0.6, 0.5]}],
}


def write_model(folder: Path) -> Path:
    """A model folder that can be inspected: two small layers, a byte tokenizer, empty weights."""
    folder.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_bytes(byte_tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_text(PLAIN_TEMPLATE)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def sample_requests(count: int, conversation: str | None = None) -> tuple[Request, ...]:
    """`count` chats of two classes (some copy) with one system prompt, maybe of one session."""
    requests = []
    for index in range(count):
        label = ("copy", "prose")[index % 2]
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{label} number {index}: " + "word " * (index % 7)},
        ]
        requests.append(
            Request(
                id=f"r{index}",
                index=index,
                line=index + 1,
                kind=RequestKind.CHAT,
                label=label,
                arrival_s=float(index),
                messages=json.dumps(messages),
                response="word " * 3,
                session=conversation,
                max_tokens=12,
                temperature=0.0,
            )
        )
    return tuple(requests)


@dataclass(kw_only=True)
class Agent:
    """The agent's process; every one that was started is ended by `AgentSite.close`."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL, as a crash: nothing of it can clean up."""
        self.process.kill()
        self.process.wait(30)


@dataclass(kw_only=True)
class AgentSite:
    """One host with one device and a planted engine, on a fresh database."""

    folder: Path
    database_url: str
    sessions: Sessions
    agents: list[Agent] = field(default_factory=list)
    truth: dict[str, Any] = field(default_factory=lambda: dict(TRUTH))
    baseline: ServingConfig = BASELINE
    principal: Principal | None = None

    def __post_init__(self) -> None:
        self.model = write_model(self.folder / "models" / "tiny")
        with transaction(self.sessions) as session:
            key = identity.bootstrap_admin(session, utc_now())
            self.principal = identity.authenticate(session, str(key), utc_now())

    @property
    def who(self) -> Principal:
        """The admin of the database."""
        if self.principal is None:
            raise LookupError("the site has no admin")
        return self.principal

    @property
    def project_id(self) -> uuid.UUID:
        """The admin's only project."""
        return next(iter(self.who.project_ids))

    def start(self, **settings: str) -> Agent:
        """Start an agent on the site's device; `settings` are names without prefix, "" for none."""
        truth = self.folder / "truth.json"
        truth.write_text(json.dumps(self.truth))
        chosen = {
            "DATABASE_URL": self.database_url,
            "DATA_DIR": str(self.folder / "data"),
            "ENGINE_PYTHON": sys.executable,
            "ENGINE_LAUNCHER": str(LAUNCHER),
            "HOST_NAME": HOST,
            "DEVICE_CLASS": DEVICE_CLASS,
            "MODEL_ROOTS": str(self.folder / "models"),
            "POLL_S": "0.2",
            "LEASE_TTL_S": "5",
            "MICROBENCH_S": "0.1",
            "STOP_GRACE_S": "2",
            "RESTART_BACKOFF_S": "0.2",
            "CHECK_NEIGHBOURS": "false",
            "PLANTED": str(truth),
            **{name.upper(): value for name, value in settings.items()},
        }
        environment = {
            **os.environ,  # noqa: TID251 - a process of its own needs the whole environment
            **{f"ROOFTUNE_{name}": value for name, value in chosen.items() if value},
        }
        log = self.folder / f"agent-{len(self.agents)}.log"
        argv = [sys.executable, "-m", "probes"]
        with log.open("wb") as stream:
            process = subprocess.Popen(argv, env=environment, stdout=stream, stderr=stream)
        agent = Agent(process=process, log=log)
        self.agents.append(agent)
        return agent

    def close(self) -> None:
        """End every agent that still runs."""
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.process.terminate()
                try:
                    agent.process.wait(20)
                except subprocess.TimeoutExpired:
                    agent.kill()

    def wait(self, what: str, found: Callable[[], bool], limit_s: float = 240.0) -> None:
        """Poll until `found`; on failure the agents' logs are part of the message."""
        deadline_s = time.monotonic() + limit_s
        while not found():
            if time.monotonic() > deadline_s:
                logs = "\n".join(agent.log.read_text()[-4000:] for agent in self.agents)
                message = f"not within {limit_s:.0f} s: {what}\n{logs}"
                raise TimeoutError(message)
            time.sleep(0.1)

    # -------------------------------------------------------------------------------- rows

    def engine(self) -> EngineRow:
        """The registered engine, waited for."""
        self.wait("an engine is registered", lambda: self._newest_engine() is not None)
        engine = self._newest_engine()
        if engine is None:
            raise LookupError("no engine")
        return engine

    def _newest_engine(self) -> EngineRow | None:
        with transaction(self.sessions) as session:
            return engines.newest(session)

    def device(self) -> DeviceRow:
        """The only device."""
        with transaction(self.sessions) as session:
            return session.scalars(select(DeviceRow)).one()

    def target(self, model: str | None = None) -> uuid.UUID:
        """A new target on the tiny model, or on what is named."""
        engine = self.engine()
        with transaction(self.sessions) as session:
            new = NewTarget(
                project_id=self.project_id,
                name="tiny",
                model=model or str(self.model),
                engine_id=engine.id,
                device_class=DEVICE_CLASS,
                functional=self.baseline.functional,
            )
            row = targets.create(
                session,
                new,
                created_by=self.who.user_id,
                actor=self.who.actor,
                now=utc_now(),
            )
            return row.id

    def target_row(self, target_id: uuid.UUID) -> TargetRow:
        """The target's row now, with its tokenizer."""
        with transaction(self.sessions) as session:
            return targets.one(session, target_id, None)

    def workload(self, count: int = 40, conversation: str | None = None) -> uuid.UUID:
        """A new workload of sample requests."""
        requests = sample_requests(count, conversation)
        report = TraceReport(
            format="jsonl",
            encoding="utf-8",
            rows=count,
            accepted=count,
            rejected=0,
            rejects=(),
            warnings=(),
            time_unit=None,
        )
        new = NewWorkload(
            project_id=self.project_id,
            name="sample",
            digest=digest(requests),
            requests=count,
            bytes=1000,
            report=report,
            summary=summarise(requests, None, block_size=16),
        )
        with transaction(self.sessions) as session:
            row = workloads.create(
                session,
                new,
                [requests_to_parquet(requests)],
                created_by=self.who.user_id,
                actor=self.who.actor,
                now=utc_now(),
            )
            return row.id

    def study(
        self,
        target_id: uuid.UUID,
        workload_id: uuid.UUID,
        techniques: Sequence[str] | None = None,
        options: StudyOptions = NARROW,
    ) -> uuid.UUID:
        """A queued study at concurrency 4 with 12 requests per point."""
        with transaction(self.sessions) as session:
            return self._new_study(
                session, target_id, workload_id, techniques=techniques, options=options
            ).id

    def _new_study(
        self,
        session: Session,
        target_id: uuid.UUID,
        workload_id: uuid.UUID,
        *,
        techniques: Sequence[str] | None = None,
        options: StudyOptions = NARROW,
    ) -> StudyRow:
        new = NewStudy(
            project_id=self.project_id,
            name="study",
            workload_id=workload_id,
            target_id=target_id,
            goal=Goal(concurrency=4),
            baseline=self.baseline,
            budget_s=36_000.0,
            requests_per_point=12,
            seed=7,
            techniques=None if techniques is None else tuple(techniques),
            options=options,
        )
        return studies.create(
            session, new, created_by=self.who.user_id, actor=self.who.actor, now=utc_now()
        )

    def study_state(self, study_id: uuid.UUID) -> str:
        """The study's state now."""
        with transaction(self.sessions) as session:
            return studies.one(session, study_id, None).state

    def approved(
        self, target_id: uuid.UUID, workload_id: uuid.UUID, config: ServingConfig | None = None
    ) -> RecommendationRow:
        """A recommendation of a finished study; its first configuration was approved."""
        with transaction(self.sessions) as session:
            study = self._new_study(session, target_id, workload_id)
            study.state = StudyState.DONE.value
            body = recommendation(str(study.id))
            config = config or body.best.config
            best = replace(body.best, config=config, config_hash=config.hash)
            body = replace(body, ranked=(best,))
            row = recommendations.create(session, study, body, now=utc_now())
            recommendations.review(
                session,
                row.id,
                None,
                NewReview(
                    decision=Decision.APPROVE,
                    config_hash=body.best.config_hash,
                    recommendation_hash=row.hash,
                    comment="",
                ),
                reviewer=self.who,
                now=utc_now(),
                single_user=True,
            )
            return row

    def deploy(self, name: str, approved: RecommendationRow, drain_s: float = 5.0) -> uuid.UUID:
        """Want the approved configuration served."""
        with transaction(self.sessions) as session:
            row = deployments.create(
                session,
                name=name,
                recommendation_id=approved.id,
                config_hash=approved.body.best.config_hash,
                principal=self.who,
                now=utc_now(),
                drain_s=drain_s,
            )
            return row.id

    def deployment(self, deployment_id: uuid.UUID) -> DeploymentRow:
        """The deployment's row now."""
        with transaction(self.sessions) as session:
            return deployments.one(session, deployment_id, None)

    def wait_deployment(self, deployment_id: uuid.UUID, state: str) -> DeploymentRow:
        """The row once it is in `state`."""
        self.wait(
            f"the deployment is {state}",
            lambda: self.deployment(deployment_id).state == state,
        )
        return self.deployment(deployment_id)

    def runs(self) -> list[EngineRunRow]:
        """All engine runs, oldest first."""
        with transaction(self.sessions) as session:
            return list(session.scalars(select(EngineRunRow).order_by(EngineRunRow.created_at)))

    def engines_left(self) -> int:
        """Processes that carry the token of any run."""
        return len(find_engines({run.token for run in self.runs()}))
