"""An engine to simulate: memory, scheduler and step time of a configuration, with their ranges."""

from dataclasses import dataclass, replace
from typing import Literal

from advisor.errors import InvalidInput
from advisor.hardware import AllReduce, DeviceFacts
from advisor.llm import ModelShape
from advisor.roofline.memory import KvCapacity, MemoryPlan
from advisor.roofline.memory.fit import Fit, Verdict, fit
from advisor.roofline.memory_plan import memory_plan
from advisor.roofline.step.efficiency import CENTRE, FAST, SLOW, Efficiency
from advisor.roofline.step.prediction import roofline_step
from advisor.roofline.step.rooflinestep import RooflineStep
from advisor.roofline.step.served import served_model
from advisor.roofline.step.steptime import StepTables, TableLimits
from advisor.serving import ServingConfig
from advisor.simulator.from_layout import cache_groups
from advisor.simulator.settings import SchedulerSettings, Speculation

_STATES = "prefix caching of recurrent layers: nothing is taken from the cache"
_DRAFTING = "the time that drafting takes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerWords:
    """Settings of the scheduler that are no levers of a study, in vLLM's words.

    `static_batch` emulates static batches of so many slots; `survival` and `coverage` say what is
    accepted of drafts (`Speculation`).
    """

    tensor_parallel_size: int = 1
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    long_prefill_token_threshold: int = 0
    static_batch: int | None = None
    survival: tuple[float, ...] = ()
    coverage: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelledEngine:
    """One engine at one end of everything uncertain: its scheduler and its steps."""

    settings: SchedulerSettings
    step: RooflineStep
    tables: StepTables


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineModel:
    """A configuration on a device. `fast`, `centre` and `slow` are the ends of its ranges.

    `levels` is empty where the engine does not start. `assumed` says where the memory is not sure
    to suffice and the simulation takes it to.
    """

    plan: MemoryPlan
    fit: Fit
    levels: tuple[LevelledEngine, ...]
    not_modelled: tuple[str, ...]
    assumed: str | None = None

    @property
    def fast(self) -> LevelledEngine:
        """The quickest steps and the most memory."""
        return self.levels[0]

    @property
    def centre(self) -> LevelledEngine:
        """The likely one."""
        return self.levels[1]

    @property
    def slow(self) -> LevelledEngine:
        """The slowest steps and the least memory."""
        return self.levels[2]


def engine_model(
    model: ModelShape,
    device: DeviceFacts,
    config: ServingConfig,
    words: SchedulerWords,
    *,
    efficiency: Efficiency,
    all_reduce: AllReduce | None = None,
) -> EngineModel:
    """Memory by the plan, steps by the roofline, both at the ends of their ranges.

    Ranks whose messages nobody measured on that card raise `InvalidInput`.
    """
    ranks = words.tensor_parallel_size
    if ranks > 1 and all_reduce is None:
        raise InvalidInput(
            "tensor_parallel_size", f"nobody measured messages among {ranks} of {device.name}"
        )
    plan = memory_plan(model, device, config, tensor_parallel=ranks)
    verdict = fit(plan)
    served = served_model(model, config, tensor_parallel_size=ranks)
    efficiency = replace(efficiency, async_scheduling=plan.settings.async_scheduling)
    levels: list[LevelledEngine] = []
    pools = _pools(verdict)
    if pools is not None:
        limits = _limits(plan, max(pool.num_blocks for pool in pools))
        for ends, pool in zip((FAST, CENTRE, SLOW), pools, strict=True):
            step = replace(
                roofline_step(served, device, efficiency, ends, all_reduce=all_reduce),
                drafted=plan.settings.num_speculative_tokens,
            )
            levels.append(
                LevelledEngine(
                    settings=scheduler_settings(plan, config, words, pool),
                    step=step,
                    tables=step.tables(limits),
                )
            )
    return EngineModel(
        plan=plan,
        fit=verdict,
        levels=tuple(levels),
        not_modelled=_left_out(plan, levels, drafts=bool(words.survival)),
        assumed=_assumption(verdict),
    )


def _pools(verdict: Fit) -> tuple[KvCapacity, KvCapacity, KvCapacity] | None:
    """Pools of the fast, the likely and the slow engine; None where none is large enough."""
    if verdict.verdict is Verdict.DOES_NOT_FIT:
        return None
    low, centre, high = verdict.budget.capacities()
    starting = [pool for pool in (low, centre, high) if pool is not None and pool.starts]
    if not starting:
        return None

    def sure(pool: KvCapacity | None) -> KvCapacity:
        return starting[0] if pool is None or not pool.starts else pool

    return sure(high), sure(centre), sure(low)


def _assumption(verdict: Fit) -> str | None:
    if verdict.verdict is not Verdict.UNCERTAIN:
        return None
    return f"the simulation takes it to start, but it {verdict.text}"


def _limits(plan: MemoryPlan, num_blocks: int) -> TableLimits:
    longest = min(plan.settings.max_model_len, num_blocks * plan.layout.block_size)
    return TableLimits(
        max_tokens=max(2, plan.settings.max_num_batched_tokens),
        max_requests=max(2, plan.max_num_seqs),
        max_context=max(2, longest),
    )


def scheduler_settings(
    plan: MemoryPlan, config: ServingConfig, words: SchedulerWords, pool: KvCapacity
) -> SchedulerSettings:
    """The scheduler of a plan on a pool of blocks."""
    chunked = config.levers.enable_chunked_prefill
    return SchedulerSettings(
        num_blocks=pool.num_blocks,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.settings.max_num_batched_tokens,
        max_model_len=plan.settings.max_model_len,
        block_size=plan.layout.block_size,
        enable_prefix_caching=plan.settings.enable_prefix_caching and not _recurrent(plan),
        scheduling_policy=words.scheduling_policy,
        long_prefill_token_threshold=words.long_prefill_token_threshold,
        enable_chunked_prefill=chunked is not False,
        async_scheduling=plan.settings.async_scheduling,
        speculation=_speculation(plan, words),
        groups=cache_groups(plan.layout),
        static_batch=words.static_batch,
    )


def _speculation(plan: MemoryPlan, words: SchedulerWords) -> Speculation | None:
    drafted = plan.settings.num_speculative_tokens
    if not drafted:
        return None
    if len(words.survival) != drafted:
        raise InvalidInput("acceptance", f"is needed for each of the {drafted} drafted positions")
    return Speculation(
        num_speculative_tokens=drafted, survival=words.survival, coverage=words.coverage
    )


def _recurrent(plan: MemoryPlan) -> bool:
    """Whether states of recurrent layers share the pool; their prefix cache is not simulated."""
    return any(group.kind == "mamba" for group in cache_groups(plan.layout))


def _left_out(plan: MemoryPlan, levels: list[LevelledEngine], *, drafts: bool) -> tuple[str, ...]:
    said = levels[1].step.not_modelled if levels else ()
    states = plan.settings.enable_prefix_caching and _recurrent(plan)
    return (*said, *((_STATES,) if states else ()), *((_DRAFTING,) if drafts else ()))
