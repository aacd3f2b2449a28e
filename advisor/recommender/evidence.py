"""What the planner and the recommender work on: plans, trials and what they measured."""

from dataclasses import dataclass, field

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.measurement.records import LoadPoint
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import TrialState
from advisor.traffic.trace import TrafficSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPlan:
    """One load to measure: requests in flight, which repeat it is, how many requests."""

    concurrency: int
    repeat: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """One configuration to start and the loads to measure on it.

    `key` is unique in the study. `technique` is the key of the toggled technique, None for the
    baseline and for combinations. `predicted` is per concurrency the predicted throughput
    (tokens/s) before any probe.
    """

    key: str
    title: str
    technique: str | None
    config: ServingConfig
    points: tuple[PointPlan, ...]
    expected_s: float
    predicted: tuple[tuple[int, Estimate], ...] = ()

    def __post_init__(self) -> None:
        if not self.points:
            raise InvalidInput("trial.points", "a trial without a load point measures nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEvidence:
    """A trial as far as it came: finished load points count even if the trial failed later."""

    plan: TrialPlan
    state: TrialState
    failure_kind: str | None = None
    failure_detail: str | None = None
    facts: EngineFacts | None = None
    points: tuple[LoadPoint, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvidence:
    """Everything a study knows at one moment; the planner and the recommender read only this.

    `techniques` are the keys that the user asked about; None means every technique.
    """

    goal: Goal
    baseline: ServingConfig
    model: ModelShape
    device: DeviceFacts
    traffic: TrafficSummary
    trials: tuple[TrialEvidence, ...]
    budget_s: float
    spent_s: float
    requests_per_point: int
    workload_digest: str
    model_digest: str
    engine_version: str
    techniques: tuple[str, ...] | None = None
