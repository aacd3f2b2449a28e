"""Step time from measured kernels: what a profiler timed, called as often as the model calls it."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.roofline.kernels.attention import attention_seconds
from advisor.roofline.kernels.experts import ExpertTimes
from advisor.roofline.kernels.roles import StepCurves
from advisor.roofline.kernels.rows import KernelCurve
from advisor.roofline.step.batch import StepBatch
from advisor.roofline.step.steptime import JointAttention, StepTables, TableLimits

Floats: TypeAlias = NDArray[np.float64]

NOT_MODELLED = (
    "which of unequal decodes share a multiprocessor (only the longest is told apart)",
    "empty slots of a padded graph in attention",
    "overlap and fusion of kernels that were timed one by one",
    "clocks that fall under sustained load",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGap:
    """Time between two steps in which the device waits, whatever they compute, and per request.

    With async scheduling only what cannot overlap: inputs that need the last tokens, the copy of
    the sampled ones, launches.
    """

    step_s: float = 0.0
    request_s: float = 0.0

    def __post_init__(self) -> None:
        if self.step_s < 0 or self.request_s < 0:
            raise InvalidInput("gap", "is not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStep:
    """A `StepTime` of measured kernels (handbook 3.1: operations run one after another).

    `graph_sizes` are the captured CUDA graph sizes: a step of at most the largest computes the next
    size instead of its own positions, heads and attention excepted (vLLM config/compilation.py).
    `communication` are curves by positions, e.g. of the all-reduces of tensor parallelism.
    `scale` multiplies all kernel times, for the ends of an interval.
    """

    curves: StepCurves
    attention: JointAttention
    experts: ExpertTimes | None = None
    communication: tuple[KernelCurve, ...] = ()
    graph_sizes: tuple[int, ...] = ()
    gap: StepGap = StepGap()
    scale: float = 1.0

    @property
    def not_modelled(self) -> tuple[str, ...]:
        """What this model leaves out."""
        routed = ("experts that are not chosen evenly",) if self.experts else ()
        return (*NOT_MODELLED, *routed)

    def seconds(self, batch: StepBatch) -> float:
        """Seconds of one step; an empty one takes none."""
        if not batch.rows:
            return 0.0
        tokens, rows = np.array([batch.tokens]), np.array([batch.rows])
        blocks = float(self._blocks(tokens)[0]) + float(self._sampled(rows)[0])
        return blocks + self.scale * attention_seconds(self.attention, batch)

    def tables(self, limits: TableLimits) -> StepTables:
        """Exact at whole numbers of positions; attention as measured, linear in between."""
        tokens = self._token_grid(limits.max_tokens)
        rows = _points(self.curves.by_sampled, limits.max_requests)
        line = np.array([0.0, 1.0])
        return StepTables(
            tokens=tokens,
            dense_s=self._blocks(tokens),
            rows=rows,
            head_s=self._sampled(rows),
            requests=line,
            contexts=line,
            decode_s=np.zeros((2, 2)),
            new=line,
            cached=line,
            prefill_s=np.zeros((2, 2)),
            draft_s=np.zeros(2),
            joint=replace(self.attention, seconds=self.scale * self.attention.seconds),
        )

    def _blocks(self, tokens: Floats) -> Floats:
        computed = self._padded(tokens)
        total = np.zeros(len(tokens))
        for curve in (*self.curves.by_token, *self.communication):
            total += curve.step_seconds(computed)
        if self.experts is not None:
            total += self.experts.step_seconds(computed)
        return np.where(tokens > 0, self.scale * total + self.gap.step_s, 0.0)

    def _sampled(self, rows: Floats) -> Floats:
        total = np.zeros(len(rows))
        for curve in self.curves.by_sampled:
            total += curve.step_seconds(rows)
        return self.scale * total + self.gap.request_s * rows

    def _padded(self, tokens: Floats) -> Floats:
        if not self.graph_sizes:
            return tokens
        sizes = np.array(sorted(self.graph_sizes), dtype=np.float64)
        at = np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)
        return np.where((tokens > 0) & (tokens <= sizes[-1]), sizes[at], tokens)

    def _token_grid(self, limit: int) -> Floats:
        """Points of all curves and both sides of every stair that padding makes."""
        points = _points((*self.curves.by_token, *self.communication), limit)
        sizes = np.array(sorted(self.graph_sizes), dtype=np.float64)
        stairs = np.concatenate([sizes, sizes + 1])
        grid = np.unique(np.concatenate([points, stairs[stairs <= max(limit, 1)]]))
        return grid[(grid <= limit) | (grid <= 1)]


def _points(curves: tuple[KernelCurve, ...], limit: int) -> Floats:
    found = [np.array([0.0, 1.0, float(max(limit, 1))]), *(curve.points for curve in curves)]
    points = np.unique(np.concatenate(found))
    return points[points <= max(limit, 1)]


def graph_sizes(max_num_seqs: int, max_num_batched_tokens: int) -> tuple[int, ...]:
    """CUDA graph sizes that vLLM captures by default (config/vllm.py, `_set_cudagraph_sizes`).

    1, 2, 4, then every 8 below 256, then every 16 up to ``min(2 max_num_seqs, 512)``.
    """
    largest = min(2 * max_num_seqs, 512, max_num_batched_tokens)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    return tuple(size for size in sizes if size <= largest)
