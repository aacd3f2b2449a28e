"""What the planner and the recommender work on: plans, trials and what they measured."""

from dataclasses import dataclass, field

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.goal import Goal
from advisor.hardware import DeviceFacts
from advisor.llm import ModelShape
from advisor.measurement.records import LoadPoint, LoadRole, QualityRecord
from advisor.serving import EngineFacts, ServingConfig
from advisor.states import TrialState
from advisor.traffic.figures import TrafficSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPlan:
    """One load to measure: requests in flight, which repeat it is, how many requests.

    An `optional` one is left out once the throughput of smaller loads has stopped rising.
    """

    concurrency: int
    repeat: int
    requests: int
    role: LoadRole = LoadRole.PROBE
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityPlan:
    """Prompts to answer greedily after the loads, up to `max_tokens` each, `passes` times."""

    requests: int
    max_tokens: int
    passes: int = 1


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
    quality: QualityPlan | None = None

    def __post_init__(self) -> None:
        if not self.points and self.quality is None:
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
    quality: QualityRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """How a study is run beside goal and budget.

    `ladder_top` is the highest concurrency of the ladder 1, 2, 4, ... `baseline_command` is the
    user's own ``vllm serve`` line, `baseline_notes` what of it is not kept and why.
    `confirm` asks for the finalist against the baseline on held-out requests.
    """

    ladder_top: int = 32
    confirm: bool = True
    baseline_command: str | None = None
    baseline_notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ladder_top < 1:
            raise InvalidInput("ladder_top", f"{self.ladder_top} is below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyEvidence:
    """Everything a study knows at one moment; the planner and the recommender read only this.

    `techniques` are the keys that the user asked about; None means every technique. `hosts` counts
    the machines that its load points were measured on: more than one after a take-over.
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
    options: StudyOptions = field(default_factory=StudyOptions)
    hosts: int = 1
