"""From a profile of one device to the step model of an engine on it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.interconnect import AllReduce
from advisor.llm import ModelShape, dtype_bytes
from advisor.llm.feed_forward import Experts
from advisor.llm.mixers import Attention
from advisor.roofline.kernels.attention import joint_attention
from advisor.roofline.kernels.experts import ExpertTimes
from advisor.roofline.kernels.roles import KernelRow, StepCurves, step_curves
from advisor.roofline.kernels.rows import AttentionRows, ExpertRows, KernelCurve
from advisor.roofline.kernels.step import KernelStep, StepGap, graph_sizes
from advisor.roofline.kernels.tail import DecodeTail, decode_tail

# Between two steps of an engine with async scheduling: BLIS's host term per step (handbook 3.4).
# Its 4 us per request overlap with the device; they are the upper end of an interval.
ASYNC_GAP = StepGap(step_s=126e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Kernel times of one rank of a model on one device, in seconds.

    `multiprocessors` of the device, None where nobody knows: then unequal decodes cost what as many
    equal ones do.
    """

    kernels: tuple[KernelRow, ...]
    attention: AttentionRows
    experts: ExpertRows | None = None
    multiprocessors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledEngine:
    """What of an engine's settings shapes its steps; `all_reduce` is that of its ranks' links."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tensor_parallel: int = 1
    all_reduce: AllReduce | None = None
    cuda_graphs: bool = True
    gap: StepGap = ASYNC_GAP

    def __post_init__(self) -> None:
        if (self.all_reduce is None) is not (self.tensor_parallel == 1):
            raise InvalidInput("engine.all_reduce", "is needed with several ranks, and only then")
        if self.all_reduce is not None and self.all_reduce.ranks != self.tensor_parallel:
            raise InvalidInput("engine.all_reduce", f"is not of {self.tensor_parallel} ranks")


def measured_step(model: ModelShape, profile: KernelProfile, engine: ProfiledEngine) -> KernelStep:
    """The step model of an engine whose kernels were timed on its own device.

    Raises `InvalidInput` for a model whose first attention is of another kind than multi-head or
    grouped-query attention, `UnknownName` for a kernel of an unknown name.
    """
    attention = model.attention
    if not isinstance(attention, Attention):
        raise InvalidInput("model", f"{model.architecture} has no attention of the profiled kind")
    curves = step_curves(model, profile.kernels)
    gathered = tuple(_logits(model, engine))
    sizes = graph_sizes(engine.max_num_seqs, engine.max_num_batched_tokens)
    return KernelStep(
        curves=StepCurves(by_token=curves.by_token, by_sampled=(*curves.by_sampled, *gathered)),
        attention=joint_attention(
            profile.attention,
            layers=sum(isinstance(g.mixer, Attention) * g.count for g in model.layers),
            tail=_tail(attention, profile, engine.tensor_parallel),
        ),
        experts=_experts(model, profile, engine.tensor_parallel),
        communication=tuple(_sums(model, engine)),
        graph_sizes=sizes if engine.cuda_graphs else (),
        gap=engine.gap,
    )


def _tail(attention: Attention, profile: KernelProfile, ranks: int) -> DecodeTail | None:
    if profile.multiprocessors is None:
        return None
    return decode_tail(
        profile.multiprocessors,
        query_heads=max(1, attention.heads // ranks),
        kv_heads=max(1, attention.kv_heads // ranks),
    )


def _experts(model: ModelShape, profile: KernelProfile, ranks: int) -> ExpertTimes | None:
    found = [
        (group.count, group.feed_forward)
        for group in model.layers
        if isinstance(group.feed_forward, Experts)
    ]
    if profile.experts is None or not found:
        return None
    layers = sum(count for count, _ in found)
    return ExpertTimes(rows=profile.experts, experts=found[0][1], layers=layers, ranks=ranks)


def _sums(model: ModelShape, engine: ProfiledEngine) -> Iterator[KernelCurve]:
    """Two sums of hidden states in each layer and one of the embedding (vLLM's parallel layers)."""
    if engine.all_reduce is not None:
        points = _powers(engine.max_num_batched_tokens)
        row = model.hidden_size * dtype_bytes(model.dtype)
        yield KernelCurve(
            name="all_reduce",
            points=points,
            seconds=engine.all_reduce.seconds(points * row),
            calls=2 * model.num_layers + 1,
        )


def _logits(model: ModelShape, engine: ProfiledEngine) -> Iterator[KernelCurve]:
    """Gathering the logits moves half of what summing all of them would."""
    if engine.all_reduce is not None:
        points = _powers(engine.max_num_seqs)
        row = model.vocab_size * dtype_bytes(model.dtype)
        yield KernelCurve(
            name="logits_gather",
            points=points,
            seconds=engine.all_reduce.seconds(points * row) / 2,
            calls=1,
        )


def _powers(limit: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """1, 2, 4 and so on, and the limit."""
    powers = 2.0 ** np.arange(int(np.log2(max(limit, 1))) + 1)
    return np.unique(np.append(powers, float(max(limit, 1))))
