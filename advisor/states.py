"""State machines of the nouns: one table each, and one function that reads them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from advisor.errors import StateConflict


class TargetState(StrEnum):
    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class StudyState(StrEnum):
    QUEUED = "queued"
    PLANNING = "planning"
    PROBING = "probing"
    ANALYSING = "analysing"
    DONE = "done"
    INCONCLUSIVE = "inconclusive"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TrialState(StrEnum):
    QUEUED = "queued"
    MEASURING = "measuring"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class RunState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    FAILED = "failed"


class RecommendationState(StrEnum):
    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    CHANGES_REQUESTED = "changes_requested"
    EXPIRED = "expired"
    STALE = "stale"


class DeploymentState(StrEnum):
    PENDING = "pending"
    STARTING = "starting"
    SERVING = "serving"
    UNHEALTHY = "unhealthy"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why an engine run, what it needs before its start, or a load point failed.

    Out of memory at load, in the profiling run and while serving are three kinds, as their remedies
    differ; `OUT_OF_MEMORY` is for where the log does not say when.
    """

    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_MEMORY_LOADING = "out_of_memory_loading"
    OUT_OF_MEMORY_PROFILING = "out_of_memory_profiling"
    OUT_OF_MEMORY_SERVING = "out_of_memory_serving"
    DEVICE_HELD = "device_held"
    UNSUPPORTED_QUANTIZATION = "unsupported_quantization"
    INCOMPATIBLE_SETTINGS = "incompatible_settings"
    FAILED_BEFORE = "failed_before"
    HUNG = "hung"
    NO_KV_MEMORY = "no_kv_memory"
    MODEL_NOT_FOUND = "model_not_found"
    BAD_WEIGHTS = "bad_weights"
    INVALID_SETTING = "invalid_setting"
    PORT_IN_USE = "port_in_use"
    WRONG_SERVER = "wrong_server"
    START_TIMEOUT = "start_timeout"
    EXITED = "exited"
    DIED = "died"
    LOAD_FAILED = "load_failed"
    QUANTIZER_MISSING = "quantizer_missing"
    QUANTIZATION_FAILED = "quantization_failed"
    AGENT_LOST = "agent_lost"
    CANCELLED = "cancelled"


S = TypeVar("S", bound=StrEnum)

TARGET_TRANSITIONS: Mapping[TargetState, frozenset[TargetState]] = {
    TargetState.PENDING: frozenset({TargetState.READY, TargetState.FAILED}),
}
STUDY_TRANSITIONS: Mapping[StudyState, frozenset[StudyState]] = {
    StudyState.QUEUED: frozenset({StudyState.PLANNING, StudyState.FAILED, StudyState.CANCELLED}),
    StudyState.PLANNING: frozenset(
        {StudyState.PROBING, StudyState.INFEASIBLE, StudyState.FAILED, StudyState.CANCELLED}
    ),
    StudyState.PROBING: frozenset({StudyState.ANALYSING, StudyState.FAILED, StudyState.CANCELLED}),
    StudyState.ANALYSING: frozenset(
        {
            StudyState.DONE,
            StudyState.INCONCLUSIVE,
            StudyState.INFEASIBLE,
            StudyState.FAILED,
            StudyState.CANCELLED,
        }
    ),
}
TRIAL_TRANSITIONS: Mapping[TrialState, frozenset[TrialState]] = {
    TrialState.QUEUED: frozenset({TrialState.MEASURING, TrialState.SKIPPED}),
    # `queued` again: the agent that measured it was lost; finished load points stay.
    TrialState.MEASURING: frozenset(
        {TrialState.DONE, TrialState.FAILED, TrialState.SKIPPED, TrialState.QUEUED}
    ),
}
RUN_TRANSITIONS: Mapping[RunState, frozenset[RunState]] = {
    RunState.STARTING: frozenset({RunState.READY, RunState.FAILED, RunState.STOPPED}),
    RunState.READY: frozenset({RunState.STOPPED, RunState.FAILED}),
}
RECOMMENDATION_TRANSITIONS: Mapping[RecommendationState, frozenset[RecommendationState]] = {
    RecommendationState.PROPOSED: frozenset(
        {
            RecommendationState.APPROVED,
            RecommendationState.REJECTED,
            RecommendationState.CHANGES_REQUESTED,
            RecommendationState.EXPIRED,
            RecommendationState.STALE,
        }
    ),
    RecommendationState.CHANGES_REQUESTED: frozenset(
        {RecommendationState.APPROVED, RecommendationState.REJECTED, RecommendationState.EXPIRED}
    ),
    RecommendationState.APPROVED: frozenset({RecommendationState.STALE}),
}
DEPLOYMENT_TRANSITIONS: Mapping[DeploymentState, frozenset[DeploymentState]] = {
    DeploymentState.PENDING: frozenset(
        {DeploymentState.STARTING, DeploymentState.STOPPED, DeploymentState.FAILED}
    ),
    DeploymentState.STARTING: frozenset(
        {
            DeploymentState.SERVING,
            DeploymentState.STARTING,
            DeploymentState.FAILED,
            DeploymentState.DRAINING,
            DeploymentState.STOPPED,
        }
    ),
    DeploymentState.SERVING: frozenset(
        {
            DeploymentState.UNHEALTHY,
            DeploymentState.STARTING,
            DeploymentState.DRAINING,
            DeploymentState.STOPPED,
            DeploymentState.FAILED,
        }
    ),
    DeploymentState.UNHEALTHY: frozenset(
        {
            DeploymentState.SERVING,
            DeploymentState.STARTING,
            DeploymentState.DRAINING,
            DeploymentState.STOPPED,
            DeploymentState.FAILED,
        }
    ),
    DeploymentState.DRAINING: frozenset({DeploymentState.STOPPED, DeploymentState.FAILED}),
}
STUDY_OVER = frozenset(set(StudyState) - set(STUDY_TRANSITIONS))
TRIAL_OVER = frozenset(set(TrialState) - set(TRIAL_TRANSITIONS))
DEPLOYMENT_OVER = frozenset(set(DeploymentState) - set(DEPLOYMENT_TRANSITIONS))


def moved(noun: str, table: Mapping[S, frozenset[S]], state: S, wanted: S) -> S:
    """`wanted`, if the table of `noun` has that arrow; else `StateConflict`."""
    if wanted not in table.get(state, frozenset()):
        raise StateConflict(noun, state, wanted)
    return wanted
