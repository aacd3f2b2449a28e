"""A simulator of vLLM's V1 scheduler: the same decisions, step by step, in virtual time."""

from advisor.simulator.load import Load
from advisor.simulator.outcome import Outcome
from advisor.simulator.settings import CacheGroup, SchedulerSettings, Speculation
from advisor.simulator.simulation import simulate, simulate_many
from advisor.simulator.tracing import TracedStep, step_trace

__all__ = [
    "CacheGroup",
    "Load",
    "Outcome",
    "SchedulerSettings",
    "Speculation",
    "TracedStep",
    "simulate",
    "simulate_many",
    "step_trace",
]
