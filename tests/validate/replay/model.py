"""The step model of a replayed run: kernel times of its device and engine facts, nothing recorded.

Choices, each from how the engine works, none from the traces:

- Positions are padded to the captured graph sizes (vllm/config/vllm.py); attention and sampling
  are not.
- Ranks of tensor parallelism add up two messages per layer and one for the embedding, and gather
  the logits (vllm/model_executor: RowParallelLinear, VocabParallelEmbedding, LogitsProcessor).
  Ranks of expert parallelism gather hidden states before the experts and scatter them after.
- The links of the two-card machine are NCCL times measured on it in CUDA graphs (LLMServingSim
  e08dc388, profiler/perf/RTXPRO6000/hardware.yaml, 2026-09-08): about 16 GB/s. Handbook 3.2's 39
  GB/s is another RTX PRO 6000 server; PCIe differs by server.
- Between two steps the device waits 126 us (BLIS's host term per step, handbook 3.4); work per
  request overlaps with the device under async scheduling, the default since vLLM 0.14.
- Unequal contexts: `advisor.roofline.kernels.tail`.
- Data-parallel ranks that share experts meet in every layer, so each waits while the other computes
  a prompt. They are served apart here, with steps longer by the share of time that prompts take of
  the other rank where this one has none, ``p (1 - p)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.hardware import datasheet
from advisor.llm.feed_forward import Experts
from advisor.llm.mixers import Attention
from advisor.roofline.kernels import (
    ExpertTimes,
    KernelCurve,
    KernelStep,
    StepCurves,
    StepGap,
    decode_tail,
    graph_sizes,
    joint_attention,
    step_curves,
)
from advisor.roofline.memory import CacheSettings, DeviceMemory, MemoryPlan, memory_budget
from advisor.roofline.step.steptime import JointAttention
from advisor.simulator import SchedulerSettings
from tests.validate.replay.rows import BLOCK_SIZE, MICRO, Profile, Run

Floats: TypeAlias = NDArray[np.float64]

WIDTH = 2  # bytes of bfloat16
UTILIZATION = 0.9  # vLLM 0.19's default
# Measured on the machine of the two-card runs, us by bytes (all-reduce: message; all-gather: each
# rank's part; reduce-scatter: each rank's result).
LINK_BYTES = (
    *(10240, 40960, 139264, 327680, 557056, 1114112),
    *(1310720, 2228224, 5242880, 8912896, 16777216, 20971520),
)
ALL_REDUCE_US = (
    *(16.24, 17.5, 22.78, 30.6, 42.64, 78.36),
    *(90.59, 148.95, 335.41, 566.73, 1051.83, 1309.13),
)
ALL_GATHER_US = (
    *(14.52, 16.44, 20.15, 30.36, 46.12, 84.1),
    *(95.45, 154.57, 352.81, 589.39, 1093.41, 1362.23),
)
REDUCE_SCATTER_US = (
    *(13.45, 15.68, 20.96, 32.81, 48.59, 86.98),
    *(100.54, 161.63, 378.89, 639.52, 1136.82, 1405.58),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Where each unknown of a step model stands; the ends are those of 90 % intervals.

    `kernels` and `links` multiply measured times, `tail` the cost of unequal contexts; one and
    `stall` multiply the steps of ranks that wait for others. The gap is in seconds.
    """

    kernels: float = 1.0
    links: float = 1.0
    tail: float = 1.0
    gap_s: float = 126 * MICRO
    gap_request_s: float = 0.0
    stall: float = 0.0


CENTRE = Level()
# Kernels: repeats of a profile agree within 2 %, and clocks fall under sustained load, so more is
# to be feared above than below. Links: graphs or eager launches, two measurements half a year
# apart. Tail: the spread of its measurements over shapes. Gap: none at all, or BLIS's 4 us per
# request without any overlap.
ENDS: tuple[tuple[Level, Level], ...] = (
    (replace(CENTRE, kernels=0.98), replace(CENTRE, kernels=1.05)),
    (replace(CENTRE, links=0.8), replace(CENTRE, links=1.3)),
    (replace(CENTRE, tail=0.3), replace(CENTRE, tail=2.0)),
    (replace(CENTRE, gap_s=0.0), replace(CENTRE, gap_request_s=4 * MICRO)),
)


def attention_table(run: Run, profile: Profile) -> JointAttention:
    """Attention of one rank, contexts of equal length."""
    return joint_attention(profile.attention, layers=run.shape.num_layers)


def step_model(
    run: Run, profile: Profile, table: JointAttention, level: Level = CENTRE
) -> KernelStep:
    """The step model of one rank of a run; `table` is its `attention_table`."""
    attention = run.shape.attention
    if not isinstance(attention, Attention):
        raise TypeError(run.model)
    curves = step_curves(run.shape, profile.kernels)
    tail = decode_tail(
        run.multiprocessors,
        query_heads=attention.heads // run.tensor_parallel,
        kv_heads=attention.kv_heads // run.tensor_parallel,
        level=level.tail,
    )
    return KernelStep(
        curves=StepCurves(
            by_token=tuple(_times(c, level.kernels) for c in curves.by_token),
            by_sampled=(
                *(_times(c, level.kernels) for c in curves.by_sampled),
                *_gathered(run, level.links),
            ),
        ),
        attention=replace(
            table,
            seconds=level.kernels * table.seconds,
            tail_alone=tail.alone,
            tail_beside=tail.beside,
            tail_from=tail.split_below,
        ),
        experts=_experts(run, profile, level),
        communication=tuple(_links(run, level.links)),
        graph_sizes=graph_sizes(run.max_num_seqs, run.max_num_batched_tokens),
        gap=StepGap(step_s=level.gap_s, request_s=level.gap_request_s),
        scale=1 + level.stall,
    )


def _times(curve: KernelCurve, factor: float) -> KernelCurve:
    return replace(curve, seconds=factor * curve.seconds)


def _collective(name: str, micro: tuple[float, ...], row_bytes: float, calls: int) -> KernelCurve:
    return KernelCurve(
        name=name,
        points=np.array(LINK_BYTES) / row_bytes,
        seconds=np.array(micro) * MICRO,
        calls=calls,
    )


def _links(run: Run, factor: float) -> Iterator[KernelCurve]:
    model = run.shape
    row = float(model.hidden_size * WIDTH)
    if run.tensor_parallel > 1:
        calls = 2 * model.num_layers + 1
        yield _times(_collective("all_reduce", ALL_REDUCE_US, row, calls), factor)
    if run.data_parallel > 1:
        layers = model.num_layers
        yield _times(_collective("all_gather", ALL_GATHER_US, row, layers), factor)
        yield _times(_collective("reduce_scatter", REDUCE_SCATTER_US, row, layers), factor)


def _gathered(run: Run, factor: float) -> Iterator[KernelCurve]:
    if run.tensor_parallel > 1:
        row = run.shape.vocab_size / run.tensor_parallel * WIDTH
        yield _times(_collective("logits_gather", ALL_GATHER_US, row, 1), factor)


def _experts(run: Run, profile: Profile, level: Level) -> ExpertTimes | None:
    feed_forward = run.shape.layers[0].feed_forward
    if profile.experts is None or not isinstance(feed_forward, Experts):
        return None
    return ExpertTimes(
        rows=replace(profile.experts, seconds=level.kernels * profile.experts.seconds),
        experts=feed_forward,
        layers=run.shape.num_layers,
        ranks=run.data_parallel * run.tensor_parallel,
        data_parallel=run.data_parallel,
    )


def scheduler_settings(run: Run) -> SchedulerSettings:
    """The scheduler as the run started it; its pool as reported or else as the memory allows."""
    return SchedulerSettings(
        num_blocks=run.num_blocks or pool_blocks(run),
        max_num_seqs=run.max_num_seqs,
        max_num_batched_tokens=run.max_num_batched_tokens,
        max_model_len=run.max_model_len,
        block_size=BLOCK_SIZE,
        async_scheduling=True,
    )


def pool_blocks(run: Run) -> int:
    """Blocks that the memory of the card leaves, at the centre of the estimate."""
    plan = MemoryPlan(
        model=run.shape,
        settings=CacheSettings(
            dtype="bfloat16",
            max_model_len=run.max_model_len,
            max_num_batched_tokens=run.max_num_batched_tokens,
            block_size=BLOCK_SIZE,
            tensor_parallel=run.tensor_parallel,
            async_scheduling=True,
        ),
        device=DeviceMemory(
            kind="cuda",
            total_bytes=datasheet(run.card).memory_bytes,
            utilization=UTILIZATION,
        ),
        max_num_seqs=run.max_num_seqs,
    )
    budget = memory_budget(plan)
    centre = budget.capacities()[1]
    if centre is None:
        raise ValueError(run.name)
    elsewhere = _experts_elsewhere(run) * WIDTH
    return centre.num_blocks + elsewhere // budget.layout.bytes_per_block


def _experts_elsewhere(run: Run) -> int:
    """Weights of the experts that the other data-parallel ranks hold."""
    hidden = run.shape.hidden_size
    held = sum(
        group.count * group.feed_forward.experts * 3 * hidden * group.feed_forward.intermediate
        for group in run.shape.layers
        if isinstance(group.feed_forward, Experts)
    )
    return held - held // run.data_parallel
